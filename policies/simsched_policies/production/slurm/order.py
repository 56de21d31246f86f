"""The order of jobs: by tier, then by multifactor priority, then by submission."""

from __future__ import annotations

import numpy as np

from simsched.model import JobRequest
from simsched_policies.production.slurm.options import Limits, Priority
from simsched_policies.production.slurm.usage import Usage, relative_factor, size_factor
from simsched_policies.production.slurm.waiting import Ints, Numbers, Waiting, WaitingJob


class Order:
    """The factors of jobs, and whether jobs are in order as added."""

    def __init__(self, priority: Priority, limits: Limits, usage: Usage) -> None:
        self._priority, self._usage = priority, usage
        self._of_partitions = {name: one.priority for name, one in limits.partitions.items()}
        self.of_qualities = {name: qos.priority for name, qos in limits.qos.items() if qos.priority}
        self.as_added = True

    def fixed(self, request: JobRequest, total: int) -> float:
        """Return the constant part of a waiting job's priority, on a cluster with this many GPUs."""
        weights = self._priority
        if not weights.weighs:
            return 0.0
        partition = relative_factor(self._of_partitions.get(request.queue, 0.0), self._of_partitions)
        quality = min(max(request.priority / weights.highest, 0.0), 1.0)
        if self.of_qualities:
            quality = relative_factor(self.of_qualities.get(request.qos, 0.0), self.of_qualities)
        size = size_factor(request.num_gpus, total, favour_small=weights.favour_small)
        return weights.size * size + weights.partition * partition + weights.qos * quality

    def added(self, job: WaitingJob) -> None:
        """Record a job added behind the others."""
        self.as_added = self.as_added and not job.tier

    def places(self, waiting: Waiting, now_s: float) -> Ints:
        """Return the indices of waiting jobs in order."""
        places: Ints = np.arange(len(waiting), dtype=np.int64)
        if self._priority.weighs or not self.as_added:
            value = self._values(waiting, now_s)
            places = np.lexsort((places, waiting.submitted_s, -value, -waiting.tiers)).astype(np.int64)
        return places

    def scores(self, waiting: Waiting, now_s: float) -> list[tuple[float, float]]:
        """Return tier and priority of waiting jobs, the larger first."""
        return list(zip(waiting.tiers.tolist(), self._values(waiting, now_s).tolist(), strict=True))

    def _values(self, waiting: Waiting, now_s: float) -> Numbers:
        value = waiting.fixed.copy()
        if self._priority.age:
            value += self._priority.age * np.minimum((now_s - waiting.submitted_s) / self._priority.max_age_s, 1.0)
        if self._priority.fair_share:
            value += self._priority.fair_share * self._usage.factors()[waiting.keys]
        return value
