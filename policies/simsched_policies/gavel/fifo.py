"""First in, first out over GPU types, as Gavel compares with it (Narayanan et al., OSDI'20, section 7.1).

The agnostic form keeps a job on its type, the first of the cluster that had room; Gavel means it to be drawn at random,
but its simulator takes the last of the alphabet (V100 while one is free). The aware form gives each job in turn the
fastest type that has room, anew at each computation, so that jobs may move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from simsched.policy.rounds import SharesPolicy, Snapshot, Unit


@dataclass
class GavelFifo(SharesPolicy):
    """Serves jobs in the order of arrival up to the first that does not fit."""

    name: ClassVar[str] = "gavel-fifo"
    idle_without_share: ClassVar[bool] = True

    speeds: Literal["true", "measured", "fitted", "none"] = "none"
    _kept: dict[str, int] = field(default_factory=dict, init=False, repr=False)

    def shares(self, snapshot: Snapshot) -> Mapping[Unit, Sequence[float]]:
        """Give the first jobs all the time of one type."""
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
        return {(job_id,): [float(kept.get(job_id) == column) for column in columns] for job_id in snapshot.ids}
