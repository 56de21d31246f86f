"""First in, first out: jobs start in the order of arrival and keep their GPUs until they finish."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from simsched.policy import Decision, Policy, View
from simsched.policy.gang import admit, available_gpus, keep_and_place


@dataclass
class Fifo(Policy):
    """Gang-schedules jobs in order of arrival, without preemption.

    A job at the head that does not fit blocks those behind it, unless `backfill` lets later ones that fit go first.
    Source: the common baseline, for instance YARN-CS with one queue in Tiresias, section 5.1.
    """

    name: ClassVar[str] = "fifo"

    backfill: bool = False

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Keep what runs and start the longest waiting."""
        running = [job for job in view.jobs.values() if job.running]
        waiting = [job for job in view.jobs.values() if not job.running]
        free = available_gpus(view) - sum(job.num_gpus for job in running)
        starting = admit(waiting, free, blocking=not self.backfill)
        return Decision(keep_and_place([*running, *starting], view))
