"""What Gavel is compared with (Narayanan et al., OSDI'20, section 7.1).

Shares without a program: isolated, proportional, and Gandiva's fairness as Shockwave compares with it.

First in, first out over GPU types: the agnostic form keeps a job on its type, the first of the cluster that had room;
Gavel means it to be drawn at random, but its simulator takes the last of the alphabet (V100 while one is free). The
aware form gives each job in turn the fastest type with room, at each computation: jobs may move.

Gandiva's random packing: equal time for all while they fit; otherwise jobs are paired at random, and pairs that achieve
less than one job alone split up. The policy `gandiva` is Gandiva itself.

AlloX (Le et al., EuroSys'20): jobs are matched to GPUs and queue positions; a job that has its GPU keeps it. AlloX only
supports jobs of one GPU; here the duration of a larger job is multiplied by its GPUs, and it starts where enough are
free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import ClassVar, Literal

import numpy as np

from simsched.errors import input_error
from simsched.policy import REMAINING_WORK, Traits
from simsched.toolkit.programs import (
    Floats,
    RandomPacking,
    ShareProblem,
    allox,
    candidates,
    gandiva_fair,
    isolated,
    proportional,
)
from simsched.toolkit.rounds import PackedShares, SharesPolicy, Snapshot, Speeds, Unit


@dataclass
class _Unprogrammed(SharesPolicy):
    """Computes shares by one rule, without rates."""

    traits: ClassVar[Traits] = replace(SharesPolicy.traits, type_aware=False)
    rule: ClassVar[staticmethod[[ShareProblem], Floats]]

    speeds: Speeds = "none"

    def shares(self, snapshot: Snapshot) -> Mapping[Unit, Sequence[float]]:
        """Divide the cluster."""
        return snapshot.by_job(type(self).rule(snapshot.problem))


@dataclass
class IsolatedShares(_Unprogrammed):
    """Gives every job an n-th of each type's GPUs, at most all its time (Gavel, OSDI'20, the baseline "isolated")."""

    name: ClassVar[str] = "gavel-isolated"
    rule = staticmethod(isolated)


@dataclass
class ProportionalShares(_Unprogrammed):
    """Splits every job's time over the types in proportion to their GPUs (Gavel, OSDI'20, section 4.1)."""

    name: ClassVar[str] = "gavel-proportional"
    rule = staticmethod(proportional)


@dataclass
class GandivaFair(_Unprogrammed):
    """Gives every job the same time, whatever its size: Gandiva-Fair as Shockwave (NSDI'23) compares with it."""

    name: ClassVar[str] = "gavel-gandiva-fair"
    rule = staticmethod(gandiva_fair)


@dataclass
class GavelFifo(PackedShares):
    """Serves jobs in the order of arrival up to the first that does not fit.

    With `packed`, later jobs join a running one if the speeds of both, relative to running alone, sum to more than
    `packing_threshold`.
    """

    name: ClassVar[str] = "gavel-fifo"
    idle_without_share: ClassVar[bool] = True

    speeds: Literal["true", "measured", "fitted", "none"] = "none"
    packing_threshold: float = 1.5
    _kept: dict[str, int] = field(default_factory=dict, init=False, repr=False)

    def shares(self, snapshot: Snapshot) -> Mapping[Unit, Sequence[float]]:
        """Give the first jobs all their time on one type."""
        aware = self.speeds != "none"
        rates = snapshot.problem.throughput.tolist()
        free = [int(count) for count in snapshot.problem.num_gpus]
        kept = {} if aware else {job.id: self._kept[job.id] for job in snapshot.jobs if job.id in self._kept}
        for job in snapshot.jobs:
            if job.id in kept:
                free[kept[job.id]] -= job.num_gpus
        for job, row in zip(snapshot.jobs, rates, strict=True):
            if job.id in kept:
                continue
            fits = [column for column, rate in enumerate(row) if rate > 0 and free[column] >= job.num_gpus]
            if not fits:
                break
            kept[job.id] = max(fits, key=lambda column: (row[column], -column)) if aware else fits[0]
            free[kept[job.id]] -= job.num_gpus
        self._kept = kept
        columns = range(len(free))
        partner = self._partners(snapshot) if self.packed else {}
        shares: dict[Unit, list[float]] = {}
        for job_id in snapshot.ids:
            alone = job_id in kept and job_id not in partner
            shares[job_id,] = [float(alone and kept[job_id] == column) for column in columns]
        for host, guest in partner.items():
            shares[host, guest] = [float(kept[host] == column) for column in columns]
        return shares

    def _partners(self, snapshot: Snapshot) -> dict[str, str]:
        """Return for each running job the waiting one that joins it: its best partner, ties to the first."""
        problem, pairs = snapshot.problem, snapshot.problem.pairs
        if pairs is None:
            return {}
        together = {
            (one, other): rates for (one, other), rates in zip(pairs.jobs.tolist(), pairs.throughput, strict=True)
        }
        hosts = [place for place, job in enumerate(snapshot.jobs) if job.id in self._kept]
        partner: dict[str, str] = {}
        for guest in [place for place, job in enumerate(snapshot.jobs) if job.id not in self._kept]:
            gains = [self._gain(problem, together, host, guest, snapshot) for host in hosts]
            best = max(range(len(hosts)), key=lambda number: (gains[number], -number), default=None)
            if best is None or gains[best] <= self.packing_threshold:
                break
            partner[snapshot.jobs[hosts.pop(best)].id] = snapshot.jobs[guest].id
        return partner

    def _gain(
        self,
        problem: ShareProblem,
        together: Mapping[tuple[int, int], Floats],
        host: int,
        guest: int,
        snapshot: Snapshot,
    ) -> float:
        """Return the summed speeds of two packed jobs on the host's type, relative to running alone."""
        rates = together.get((min(host, guest), max(host, guest)))
        column = self._kept[snapshot.jobs[host].id]
        alone = problem.throughput[[min(host, guest), max(host, guest)], column]
        return 0.0 if rates is None or not alone.all() else float((rates[:, column] / alone).sum())


@dataclass
class GandivaPacking(PackedShares):
    """Gives equal time to jobs and random pairs of jobs."""

    name: ClassVar[str] = "gavel-gandiva"

    packed: bool = True
    _packing: RandomPacking | None = field(default=None, init=False, repr=False)

    def shares(self, snapshot: Snapshot) -> Mapping[Unit, Sequence[float]]:
        """Draw pairs for unpaired jobs, and divide the cluster."""
        if self._packing is None:
            self._packing = RandomPacking(Random(int(snapshot.rng.integers(2**63))))
        problem = snapshot.problem
        place = {job_id: number for number, job_id in enumerate(snapshot.ids)}
        together: dict[tuple[int, int], Floats] = {}
        if problem.pairs is not None:
            rows = zip(problem.pairs.jobs.tolist(), problem.pairs.throughput, strict=True)
            together = {(one, other): rates for (one, other), rates in rows}
        nothing = np.zeros((2, len(problem.num_gpus)))

        def rates(unit: Unit) -> Floats:
            if len(unit) == 1:
                return np.asarray(problem.throughput[place[unit[0]]])
            one, other = place[unit[0]], place[unit[1]]
            found = together.get((min(one, other), max(one, other)), nothing)
            return found if one < other else found[::-1]

        sizes = {job.id: job.num_gpus for job in snapshot.jobs}
        shares = self._packing.shares(sizes, problem.num_gpus, rates)
        waiting = {(job_id,): [0.0] * len(problem.num_gpus) for job_id in snapshot.ids}
        return waiting | {unit: row.tolist() for unit, row in shares.items()}


@dataclass
class AlloX(SharesPolicy):
    """Starts the jobs that are first on their GPUs in the best matching of the oldest share `alpha` of waiting jobs."""

    name: ClassVar[str] = "gavel-allox"
    traits: ClassVar[Traits] = replace(SharesPolicy.traits, needs={REMAINING_WORK})

    speeds: Literal["true", "measured", "fitted", "reference"] = "true"
    alpha: float = 1.0
    _kept: dict[str, int] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        """Raise `InputError` for an `alpha` that is not a share."""
        super().__post_init__()
        if not 0 <= self.alpha <= 1:
            raise input_error("alpha", f"it is {self.alpha}", "give a share of the waiting jobs from 0 to 1")

    def shares(self, snapshot: Snapshot) -> Mapping[Unit, Sequence[float]]:
        """Match the waiting jobs to the free GPUs."""
        problem = snapshot.problem
        free = problem.num_gpus.astype(np.int64)
        self._kept = {job_id: column for job_id, column in self._kept.items() if job_id in set(snapshot.ids)}
        for job in snapshot.jobs:
            if job.id in self._kept:
                free[self._kept[job.id]] -= job.num_gpus
        free = np.maximum(free, 0)
        waiting = np.array([place for place, job in enumerate(snapshot.jobs) if job.id not in self._kept], dtype=int)
        chosen = waiting[candidates(snapshot.age_s[waiting], int(free.sum()), self.alpha)]
        rates = problem.throughput[chosen]
        size = problem.scale_factor[chosen]
        work = snapshot.remaining[chosen] * size
        duration_s = np.divide(work[:, None], rates, out=np.full(rates.shape, np.inf), where=rates > 0)
        starts = allox(np.maximum(duration_s, 0.0), free)
        for place in np.argsort(duration_s.min(axis=1, initial=np.inf), kind="stable"):
            column = int(starts[place])
            if column >= 0 and size[place] <= free[column]:
                free[column] -= size[place]
                self._kept[snapshot.jobs[chosen[place]].id] = column
        columns = range(len(free))
        return {(job_id,): [float(self._kept.get(job_id) == column) for column in columns] for job_id in snapshot.ids}
