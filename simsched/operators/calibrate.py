"""Replays a log under its original conditions and passes the replay to the gate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from simsched.errors import input_error
from simsched.operators.beginning import Beginning, counted, with_state
from simsched.operators.gate import Verdict, judge_replay
from simsched.operators.readings import with_readings
from simsched.operators.replays import Progress, ReplayPlan, counted_from, run_replay
from simsched.results import Cell
from simsched.results.analyses import size_of
from simsched.workload.readers import ClusterLog

#: How many of the jobs whose replay differs most are told.
_ODD = 3


@dataclass(frozen=True)
class Calibration:
    """The gate's verdict, and the jobs of the whole period judged.

    `jobs` has `job_id, size, queue, submit_s, recorded_s, simulated_s`, with submissions in seconds since 1970; `cell`
    is the replay, `plan` its plan, `said` describes how both ends of the log were handled, and `odd` the
    jobs whose replay differs most, if the gate is closed. The verdict covers the
    jobs from `judged_s`, in seconds since 1970, to the last submission.
    """

    verdict: Verdict
    jobs: pd.DataFrame
    cell: Cell
    plan: ReplayPlan
    begin: Beginning
    judged_s: float
    said: tuple[str, ...]
    odd: tuple[str, ...] = ()


def calibrate(plan: ReplayPlan, *, skip_h: float = 0.0, progress: Progress | None = None) -> Calibration:
    """Replay a log unchanged and judge the replay by its waits, from when the cluster was full to the last submission.

    If replays of windows of the first half of that period are off, the settings that the policy's documentation leaves
    open are fitted to them. `skip_h` skips more hours at the start of the log. Raises `InputError` if the log records
    no waits, or no job is left to judge.
    """
    if plan.log.log is None and plan.unrecorded:
        return _unjudged(plan, progress)
    log = plan.recorded
    if not log.waits_s.any():
        remedy = "give a log with the times of submission; Alibaba PAI has none"
        raise input_error(log.name, "records no waits: every job starts when it is submitted", remedy)
    begin = with_state(plan.log, log, plan.groups)
    from_s = max(begin.full_s, _first_s(log) + skip_h * 3600)
    middle_s = (from_s + begin.last_s) / 2
    plan, fitted = with_readings(plan, log, from_s, middle_s, progress=progress)
    if plan.cancelled:
        begin = with_state(plan.log, log, plan.groups, cancelled=True)
    plan = counted_from(plan, begin.log)  # releases the trace that was read
    cell = run_replay(plan, "calibrate", progress=progress).cells[0]
    jobs = _both(log, cell, begin)
    judged = jobs[jobs["submit_s"].between(from_s, begin.last_s)].reset_index(drop=True)
    if judged.empty:
        raise input_error(
            log.name, "no job came after the cluster was full", "skip less" if skip_h else "give a longer log"
        )
    verdict = judge_replay(judged, log, plan.groups, plan.policy)
    said = [*counted(begin), *([fitted.said(verdict.rows[0].waited_skill)] if fitted.tried else [])]
    odd = () if verdict.is_open else _odd(judged, log, cell, begin)
    return Calibration(verdict, judged, cell, plan, begin, from_s, tuple(said), odd)


def _first_s(log: ClusterLog) -> float:
    """Return when the first job came that started within the log."""
    return float(log.every.loc[log.every["start_s"] >= 0, "eligible_s"].min())


def _odd(judged: pd.DataFrame, log: ClusterLog, cell: Cell, begin: Beginning) -> tuple[str, ...]:
    """Tell both histories of the jobs whose replay differs most."""
    off_s = (judged["simulated_s"] - judged["recorded_s"]).abs()
    recorded, replayed = log.every.set_index(log.every["job_id"].astype(str)), cell.jobs.set_index("job_id")
    found = []
    for name in judged["job_id"][off_s.nlargest(_ODD).index]:
        one, other = recorded.loc[name], replayed.loc[name]
        asked = f"{one['gpus']:g} GPUs" + (f" of {one['queue']}" if one["queue"] else "")
        on = f" on {one['nodes']}" if one["nodes"] else ""
        found.append(
            f"job {name} ({asked}), submitted {_clock(one['submit_s'])}: on the cluster it waited "
            f"{(one['start_s'] - one['eligible_s']) / 3600:.2f} h and ran from {_clock(one['start_s'])} to "
            f"{_clock(one['end_s'])}{on}; in the replay it waited {other['queueing_s'] / 3600:.2f} h and ran from "
            f"{_clock(other['start_time_s'] + begin.zero_s)} to {_clock(other['end_time_s'] + begin.zero_s)}"
        )
    return tuple(found)


def _clock(second: float) -> str:
    return "the log's end" if second < 0 else f"{pd.Timestamp(int(second), unit='s'):%Y-%m-%d %H:%M}"


def _unjudged(plan: ReplayPlan, progress: Progress | None) -> Calibration:
    """Replay jobs without recorded waits; all of them count, without a verdict."""
    cell = run_replay(plan, "before", progress=progress).cells[0]
    jobs, trace = cell.jobs, plan.log.trace
    queues = dict(zip(trace.column("job_id").tolist(), trace.column("queue").tolist(), strict=True))
    frame = pd.DataFrame(
        {
            "job_id": jobs["job_id"].astype(str),
            "size": size_of(jobs["num_gpus"].to_numpy("float64")),
            "queue": jobs["job_id"].map(queues).fillna(""),
            "submit_s": jobs["submit_time_s"].astype("float64"),
            "recorded_s": np.nan,
            "simulated_s": jobs["queueing_s"].astype("float64"),
        }
    )
    nothing = "no waits are recorded, so it is unknown whether the replay matches the cluster"
    verdict = Verdict(plan.policy, (), (nothing,), (), 0.0)
    last_s = int(jobs["submit_time_s"].max())
    begin = Beginning(plan.log, 0, 0, last_s, 0, 0, 0)
    return Calibration(verdict, frame, cell, plan, begin, 0.0, ())


def _both(log: ClusterLog, cell: Cell, begin: Beginning) -> pd.DataFrame:
    """Return recorded and simulated waits by job, without those that still waited when the log ended."""
    table = log.every[log.every["start_s"] >= 0]
    recorded = pd.DataFrame(
        {
            "job_id": table["job_id"].astype(str),
            "size": size_of(np.ceil(table["gpus"].to_numpy("float64"))),
            "queue": table["queue"].where(table["queue"] != "", "(none)"),
            "submit_s": table["eligible_s"],
            "recorded_s": (table["start_s"] - table["eligible_s"]).astype("float64"),
        }
    )
    both = recorded.merge(cell.table("jobs", ["job_id", "start_time_s"]), on="job_id")
    both["simulated_s"] = (both.pop("start_time_s") + begin.zero_s - both["submit_s"]).clip(lower=0).astype("float64")
    return both.sort_values("submit_s", kind="stable", ignore_index=True)
