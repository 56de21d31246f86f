"""What the tables of cells say besides metrics: groups of jobs, pairs that shared a GPU, errors of predictions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from simsched.results.metric import jain_index
from simsched.results.reader import Cell
from simsched.results.sheets import read_sheet
from simsched.results.summary import type_of_placements

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


PAIR_COLUMNS = ("gpu_type", "application", "batch_size", "other_application", "other_batch_size", "speed", "sum")
_JOBS = ("job_id", "application", "num_gpus", "batch_size")
_HELD = ("job_id", "start_s", "end_s", "gpus", "placement", "restarting", "neighbours", "relative_speed")


def pair_speeds(cells: Iterable[Cell]) -> pd.DataFrame:
    """Gather the pairs of single-GPU jobs that shared a GPU, in both orders, by application, batch and GPU type.

    `speed` is that of the first job of the pair, relative to running alone, averaged over the seconds in which they
    shared a GPU; `sum` is that of both. Sorted by type and pair.
    """
    parts = [_shared(cell) for cell in cells]
    seen = pd.concat([part for part in parts if len(part)] or [pd.DataFrame(columns=[*PAIR_COLUMNS[:5], "worth", "s"])])
    sums = seen.groupby(list(PAIR_COLUMNS[:5]), sort=True)[["worth", "s"]].sum().reset_index()
    sums["speed"] = sums["worth"] / sums["s"]
    kinds = [*PAIR_COLUMNS[:5]]
    around = [kinds[0], kinds[3], kinds[4], kinds[1], kinds[2]]
    other = sums[[*kinds, "speed"]].rename(columns=dict(zip(kinds, around, strict=True)))
    both = sums.merge(other, on=kinds, suffixes=("", "_of_other"))
    both["sum"] = both["speed"] + both["speed_of_other"]
    return both[list(PAIR_COLUMNS)]


def _shared(cell: Cell) -> pd.DataFrame:
    """Return the intervals of a cell in which a job of one GPU shared it with one other."""
    held = cell.table("allocations", _HELD)
    held = held[(held["gpus"] == 1) & ~held["restarting"] & (held["neighbours"] != "")]
    held = held[~held["neighbours"].str.contains(" ", regex=False)]
    jobs = cell.table("jobs", _JOBS).set_index("job_id")
    one, other = jobs.reindex(held["job_id"]), jobs.reindex(held["neighbours"])
    seconds = (held["end_s"] - held["start_s"]).to_numpy(dtype="float64")
    found = pd.DataFrame(
        {
            "gpu_type": type_of_placements(held["placement"], cell.manifest["cluster"]).to_numpy(),
            "application": one["application"].to_numpy(),
            "batch_size": one["batch_size"].to_numpy(),
            "other_application": other["application"].to_numpy(),
            "other_batch_size": other["batch_size"].to_numpy(),
            "worth": held["relative_speed"].to_numpy() * seconds,
            "s": seconds,
        }
    )
    return found[(other["num_gpus"] == 1).to_numpy()]


PREDICTIONS_FILE = "predictions.csv"
PREDICTION_COLUMNS = ("time_s", "job_id", "progress", "end", "gpus", "step_s")
_LIFE = ("job_id", "start_s", "end_s", "progress", "rate", "gpus", "batch_size", "throughput")


def has_predictions(cell: Cell) -> bool:
    """Return whether a cell holds predictions."""
    return (cell.folder / PREDICTIONS_FILE).is_file()


def prediction_errors(cell: Cell) -> pd.DataFrame:
    """Return the errors of a cell's predictions, in order.

    Columns: `job_id`, `application`, `done` (share of the training done at the time), `end_error` (of the progress at
    completion), `gpus` (given), `step_error` (of the seconds of a step on these; NaN if the job never ran on them).
    Errors are relative to the truth. Raises `InputError` for a damaged file.
    """
    told = read_sheet(cell.folder / PREDICTIONS_FILE, PREDICTION_COLUMNS)
    held = cell.table("allocations", _LIFE)
    made = held["progress"] + held["rate"] * (held["end_s"] - held["start_s"])
    whole = made.groupby(held["job_id"]).max()
    running = held[held["throughput"] > 0]
    steps = (running["batch_size"] / running["throughput"]).groupby([running["job_id"], running["gpus"]]).mean()
    jobs = cell.table("jobs", ["job_id", "application"]).set_index("job_id")["application"]
    told = told[told["job_id"].isin(jobs.index)].reset_index(drop=True)
    true_end = told["job_id"].map(whole)
    true_step = steps.reindex(pd.MultiIndex.from_frame(told[["job_id", "gpus"]])).to_numpy()
    return pd.DataFrame(
        {
            "job_id": told["job_id"],
            "application": told["job_id"].map(jobs),
            "done": told["progress"] / true_end,
            "end_error": told["end"] / true_end - 1,
            "gpus": told["gpus"],
            "step_error": np.where(told["step_s"] > 0, told["step_s"] / true_step - 1, np.nan),
        }
    )
