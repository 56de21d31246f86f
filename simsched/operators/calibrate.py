"""Replays a log under its original conditions and passes the replay to the gate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from simsched.errors import input_error
from simsched.experiment.running import Listener
from simsched.operators.beginning import Beginning, counted, with_state
from simsched.operators.gate import Verdict, judge_replay
from simsched.operators.readings import needs_reading, said_of, with_readings
from simsched.operators.replays import ReplayPlan, counted_from, run_replay
from simsched.results import Cell
from simsched.results.analyses import size_of
from simsched.workload.readers import ClusterLog


@dataclass(frozen=True)
class Calibration:
    """The gate's verdict, and the jobs of the whole period judged.

    `jobs` has `job_id, size, queue, submit_s, recorded_s, simulated_s`, with submissions in seconds since 1970; `cell`
    is the replay, `plan` its plan, and `said` describes how both ends of the log were handled. The verdict covers the
    jobs from `judged_s`, in seconds since 1970, to the last submission.
    """

    verdict: Verdict
    jobs: pd.DataFrame
    cell: Cell
    plan: ReplayPlan
    begin: Beginning
    judged_s: float
    said: tuple[str, ...]


def calibrate(plan: ReplayPlan, *, skip_h: float = 0.0, listener: Listener | None = None) -> Calibration:
    """Replay a log unchanged and judge the replay by its waits, from when the cluster was full to the last submission.

    If the replay is off in the first half of that period, the settings that the policy's documentation leaves open are
    fitted to that half. `skip_h` skips more hours at the start of the log. Raises `InputError` if the log records no
    waits, or no job is left to judge.
    """
    if plan.log.log is None and plan.unrecorded:
        return _unjudged(plan, listener)
    log = plan.recorded
    if not log.waits_s.any():
        remedy = "give a log with the times of submission; Alibaba PAI has none"
        raise input_error(log.name, "records no waits: every job starts when it is submitted", remedy)
    begin = with_state(plan.log, log, plan.groups)
    plan = counted_from(plan, begin.log)  # releases the trace that was read
    cell, judged = _replayed(plan, begin, skip_h, listener)
    from_s, said = float(judged["submit_s"].min()), counted(begin)
    middle_s = (from_s + float(judged["submit_s"].max())) / 2
    if needs_reading(judged[judged["submit_s"] < middle_s]):
        fitted, reading = with_readings(plan, log, from_s, middle_s)
        if reading:
            plan, said = fitted, [*said, said_of(reading)]
            cell, judged = _replayed(plan, begin, skip_h, listener)
    verdict = judge_replay(judged, log, plan.groups, plan.policy)
    judged_s = max(begin.full_s, from_s)
    return Calibration(verdict, judged, cell, plan, begin, judged_s, tuple(said))


def _replayed(
    plan: ReplayPlan, begin: Beginning, skip_h: float, listener: Listener | None
) -> tuple[Cell, pd.DataFrame]:
    """Replay a log, and return the jobs judged."""
    cell = run_replay(plan, "calibrate", listener=listener).cells[0]
    jobs = _both(plan.recorded, cell, begin)
    from_s = max(begin.full_s, float(jobs["submit_s"].min()) + skip_h * 3600)
    judged = jobs[jobs["submit_s"].between(from_s, begin.last_s)]
    if judged.empty:
        remedy = "skip less" if skip_h else "give a longer log"
        raise input_error(plan.recorded.name, "no job came after the cluster was full", remedy)
    return cell, judged.reset_index(drop=True)


def _unjudged(plan: ReplayPlan, listener: Listener | None) -> Calibration:
    """Replay jobs without recorded waits; all of them count, without a verdict."""
    cell = run_replay(plan, "before", listener=listener).cells[0]
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
