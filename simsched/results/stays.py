"""Which job held which GPUs when, how many jobs waited, and the history of one job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from simsched.errors import input_error, nearest
from simsched.results.metric import Floats, integrals
from simsched.results.reader import Cell
from simsched.words import counted, seen_of_room

_HOUR_S = 3600
#: The kind of outage of a node that the policy released; all other kinds are failures.
OFF = "off"
#: The columns of the tables that are needed here.
HELD_COLUMNS = ("job_id", "start_s", "end_s", "placement", "restarting")
OCCUPANCY_COLUMNS = ("job_id", "application", "tenant", "status", "num_gpus", "submit_time_s", "end_time_s", "restarts")


@dataclass(frozen=True)
class Stay:
    """One job on adjacent GPUs of one node while its placement lasts; `first_gpu` counts from 0.

    It makes no progress before `ready_s`, while it starts or restarts; `ended` means that it completed here.
    """

    job_id: str
    node: int
    first_gpu: int
    gpus: int
    start_s: float
    ready_s: float
    end_s: float
    number: int
    ended: bool


def stays_of(allocations: pd.DataFrame, jobs: pd.DataFrame, nodes: int | None = None) -> list[Stay]:
    """Assign the intervals of a cell to the GPUs of its nodes (the first `nodes`, by default all), in order of start.

    The tables record how many GPUs a job holds on a node, not which: it gets the lowest free ones, adjacent if
    possible. Jobs that share GPUs get places beyond those of the node. `number` counts the placements of a job from 1:
    a stay with a higher one follows a restart; if `jobs` has the number of `restarts`, pauses within one placement,
    such as checkpoints, are distinguished from restarts.
    """
    restarts = dict(zip(jobs["job_id"], jobs["restarts"], strict=True)) if "restarts" in jobs else None
    ends = dict(zip(jobs["job_id"], jobs["end_time_s"], strict=True))
    free: dict[int, list[float]] = {}
    found: list[Stay] = []
    for job_id, placement, start, ready, end, number in placements(allocations, restarts):
        for pair in placement.split():
            node, gpus = (int(part) for part in pair.split(":"))
            if nodes is not None and node >= nodes:
                continue
            for first, count in _places(free.setdefault(node, []), gpus, start, end):
                found.append(Stay(job_id, node, first, count, start, ready, end, number, ends.get(job_id) == end))
    return found


#: Job, start, end, placement, and whether it makes no progress: a row of the intervals.
_Held = tuple[str, float, float, str, bool]


def placements(
    allocations: pd.DataFrame, restarts: Mapping[str, int] | None
) -> list[tuple[str, str, float, float, float, int]]:
    """Join the intervals of a job with one placement; return job, placement, start, ready, end and number by start."""
    table = allocations.sort_values(["job_id", "start_s"], kind="stable")[list(HELD_COLUMNS)]
    joined: list[tuple[str, str, float, float, float, int]] = []
    for job_id, rows in groupby(table.itertuples(index=False, name=None), key=itemgetter(0)):
        own = list(rows)
        begins = _begins(own, None if restarts is None else restarts.get(job_id))
        for number, (first, beyond) in enumerate(pairwise([*begins, len(own)]), start=1):
            start, end, placement = own[first][1], own[beyond - 1][2], own[first][3]
            ready = next((begin for _, begin, _, _, pauses in own[first:beyond] if not pauses), end)
            joined.append((job_id, placement, start, ready, end, number))
    return sorted(joined, key=lambda one: (one[2], one[0]))


def _begins(own: Sequence[_Held], restarts: int | None) -> list[int]:
    """Find the starts of the placements of one job, one more than `restarts` (None: unknown).

    One starts with other GPUs and after a gap. A pause on the same GPUs may be a restart or, for instance, a
    checkpoint: as many as are missing count as restarts, those that last about as long as the job's first start.
    """
    found, pauses = [0], []
    for place, (before, row) in enumerate(pairwise(own), start=1):
        if row[3] != before[3] or row[1] != before[2]:
            found.append(place)
        elif row[4] and not before[4]:
            pauses.append(place)
    if restarts is not None:
        first_s = own[0][2] - own[0][1] if own[0][4] else 0.0
        pauses.sort(key=lambda place: (abs(own[place][2] - own[place][1] - first_s), place))
        pauses = pauses[: max(restarts + 1 - len(found), 0)]
    return sorted([*found, *pauses])


def _places(busy: list[float], gpus: int, start: float, end: float) -> list[tuple[int, int]]:
    """Take the lowest free places of a node; `busy` has the time when each is free again. Returns (first, count)."""
    open_places = [place for place, until in enumerate(busy) if until <= start]
    gap = next((run for run in runs_of(open_places) if len(run) >= gpus), None)
    chosen = gap[:gpus] if gap is not None else open_places[:gpus]
    while len(chosen) < gpus:
        chosen.append(len(busy))
        busy.append(end)
    for place in chosen:
        busy[place] = end
    return [(run[0], len(run)) for run in runs_of(chosen)]


def runs_of(places: list[int]) -> list[list[int]]:
    """Split ascending numbers into runs of neighbours."""
    runs: list[list[int]] = []
    for place in places:
        if runs and runs[-1][-1] == place - 1:
            runs[-1].append(place)
        else:
            runs.append([place])
    return runs


def node_sizes(cluster: object, intervals: Iterable[pd.DataFrame]) -> list[int]:
    """Return the GPUs of each node by a manifest's `cluster`, or the most that `intervals` show if it does not say."""
    if isinstance(cluster, list):
        return [int(group["gpus_per_node"]) for group in cluster for _ in range(int(group["nodes"]))]
    sizes: dict[int, int] = {}
    for placement in pd.concat([table["placement"] for table in intervals]).unique():
        for pair in str(placement).split():
            node, gpus = (int(part) for part in pair.split(":"))
            sizes[node] = max(sizes.get(node, 1), gpus)
    return [sizes.get(node, 1) for node in range(max(sizes, default=-1) + 1)]


