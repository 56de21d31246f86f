"""The history of a job: when it waited, and for what, from the tables of its cell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from simsched.errors import input_error, nearest
from simsched.results.reader import Cell
from simsched.results.stays import HELD_COLUMNS, node_sizes, placements
from simsched.words import counted, seen_of_room

_JOB_COLUMNS = ("job_id", "num_gpus", "submit_time_s", "end_time_s", "restarts", "status")


@dataclass(frozen=True)
class Passage:
    """A period of a job's life, from `time_s` to `until_s`: what happens to it, and why or where.

    `rank` and `score` are its position in the policy's order when it starts to wait, if reasons are kept (else 0 and
    "").
    """

    time_s: float
    until_s: float
    event: str
    why: str = ""
    rank: int = 0
    score: str = ""


def story(cell: Cell, job_id: str) -> list[Passage]:
    """Return a finished job's history: where it runs and, while it waits, what prevents its start at the decisions.

    With `engine.reasons` the reasons are the policy's. Otherwise the tables only show what was free after a decision:
    if there was room for a job, the reason is only that the policy let it wait. Raises `InputError` for a job that the
    cell does not have.
    """
    jobs = cell.table("jobs", _JOB_COLUMNS)
    own = jobs[jobs["job_id"] == job_id]
    if own.empty:
        raise input_error(str(cell.folder), f"no job '{job_id}' has finished", nearest(job_id, jobs["job_id"].tolist()))
    job = own.iloc[0]
    held = cell.table("allocations", HELD_COLUMNS)
    runs = placements(held[held["job_id"] == job_id], {job_id: int(job["restarts"])})
    others = _Others(cell, held[held["job_id"] != job_id], jobs, job)
    told = [
        Passage(
            job["submit_time_s"], job["submit_time_s"], "submitted", f"asks for {counted(int(job['num_gpus']), 'GPU')}"
        )
    ]
    free_from = float(job["submit_time_s"])
    for number, (_, placement, start_s, _, end_s, _) in enumerate(runs):
        told += others.waiting(free_from, start_s)
        told.append(Passage(start_s, end_s, "starts" if not number else "starts again", f"on {placement} (node:GPUs)"))
        free_from = end_s
    told += others.waiting(free_from, float(job["end_time_s"]))
    end_s = float(job["end_time_s"])
    return [*told, Passage(end_s, end_s, "ends", f"as {job['status']}" if job["status"] else "")]


class _Reason(NamedTuple):
    """Why a job waits, in a word and in numbers, and its position."""

    why: str
    detail: str
    rank: int = 0
    score: str = ""


class _Others:
    """The cluster from a job's point of view: nodes, their holders, and since when the other jobs are there."""

    def __init__(self, cell: Cell, held: pd.DataFrame, jobs: pd.DataFrame, job: pd.Series) -> None:
        """Read the decisions, the outages and the reasons of a job of a cell."""
        self._gpus, submit_s = int(job["num_gpus"]), float(job["submit_time_s"])
        said = cell.table("reasons", ["job_id", "time_s", "why", "detail", "rank", "score"])
        said = said[said["job_id"] == job["job_id"]]
        #: The last reason of the job at each decision, if reasons are kept.
        self._said = {time: _Reason(*rest) for _, time, *rest in said.itertuples(index=False, name=None)}
        self._decisions = np.unique(cell.table("rounds", ["time_s"])["time_s"].to_numpy(dtype=np.float64))
        self._sizes = np.array(node_sizes(cell.manifest.get("cluster"), [held]), dtype=np.int64)
        groups: Any = cell.manifest.get("cluster")
        self._types = np.array([group["gpu_type"] for group in groups for _ in range(int(group["nodes"]))])
        submitted = dict(zip(jobs["job_id"], jobs["submit_time_s"], strict=True))
        rows = [
            (int(node), int(count), start, end, submitted.get(name, -1.0) > submit_s)
            for name, start, end, placement, _ in held.itertuples(index=False, name=None)
            for node, _, count in (pair.partition(":") for pair in placement.split())
        ]
        self._rows = np.array(rows, dtype=np.float64).reshape(len(rows), 5)
        self._outages = cell.table("outages", ["node", "start_s", "end_s"]).to_numpy(dtype=np.float64)

    def waiting(self, begin_s: float, end_s: float) -> Iterator[Passage]:
        """Yield why a job waits from one second to another; consecutive decisions with the same reason are merged."""
        times = self._decisions[(self._decisions >= begin_s) & (self._decisions < end_s)].tolist()
        first_s = times[0] if times else end_s
        if first_s > begin_s:
            yield Passage(begin_s, first_s, "waits", "no decision was due")
        near = self._rows[(self._rows[:, 3] > begin_s) & (self._rows[:, 2] < end_s)]
        reasons = [(time, self._said.get(time) or self._reason(near, time)) for time in times]
        passages = [next(group) for _, group in groupby(reasons, key=lambda one: one[1].why)]
        for (time, found), (until, _) in pairwise([*passages, (end_s, None)]):
            if found is not None:
                why = f"{found.why}: {found.detail}" if found.detail else found.why
                yield Passage(time, until, "waits", why, found.rank, found.score)

    def _reason(self, near: np.ndarray[Any, Any], time_s: float) -> _Reason:
        """Return what prevents the start after the decision at a second, in a word and in numbers."""
        there = near[(near[:, 2] <= time_s) & (near[:, 3] > time_s)]
        used = np.bincount(there[:, 0].astype(np.int64), there[:, 1], minlength=len(self._sizes))
        free = np.maximum(self._sizes - used.astype(np.int64), 0)
        down = self._outages[(self._outages[:, 1] <= time_s) & (self._outages[:, 2] > time_s)]
        free[down[:, 0].astype(np.int64)] = 0
        most = max(int(free[self._types == kind].sum()) for kind in np.unique(self._types))
        later = f"{counted(int(there[there[:, 4] > 0, 1].sum()), 'GPU')} held by jobs that came later"
        why, told = seen_of_room(self._gpus, most, int(free.max()), int(self._sizes.max()))
        return _Reason(why, f"{told}, {later}")


def at(told: Sequence[Passage], time_s: float) -> Passage:
    """Return the period of a history that contains a second; raises `InputError` for one before the job."""
    before = [passage for passage in told if passage.time_s <= time_s]
    if not before:
        raise input_error("--at", f"{time_s:g} s is before the job's submission", f"from {told[0].time_s:g} s on")
    return before[-1]
