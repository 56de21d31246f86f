"""Time slicing, as in Gandiva: all jobs take turns on the GPUs, with equal priority.

Idea: suspending and resuming jobs at short intervals gives every job early feedback (Xiao et al., Gandiva, OSDI'18,
section 3.2), but long jobs slow short ones down (Tiresias, section 5.3). Jobs run in turn, first in, first out; at the
end of a slice the running jobs go behind the waiting ones. Gandiva's packing of two jobs on a GPU and its migration are
left out, as they are in the comparison of Tiresias.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import ClassVar

import numpy as np

from simsched.policy import Decision, Policy, Quantum, Traits, View
from simsched.toolkit import PLACERS, PlacerName, PriorityScheduler


@dataclass
class TimeSlicing(Policy):
    """Rotates the jobs every `quantum_s` seconds while any of them waits; jobs that do not fit are skipped."""

    name: ClassVar[str] = "time-slicing"
    traits: ClassVar[Traits] = Traits(quantum="quantum_s", forgets=True)

    quantum_s: int = 60
    placement: PlacerName = "most-free"
    _scheduler: PriorityScheduler = field(default_factory=PriorityScheduler, init=False, repr=False)
    _quantum: Quantum = field(init=False, repr=False)
    _turns: count[int] = field(default_factory=count, init=False, repr=False)

    def __post_init__(self) -> None:
        """Start without jobs."""
        self._quantum = Quantum(self.name, self.quantum_s)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Move the jobs that have run behind those that wait."""
        scheduler = self._scheduler
        scheduler.take_in(view, lambda job: (next(self._turns),), PLACERS[self.placement])
        if self._quantum.over(view) and scheduler.waits:
            for job_id in list(scheduler.running):
                scheduler.rekey(job_id, (next(self._turns),))
        start, stop = scheduler.schedule()
        return Decision.change(start, stop, wake_at_s=self._quantum.end_s(view.now_s) if scheduler.waits else None)
