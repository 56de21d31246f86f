"""The jobs that wait for GPUs of one type, as columns, which makes a pass over thousands fast, and their order.

They go by tier, then by multifactor priority, then by submission.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simsched.model import Allocation, JobRequest
from simsched_policies.production.slurm.backfill import Releases
from simsched_policies.production.slurm.options import Limits, Priority
from simsched_policies.production.slurm.usage import Usage, relative_factor, size_factor

Ints = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]


class WaitingJob(NamedTuple):
    """A waiting job; `limit` is in whole seconds, `fixed` the constant part of its priority.

    `key` numbers its user, `unit` the job array that it is a task of, or itself, `number` its class of limits, and
    `want` its request of nodes. Jobs of a higher `tier` go first.
    """

    id: str
    gpus: int
    limit: int
    key: int
    number: int
    submit_s: float
    fixed: float
    tier: int = 0
    unit: int = 0
    want: int = 0


class Columns(NamedTuple):
    """The properties of waiting jobs, an array for each, in the order of `WaitingJob`."""

    gpus: Ints
    limits: Ints
    keys: Ints
    numbers: Ints
    submitted_s: Numbers
    fixed: Numbers
    tiers: Ints
    units: Ints
    wants: Ints


class Held(NamedTuple):
    """What a running job holds, the second at which its limit ends, and its owner."""

    pool: int
    allocation: Allocation
    gpus: int
    end: int
    number: int
    user: int
    start_s: float
    request: JobRequest


class Waiting:
    """Waiting jobs in the order in which they were added; `key` is the index of its owner, for instance its user."""

    def __init__(self) -> None:
        self.jobs: list[WaitingJob] = []
        #: The number of jobs for each number of GPUs, and for each want of nodes.
        self._sizes: dict[tuple[int, int], int] = {}
        #: A row for each property, so that its values are contiguous.
        self._whole = np.empty((7, 64), dtype=np.int64)
        self._real = np.empty((2, 64), dtype=np.float64)
        #: The number of jobs in the columns; the others are added when a column is read, since many start before.
        self._filled = 0

    def __len__(self) -> int:
        """Count the jobs."""
        return len(self.jobs)

    def add(self, job: WaitingJob) -> None:
        """Add a job."""
        self.jobs.append(job)
        size = job.gpus, job.want
        self._sizes[size] = self._sizes.get(size, 0) + 1

    def _fill(self) -> None:
        """Bring the columns up to date."""
        while len(self.jobs) > self._whole.shape[1]:
            self._whole = np.concatenate([self._whole, np.empty_like(self._whole)], axis=1)
            self._real = np.concatenate([self._real, np.empty_like(self._real)], axis=1)
        whole, real, begin = self._whole, self._real, self._filled
        self._filled = len(self.jobs)
        for place in range(begin, self._filled):
            _, gpus, limit, key, number, submit_s, fixed, tier, unit, want = self.jobs[place]
            whole[0, place], whole[1, place], whole[2, place] = gpus, limit, key
            whole[3, place], whole[4, place], whole[5, place], whole[6, place] = number, tier, unit, want
            real[0, place], real[1, place] = submit_s, fixed

    def remove(self, places: Sequence[int]) -> None:
        """Remove jobs by their indices."""
        if len(places) == len(self.jobs):
            self.jobs, self._sizes, self._filled = [], {}, 0
            return
        gone = sorted(places)
        self._fill()
        at, self._filled = gone[0], self._filled - len(gone)
        for place, after in pairwise([*gone, len(self.jobs)]):
            to = at + after - place - 1
            for rows in self._whole, self._real:
                rows[:, at:to] = rows[:, place + 1 : after]
            at = to
        for place in reversed(gone):
            job = self.jobs.pop(place)
            size = job.gpus, job.want
            self._sizes[size] -= 1
            if not self._sizes[size]:
                del self._sizes[size]

    @property
    def least_gpus(self) -> int:
        """The fewest GPUs that any job asks for; raises `ValueError` without jobs."""
        return min(self._sizes)[0]

    @property
    def kinds(self) -> set[int]:
        """The indices of their wants of nodes."""
        return {want for _, want in self._sizes}

    @property
    def columns(self) -> Columns:
        """Their properties."""
        self._fill()
        whole, real = self._whole[:, : self._filled], self._real[:, : self._filled]
        return Columns(*whole[:4], *real, *whole[4:])


class TypePool:
    """The GPUs of one type: their number, the jobs that wait for them, and when they will be released."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.waiting = Waiting()
        self.releases = Releases()
        self.demand = 0


def first_of_each(keys: Ints, most: int) -> npt.NDArray[np.bool_]:
    """Return which jobs, in the given order, are among the first `most` with their key."""
    order = np.argsort(keys, kind="stable")
    begins = np.flatnonzero(np.append(True, keys[order][1:] != keys[order][:-1]))
    rank = np.empty(len(keys), dtype=np.int64)
    rank[order] = np.arange(len(keys)) - np.repeat(begins, np.diff(np.append(begins, len(keys))))
    chosen: npt.NDArray[np.bool_] = rank < most
    return chosen


def first_units(units: Ints, most: int) -> npt.NDArray[np.bool_]:
    """Return which jobs, in the given order, belong to the first `most` units."""
    _, first, unit = np.unique(units, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    chosen: npt.NDArray[np.bool_] = rank[unit] < most
    return chosen


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
            columns = waiting.columns
            places = np.lexsort((places, columns.submitted_s, -value, -columns.tiers)).astype(np.int64)
        return places

    def scores(self, waiting: Waiting, now_s: float) -> list[tuple[float, float]]:
        """Return tier and priority of waiting jobs, the larger first."""
        return list(zip(waiting.columns.tiers.tolist(), self._values(waiting, now_s).tolist(), strict=True))

    def _values(self, waiting: Waiting, now_s: float) -> Numbers:
        columns = waiting.columns
        value = columns.fixed.copy()
        if self._priority.age:
            value += self._priority.age * np.minimum((now_s - columns.submitted_s) / self._priority.max_age_s, 1.0)
        if self._priority.fair_share:
            value += self._priority.fair_share * self._usage.factors()[columns.keys]
        return value
