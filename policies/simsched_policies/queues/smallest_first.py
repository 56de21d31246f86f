"""Smallest first: the fewer GPUs a job asks for, the earlier it runs, however long it takes.

Idea: knowing only the one dimension of size is not enough (Gu et al., Tiresias, NSDI'19, Table 1: 1.52 times the mean
JCT of shortest remaining service first).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from simsched.policy import Decision, Policy, View
from simsched.toolkit import PLACERS, PlacerName, PriorityScheduler


@dataclass
class SmallestFirst(Policy):
    """Runs the jobs that ask for the fewest GPUs, in order of arrival among equals, preempting larger ones.

    Without `preempt` a job that runs keeps its GPUs.
    """

    name: ClassVar[str] = "smallest-first"

    preempt: bool = True
    placement: PlacerName = "most-free"
    _scheduler: PriorityScheduler = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Start without jobs."""
        self._scheduler = PriorityScheduler(preempts=self.preempt)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Admit by GPUs asked for."""
        self._scheduler.take_in(view, lambda job: (job.num_gpus,), PLACERS[self.placement])
        return Decision.change(*self._scheduler.schedule())
