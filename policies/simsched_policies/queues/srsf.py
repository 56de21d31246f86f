"""Shortest remaining service first: an oracle that knows the GPU-seconds that every job has left."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from simsched.policy import REMAINING_WORK, Decision, JobView, Policy, Signal, View
from simsched.toolkit import PLACERS, Key, PlacerName, PriorityScheduler


@dataclass
class Srsf(Policy):
    """Runs the jobs with the least GPU-time left, preempting others; jobs that do not fit are skipped.

    Source: the ideal that Tiresias sets its two-dimensional policies against (section 3.1, Table 1): time left times
    GPUs asked for; ties go to the job submitted first.
    """

    name: ClassVar[str] = "srsf"
    needs: ClassVar[frozenset[Signal]] = frozenset({REMAINING_WORK})

    placement: PlacerName = "most-free"
    _scheduler: PriorityScheduler = field(default_factory=PriorityScheduler, init=False, repr=False)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Admit by GPU-time left."""
        self._scheduler.take_in(view, _key, PLACERS[self.placement])
        return Decision.change(*self._scheduler.schedule(lambda job_id: _key(view.jobs[job_id])))


def _key(job: JobView) -> Key:
    return (job[REMAINING_WORK].seconds * job.num_gpus,)
