"""First in, first out over GPU types, as Gavel compares with it (Narayanan et al., OSDI'20, section 7.1).

The agnostic form keeps a job on its type, the first of the cluster that had room; Gavel means it to be drawn at random,
but its simulator takes the last of the alphabet (V100 while one is free). The aware form gives each job in turn the
fastest type with room, at each computation: jobs may move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from simsched.toolkit.programs import Floats, ShareProblem
from simsched.toolkit.rounds import PackedShares, Snapshot, Unit


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
