"""First in, first out: jobs start in the order of arrival and keep their GPUs until they finish."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from simsched.policy import Decision, JobView, Policy, View
from simsched.toolkit import PLACERS, Key, Placer, PlacerName, PriorityScheduler


@dataclass
class Fifo(Policy):
    """Gang-schedules jobs in order of arrival, without preemption.

    A job at the head that does not fit blocks those behind it, unless `backfill` lets later ones that fit go first.
    Source: the common baseline, for instance YARN-CS with one queue in Tiresias, section 5.1.
    """

    name: ClassVar[str] = "fifo"

    backfill: bool = False
    placement: PlacerName = "most-free"
    _scheduler: PriorityScheduler = field(init=False, repr=False)
    _placer: Placer = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Start without jobs."""
        self._scheduler = PriorityScheduler(preempts=False, blocking=not self.backfill)
        self._placer = PLACERS[self.placement]

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Start the longest waiting."""
        self._scheduler.take_in(view, _by_arrival, self._placer)
        return Decision.change(*self._scheduler.schedule())


def _by_arrival(job: JobView) -> Key:
    """Return the same key for all: ties go to the job added first."""
    return ()
