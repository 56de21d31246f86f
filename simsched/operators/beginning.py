"""Extends a log at both ends: jobs that ran or waited when it began, and jobs that still did when it ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from simsched.operators.log_input import Groups, OperatorLog, fitted_to, held_nodes, held_over_time
from simsched.workload import make_trace
from simsched.workload.readers import ClusterLog, joined

Numbers = npt.NDArray[np.float64]

#: The fewest jobs from which to estimate how long similar ones run.
_ENOUGH = 30
#: The cluster counts as full once jobs hold this fraction of the median number of GPUs held.
_FULL = 0.9
_SEED = 26
_ROUND_S = 3600


@dataclass(frozen=True)
class RunTimes:
    """Run times of jobs as fractions of their limits: by user and limit, by limit, and of all jobs."""

    by_user: dict[tuple[str, float], Numbers]
    by_limit: dict[float, Numbers]
    every: Numbers
    median_s: float

    @classmethod
    def of(cls, table: pd.DataFrame) -> RunTimes:
        """Collect them from the finished jobs of a log's table."""
        limited = table[table["time_limit_s"] > 0]
        share = (limited["duration_s"] / limited["time_limit_s"]).clip(upper=1.0)
        by_user = {
            (str(user), float(str(limit))): np.sort(part.to_numpy("float64"))
            for (user, limit), part in share.groupby([limited["user"], limited["time_limit_s"]])
            if len(part) >= _ENOUGH
        }
        by_limit = {
            float(str(limit)): np.sort(part.to_numpy("float64"))
            for limit, part in share.groupby(limited["time_limit_s"])
            if len(part) >= _ENOUGH
        }
        median_s = float(table["duration_s"].median()) if len(table) else 3600.0
        return cls(by_user, by_limit, np.sort(share.to_numpy("float64")), median_s)

    def draw(self, jobs: pd.DataFrame, elapsed_s: Numbers, rng: np.random.Generator) -> Numbers:
        """Draw a duration for each job that has run for `elapsed_s` and continues."""
        drawn = np.empty(len(jobs))
        dice = rng.random(len(jobs))
        rows = zip(jobs["user"], jobs["time_limit_s"].to_numpy("float64"), strict=True)
        for i, (user, limit) in enumerate(rows):
            shares = self.by_user.get((user, limit), self.by_limit.get(limit, self.every))
            if limit <= 0 or not len(shares):
                drawn[i] = elapsed_s[i] + self.median_s
                continue
            first = np.searchsorted(shares, elapsed_s[i] / limit, side="right")
            last = shares[int(first + dice[i] * (len(shares) - first))] if first < len(shares) else 1.0
            drawn[i] = max(last * limit, elapsed_s[i] + 1)
        return drawn


@dataclass(frozen=True)
class Beginning:
    """A log prepared for replay: `log.trace` begins with the jobs that ran or waited at `from_s` of the log's clock.

    `zero_s` is the trace's second 0 on that clock, `full_s` the time when the cluster was first full, and `last_s` the
    last submission; jobs between the last two are judged. `running` and `waiting` count the jobs at the start, and
    `open` those that still ran or waited at the end, whose durations are drawn.
    """

    log: OperatorLog
    zero_s: int
    full_s: int
    last_s: int
    running: int
    waiting: int
    open: int


def with_state(
    found: OperatorLog, log: ClusterLog, groups: Groups, *, cancelled: bool = False, seed: int = _SEED
) -> Beginning:
    """Place the jobs that ran when a log began, and those that had not ended, where they were.

    A log is complete from the first end that it records. Jobs that ran before start when they did, and waiting jobs
    come at that time; the scheduler decides which of them start then. With `cancelled`, jobs that their users cancelled
    before they started wait too, until then.
    """
    table, last_s, from_s = log.every, log.last_s, int(log.table["end_s"].min())
    gone = log.withdrawn[log.withdrawn["end_s"] > from_s] if cancelled else log.withdrawn.iloc[:0]
    lasts_s = gone["time_limit_s"].where(gone["time_limit_s"] > 0, log.table["duration_s"].median())
    table = joined(table, gone.assign(start_s=gone["end_s"], duration_s=lasts_s))
    open_ = (table["end_s"] < 0).to_numpy("bool")
    if open_.any():
        still = table[open_]
        elapsed = np.where(still["start_s"] >= 0, last_s - still["start_s"], 0).astype("float64")
        lasts = RunTimes.of(log.table).draw(still, elapsed, np.random.default_rng(seed))
        table = table.astype({"duration_s": "float64"})
        table.loc[open_, "duration_s"] = lasts
        table["start_s"] = table["start_s"].where(table["start_s"] >= 0, last_s)
    ran = (table["start_s"] < from_s).to_numpy("bool")
    waited = ~ran & (table["eligible_s"] < from_s).to_numpy("bool")
    come = np.where(ran, table["start_s"], np.where(waited, from_s, table["eligible_s"]))
    # Schedulers scan their queues at round times of the clock, so the replay begins at such a time.
    longer = np.where((come == come.min()) & ran, come % _ROUND_S, 0)
    come = come - longer
    placed = table.assign(
        eligible_s=come,
        duration_s=table["duration_s"] + longer,
        time_limit_s=table["time_limit_s"] + np.where(table["time_limit_s"] > 0, longer, 0),
        waited_s=np.where(waited, from_s - table["eligible_s"], 0),
        held_nodes=held_nodes(found, table, ran),
    )
    zero_s = int(come.min())
    whole = trace_of(found, log, placed, groups)
    there = gone[gone["job_id"].isin(whole.trace.table["job_id"])]
    ends_s = (there["end_s"] - zero_s).astype("int64")
    whole = replace(whole, withdrawn=dict(zip(there["job_id"].astype(str), ends_s.tolist(), strict=True)))
    full_s = max(from_s, _full_s(table, from_s))
    counts = (int(ran.sum()), int(waited.sum()), int(open_.sum()))
    return Beginning(whole, zero_s, full_s, int(table["eligible_s"].max()), *counts)


def trace_of(found: OperatorLog, log: ClusterLog, table: pd.DataFrame, groups: Groups) -> OperatorLog:
    """Return the input with the trace of another table of jobs, fitted to the cluster."""
    none = log.still.iloc[:0]
    jobs = replace(log, table=table.reset_index(drop=True), still=none, withdrawn=none).jobs()
    trace = make_trace(log.name, log.source, jobs.columns, origin=jobs.origin)
    return fitted_to(replace(found, trace=trace), groups)[0]


def _full_s(table: pd.DataFrame, from_s: int) -> int:
    """Return when the jobs first held most of their usual number of GPUs."""
    times, held = held_over_time(table)
    usual = np.interp(np.linspace(from_s, times[np.isfinite(times)].max(), 512), times, held)
    return int(times[(held >= _FULL * np.median(usual)).argmax()])


def counted(said: Beginning) -> Sequence[str]:
    """Describe how a replay handles both ends of the log."""
    lines = []
    if said.running or said.waiting:
        lines.append(
            f"{said.running} jobs that ran and {said.waiting} that waited when the log began are where they were"
        )
    if said.open:
        lines.append(
            f"{said.open} jobs that still ran or waited when it ended are replayed too, and run as long as others with "
            "their limit"
        )
    return lines
