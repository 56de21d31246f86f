"""QSSF: the jobs with the least expected GPU-time first, estimated from the durations of similar jobs.

Idea: quasi-shortest-service-first (Hu et al., Helios, SC'21, section 4.2): priority is the expected duration times the
requested GPUs, without preemption. The expected duration is that of finished jobs of the same user, name and size
(`simsched.toolkit.estimates`).

Deviations: the paper combines a gradient-boosted tree on user, name and time with a rolling mean of similar jobs; here
the rolling mean alone is learned during the run. `window` and `prior_s` are ours. The name of a job is its application.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from simsched.policy import Becomes, Decision, JobView, Policy, Traits, View
from simsched.policy.physics import JOBS_OF_USERS
from simsched.toolkit import PLACERS, Key, PlacerName, PriorityScheduler
from simsched.toolkit.estimates import DurationHistory, LearnedDurations


@dataclass
class Qssf(Policy):
    """Starts the jobs with the least expected GPU-time first; running jobs are never stopped."""

    name: ClassVar[str] = "qssf"
    traits: ClassVar[Traits] = Traits(
        wants={JOBS_OF_USERS: Becomes("expects of a job what those of its application and size took")}
    )

    prior_s: float = 3600.0
    window: int = 100
    placement: PlacerName = "consolidated"
    _expected: LearnedDurations = field(init=False, repr=False)
    _scheduler: PriorityScheduler = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Start without history."""
        self._expected = LearnedDurations(DurationHistory(prior_s=self.prior_s, window=self.window))
        self._scheduler = PriorityScheduler(preempts=False)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Learn from finished jobs, then start others."""
        self._expected.learn(view)
        self._scheduler.take_in(view, self._key, PLACERS[self.placement])
        if view.finished:
            for job in view.jobs.values():
                if not job.running:
                    self._scheduler.rekey(job.id, self._key(job))
        start, stop = self._scheduler.schedule()
        for job_id in start:
            self._expected.started(view.jobs[job_id], view.now_s)
        return Decision.change(start, stop)

    def _key(self, job: JobView) -> Key:
        return (self._expected.gpu_time_gpu_s(job),)