def rows_of_nodes(nodes: Sequence[int], stays: Iterable[Stay]) -> list[int]:
    """Return the rows in which each node is drawn: its GPUs, or more if jobs share them."""
    rows = list(nodes)
    for stay in stays:
        rows[stay.node] = max(rows[stay.node], stay.first_gpu + stay.gpus)
    return rows


def outages_told(outages: pd.DataFrame) -> str:
    """Describe how often nodes were out of use, why, and for how many node-hours in total."""
    hours = (outages["end_s"] - outages["start_s"]).groupby(outages["kind"]).agg(["size", "sum"])
    return ", ".join(
        f"{kind} {counted(int(times), 'time')} ({seconds / _HOUR_S:,.1f} node-hours)"
        for kind, times, seconds in hours.itertuples()
    )


def waiting_by(jobs: pd.DataFrame, allocations: pd.DataFrame, groups: Mapping[str, str], edges: Floats) -> pd.DataFrame:
    """Return the mean number of waiting jobs in each bin, one column per group.

    A job waits while it is in the system and holds no GPU, before its first start and between runs. `groups` maps job
    ids to the names of the columns; `edges` are those of the bins, in seconds.
    """
    columns: dict[str, Floats] = {}
    names = jobs["job_id"].map(groups)
    held = allocations["job_id"].map(groups)
    for name in dict.fromkeys(groups.values()):
        own, there = jobs[names == name], allocations[held == name]
        present = _integral(own, "submit_time_s", "end_time_s", edges)
        running = _integral(there, "start_s", "end_s", edges)
        columns[name] = np.maximum(present - running, 0.0) / np.diff(edges)
    return pd.DataFrame(columns)


def _integral(table: pd.DataFrame, start: str, end: str, edges: Floats) -> Floats:
    first, last = (table[name].to_numpy(dtype=np.float64) for name in (start, end))
    return integrals(first, last, np.ones(len(first)), edges)


def colour_groups(jobs: pd.DataFrame, most: int = 7) -> tuple[str, dict[str, str]]:
    """Return how jobs are grouped, and the group of each: by application, by tenant, or individually.

    The smallest of more than `most` groups are called `others`.
    """
    for column in ("application", "tenant"):
        if jobs[column].nunique() > 1:
            counts = jobs[column].value_counts(sort=True)
            ranked = sorted(counts.index, key=lambda name: (-int(counts[name]), str(name)))
            kept = set(ranked if len(ranked) <= most else ranked[: most - 1])
            word = "tenant " if column == "tenant" else ""  # many names of tenants are hashes
            shown = {name: f"{word}{name}" if str(name) else "none" for name in kept}
            pairs = zip(jobs["job_id"], jobs[column], strict=True)
            return column, {job_id: shown.get(name, "others") for job_id, name in pairs}
    return "job", {job_id: f"{index % most}" for index, job_id in enumerate(jobs["job_id"])}


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
