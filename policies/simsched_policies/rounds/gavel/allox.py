"""AlloX (Le et al., EuroSys'20) as Gavel compares with it: the least mean completion time by a matching.

Jobs are matched to GPUs and queue positions; a job that has its GPU keeps it. AlloX only supports jobs of one GPU; here
the duration of a larger job is multiplied by its GPUs, and it starts where enough are free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np

from simsched.errors import input_error
from simsched.policy import REMAINING_WORK, Traits
from simsched.toolkit.programs import allox, candidates
from simsched.toolkit.rounds import SharesPolicy, Snapshot, Unit


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
