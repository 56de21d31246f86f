"""Best effort: first in, first out on whatever GPUs are free, without consolidation.

Idea: a job never waits for nearby GPUs: it starts earlier and may run slower. This is the second baseline of Tiresias
(Gu et al., NSDI'19, section 5.3): its YARN-CS without the constraint on placement. GPUs are taken from the nodes of the
lowest index.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from simsched.policy import Decision, Policy, Traits, View
from simsched.toolkit import PriorityScheduler
from simsched.toolkit.placers import ANY


@dataclass
class BestEffort(Policy):
    """Starts jobs in order of arrival on any free GPUs, without preemption; the head blocks those behind it.

    With `backfill` later jobs that fit overtake it.
    """

    name: ClassVar[str] = "best-effort"
    traits: ClassVar[Traits] = Traits(forgets=True)

    backfill: bool = False
    _scheduler: PriorityScheduler = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Start without jobs."""
        self._scheduler = PriorityScheduler(preempts=False, blocking=not self.backfill)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Start the longest waiting."""
        self._scheduler.take_in(view, lambda job: (), ANY)
        return Decision.change(*self._scheduler.schedule())
