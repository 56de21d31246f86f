"""Waits and usage by group: a run's jobs by tenant, user, queue or size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from simsched.results.metric import jain_index

#: Classes of jobs by requested GPUs: name and largest number of GPUs (None: no bound).
SIZES: Sequence[tuple[str, int | None]] = (
    ("no GPU", 0), ("1 GPU", 1), ("2-4 GPUs", 4), ("5-8 GPUs", 8), ("9-32 GPUs", 32), ("over 32 GPUs", None),
)  # fmt: skip
#: The keys by which jobs can be grouped.
By = Literal["tenant", "user", "queue", "size"]
#: Lower bound on the run time in slow-downs, in seconds, so that tiny jobs do not dominate them.
LEAST_RUN_S = 10.0


@dataclass(frozen=True)
class GroupRow:
    """The jobs of one group: their number, waits in seconds, slow-down, GPU-hours and share of all GPU-time.

    `slowdown` is the mean over jobs of completion time over run time; run times below 10 s count as 10 s.
    """

    group: str
    jobs: int
    users: int
    mean_wait_s: float
    median_wait_s: float
    p90_wait_s: float
    slowdown: float
    gpu_hours: float
    share: float


@dataclass(frozen=True)
class Groups:
    """All groups, the one of all jobs last, and their fairness.

    `fairness` is Jain's index of the groups' mean slow-downs: 1 if all are equal, 1/n if one group suffers alone.
    """

    by: str
    rows: tuple[GroupRow, ...]
    fairness: float


def size_of(gpus: Sequence[float] | npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the class of `SIZES` of each number of GPUs."""
    bounds = [most for _, most in SIZES if most is not None]
    names = np.array([name for name, _ in SIZES], dtype=object)
    found: npt.NDArray[Any] = names[np.searchsorted(bounds, np.asarray(gpus, dtype=np.float64), side="left")]
    return found


def by_group(jobs: pd.DataFrame, by: By) -> Groups:
    """Group the rows of a table of jobs; tenants, users and queues by name, sizes from small to large.

    Result tables have a column `queue` if any job names one; otherwise join it on to group by it.
    """
    keys = pd.Series(size_of(jobs["num_gpus"].to_numpy()) if by == "size" else jobs[by].to_numpy(), index=jobs.index)
    names: list[str] = [name for name, _ in SIZES] if by == "size" else sorted(set(keys))
    total = float(jobs["attained_gpu_s"].sum())
    rows = [_row(name or "(none)", jobs[keys == name], total) for name in names if (keys == name).any()]
    fairness = jain_index([row.slowdown for row in rows])
    return Groups(by, (*rows, _row("all", jobs, total)), fairness)


def _row(name: str, jobs: pd.DataFrame, total_gpu_s: float) -> GroupRow:
    waits = jobs["queueing_s"].to_numpy("float64")
    gpu_s = float(jobs["attained_gpu_s"].sum())
    slowdowns = jobs["jct_s"].to_numpy("float64") / np.maximum(jobs["held_s"].to_numpy("float64"), LEAST_RUN_S)
    return GroupRow(
        name,
        len(jobs),
        int(jobs["user"].nunique()),
        float(waits.mean()),
        float(np.median(waits)),
        float(np.percentile(waits, 90)),
        float(np.maximum(slowdowns, 1.0).mean()),
        gpu_s / 3600,
        gpu_s / total_gpu_s if total_gpu_s else 0.0,
    )


def changes(before: Groups, after: Groups) -> list[tuple[str, GroupRow, GroupRow]]:
    """Pair the groups of two runs of one log; groups in only one of them are left out."""
    found: Mapping[str, GroupRow] = {row.group: row for row in after.rows}
    return [(row.group, row, found[row.group]) for row in before.rows if row.group in found]
