"""Shortest job first: an oracle that knows how long every job will run, and interrupts none."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from simsched.policy import REMAINING_WORK, Decision, JobView, Policy, Signal, View
from simsched.toolkit import PLACERS, Key, PlacerName, PriorityScheduler


@dataclass
class Sjf(Policy):
    """Starts the shortest of the waiting jobs that fit; a job that runs keeps its GPUs until it finishes.

    The duration is the true one, on the GPUs asked for; ties go to the job submitted first.
    """

    name: ClassVar[str] = "sjf"
    needs: ClassVar[frozenset[Signal]] = frozenset({REMAINING_WORK})

    placement: PlacerName = "most-free"
    _scheduler: PriorityScheduler = field(
        default_factory=lambda: PriorityScheduler(preempts=False), init=False, repr=False
    )

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Start the shortest."""
        self._scheduler.take_in(view, _key, PLACERS[self.placement])
        return Decision.change(*self._scheduler.schedule())


def _key(job: JobView) -> Key:
    return (job[REMAINING_WORK].seconds,)
