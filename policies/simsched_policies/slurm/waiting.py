"""The jobs that wait for GPUs of one type, as columns, so that a pass over thousands of them is quick."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simsched_policies.slurm.backfill import Releases

Ints = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]


class WaitingJob(NamedTuple):
    """A job that waits; `limit` is in whole seconds, `fixed` the part of its priority that never changes.

    `key` numbers its user, `unit` the job array that it is a task of, or itself. Jobs of a higher `tier` go first.
    """

    id: str
    gpus: int
    limit: int
    key: int
    tenant: int
    submit_s: float
    fixed: float
    tier: int = 0
    unit: int = 0


class Waiting:
    """Waiting jobs in the order in which they were added; `key` numbers what the job belongs to, such as its user."""

    def __init__(self) -> None:
        """Begin with no job."""
        self.ids: list[str] = []
        self._whole = np.empty((64, 6), dtype=np.int64)
        self._real = np.empty((64, 2), dtype=np.float64)

    def __len__(self) -> int:
        """Count the jobs."""
        return len(self.ids)

    def add(self, job: WaitingJob) -> None:
        """Add a job."""
        place = len(self.ids)
        if place == len(self._whole):
            self._whole = np.concatenate([self._whole, np.empty_like(self._whole)])
            self._real = np.concatenate([self._real, np.empty_like(self._real)])
        self._whole[place] = job.gpus, job.limit, job.key, job.tenant, job.tier, job.unit
        self._real[place] = job.submit_s, job.fixed
        self.ids.append(job.id)

    def remove(self, places: Sequence[int]) -> None:
        """Take jobs out by their places."""
        keep = np.ones(len(self.ids), dtype=bool)
        keep[list(places)] = False
        rest = int(keep.sum())
        self._whole[:rest], self._real[:rest] = self._whole[: len(keep)][keep], self._real[: len(keep)][keep]
        gone = set(places)
        self.ids = [job_id for place, job_id in enumerate(self.ids) if place not in gone]

    def _column(self, place: int) -> Ints:
        return self._whole[: len(self.ids), place]

    @property
    def gpus(self) -> Ints:
        """GPUs that each asks for."""
        return self._column(0)

    @property
    def limits(self) -> Ints:
        """Time limit of each, in whole seconds."""
        return self._column(1)

    @property
    def keys(self) -> Ints:
        """Number of what each belongs to."""
        return self._column(2)

    @property
    def tenants(self) -> Ints:
        """Number of the tenant of each."""
        return self._column(3)

    @property
    def tiers(self) -> Ints:
        """Tier of each, the highest going first."""
        return self._column(4)

    @property
    def units(self) -> Ints:
        """Number of the job array of each, or its own."""
        return self._column(5)

    @property
    def submitted_s(self) -> Numbers:
        """Submission of each."""
        return self._real[: len(self.ids), 0]

    @property
    def fixed(self) -> Numbers:
        """Part of the priority of each that never changes."""
        return self._real[: len(self.ids), 1]


class TypePool:
    """The GPUs of one type: how many there are, who waits for them and when they will be given back."""

    def __init__(self, capacity: int) -> None:
        """Begin idle."""
        self.capacity = capacity
        self.waiting = Waiting()
        self.releases = Releases()
        self.demand = 0


def first_units(units: Ints, most: int) -> npt.NDArray[np.bool_]:
    """Say which jobs, in the order given, belong to the first `most` units that come in it."""
    _, first, unit = np.unique(units, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    chosen: npt.NDArray[np.bool_] = rank[unit] < most
    return chosen
