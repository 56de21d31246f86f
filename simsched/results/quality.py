"""Metrics of the losses of jobs, for experiments that record `losses`.

A loss is normalised: 1 before training, 0 at its end. A file next to the tables of a cell has the loss of each
application by progress; the table of allocations has the progress.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from simsched.arithmetic import dot
from simsched.errors import input_error
from simsched.files import write_text
from simsched.outlets import one_line
from simsched.results.metric import IF_THERE, LOWER, LossTable, Metric, Tables
from simsched.results.stored import RUN_AGAIN, Losses, read_json

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]

LOSSES_FILE = "losses.json"
#: The columns of the tables that are needed here.
QUALITY_COLUMNS = ("job_id", "application", "submit_time_s", "end_time_s")
LIFE_COLUMNS = ("job_id", "start_s", "end_s", "progress", "rate")

_POINTS = 200  # points of a job's life at which its loss is sampled for a mean


class Life(NamedTuple):
    """A job that reports losses: its time in the system, and its progress at the start and end of every interval."""

    submit_s: float
    end_s: float
    times_s: Floats
    progress: Floats
    table: LossTable

    def loss_at(self, times_s: Floats) -> Floats:
        """Return the normalised loss at given times."""
        progress = np.interp(times_s, self.times_s, self.progress)
        return np.asarray(np.interp(progress, self.table.progress, self.table.loss), dtype=np.float64)

    def time_to(self, share: float) -> float:
        """Return the seconds from submission until the loss has fallen by a share, or to the job's end if never."""
        wanted = float(np.interp(share, 1 - np.asarray(self.table.loss), self.table.progress))
        reached = np.flatnonzero(self.progress >= wanted)
        if not len(reached) or not reached[0]:
            return self.end_s - self.submit_s
        now, before = reached[0], reached[0] - 1
        part = (wanted - self.progress[before]) / (self.progress[now] - self.progress[before])
        return float(self.times_s[before] + part * (self.times_s[now] - self.times_s[before])) - self.submit_s


def write_losses(folder: Path, tables: Mapping[str, LossTable]) -> None:
    """Write the losses of a cell's applications, whole or not at all."""
    content = {name: table._asdict() for name, table in sorted(tables.items())}
    write_text(Path(folder) / LOSSES_FILE, json.dumps(content) + "\n")


def read_losses(folder: Path) -> Mapping[str, LossTable] | None:
    """Read the losses of a cell's applications, None if none were recorded; `InputError` if damaged."""
    path = Path(folder) / LOSSES_FILE
    if not path.is_file():
        return None
    content = read_json(path, dict[str, Losses])
    for name, one in content.items():
        rising = all(before < after for before, after in pairwise(one["progress"]))
        if not one["progress"] or len(one["progress"]) != len(one["loss"]) or not rising:
            raise input_error(f"{path}: {one_line(name)}", "is no curve of losses over rising progress", RUN_AGAIN)
    return {name: LossTable(tuple(one["progress"]), tuple(one["loss"])) for name, one in content.items()}


def lives(jobs: pd.DataFrame, allocations: pd.DataFrame, losses: Mapping[str, LossTable]) -> list[Life]:
    """Return the jobs whose applications report losses, in order of completion."""
    own = {str(job_id): part for job_id, part in allocations.groupby("job_id", sort=False)}
    found = []
    for job_id, application, submit_s, end_s in jobs[list(QUALITY_COLUMNS)].itertuples(index=False, name=None):
        if application in losses and job_id in own:
            part = own[job_id]
            start, end, progress, rate = (
                part[name].to_numpy(dtype=np.float64) for name in ("start_s", "end_s", "progress", "rate")
            )
            made = progress + rate * (end - start)
            times, reached = np.column_stack([start, end]).ravel(), np.column_stack([progress, made]).ravel()
            found.append(Life(float(submit_s), float(end_s), times, reached, losses[application]))
    return found


def mean_loss(jobs: Sequence[Life]) -> float | None:
    """Return the mean normalised loss over the jobs in the system and over time; None without jobs."""
    if not jobs:
        return None
    parts = (np.arange(_POINTS) + 0.5) / _POINTS
    seconds = np.array([job.end_s - job.submit_s for job in jobs])
    means = np.array([job.loss_at(job.submit_s + parts * (job.end_s - job.submit_s)).mean() for job in jobs])
    return float(dot(seconds, means) / seconds.sum())


def _of_lives(compute: Callable[[list[Life]], float | None]) -> Callable[[Tables], float | None]:
    def metric(tables: Tables) -> float | None:
        if tables.losses is None or tables.held is None:
            return None
        found = lives(tables.done.frame(QUALITY_COLUMNS), tables.held.frame(LIFE_COLUMNS), tables.losses)
        return compute(found) if found else None

    return metric


def _time_to(share: float) -> Callable[[list[Life]], float | None]:
    return lambda jobs: float(np.mean([job.time_to(share) for job in jobs]))


QUALITY_METRICS = (
    Metric("normalised_loss_mean", "mean normalised loss", "share", LOWER,
           "mean over the jobs in the system and over time of the loss, 1 before training and 0 at its end; only with "
           "`losses: true`, as the next two", _of_lives(mean_loss), shown=IF_THERE),
    Metric("time_to_90_mean_s", "mean time to 90 % of the loss reduction", "s", LOWER,
           "mean of the time from submission until the normalised loss is 0.1", _of_lives(_time_to(0.9)),
           shown=IF_THERE),
    Metric("time_to_95_mean_s", "mean time to 95 % of the loss reduction", "s", LOWER,
           "mean of the time from submission until the normalised loss is 0.05", _of_lives(_time_to(0.95))),
)  # fmt: skip
