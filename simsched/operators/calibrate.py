"""Simulated waits against those that a log recorded under the policy in force."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from simsched.errors import input_error
from simsched.experiment.running import Listener
from simsched.operators.replays import ReplayPlan, run_replay
from simsched.results import SIZES, size_of

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class WaitRow:
    """Recorded and simulated waits of a class of jobs in seconds: median, 90th percentile and mean.

    `close` is the share of jobs whose simulated wait is within 5 minutes or a fifth of the recorded one.
    """

    kind: str
    group: str
    jobs: int
    recorded_median_s: float
    simulated_median_s: float
    recorded_p90_s: float
    simulated_p90_s: float
    recorded_mean_s: float
    simulated_mean_s: float
    close: float


@dataclass(frozen=True)
class Calibration:
    """Waits by class, all jobs first, and by job: `job_id, size, queue, recorded_s, simulated_s`."""

    rows: tuple[WaitRow, ...]
    jobs: pd.DataFrame


def calibrate(plan: ReplayPlan, *, skip_h: float = 0.0, listener: Listener | None = None) -> Calibration:
    """Replay a log under a policy and compare waits, skipping `skip_h` hours of warm-up.

    Raises `InputError` if the log records no waits or no job is left.
    """
    log = plan.log.log
    if log is None:
        raise input_error(plan.log.trace.name, "records no waits", "give the scheduler's log: `sacct -P` or a table")
    if not log.waits_s.any():
        remedy = "give a log with the times of submission; Alibaba PAI has none"
        raise input_error(log.name, "records no waits: every job starts when it is submitted", remedy)
    run = run_replay(plan, "calibrate", listener=listener)
    simulated = run.cells[0].jobs[["job_id", "queueing_s", "submit_time_s"]]
    table = log.table
    recorded = pd.DataFrame(
        {
            "job_id": table["job_id"].astype(str),
            "size": size_of(np.ceil(table["gpus"].to_numpy("float64"))),
            "queue": table["queue"].where(table["queue"] != "", "(none)"),
            "recorded_s": log.waits_s.astype("float64"),
        }
    )
    both = recorded.merge(simulated, on="job_id")
    both = both[both["submit_time_s"] >= skip_h * 3600]
    if both.empty:
        raise input_error(plan.log.trace.name, f"no job came after the first {skip_h:g} h", "skip less")
    both = both.rename(columns={"queueing_s": "simulated_s"}).astype({"simulated_s": "float64"})
    return Calibration(tuple(compare_waits(both)), both.drop(columns="submit_time_s").reset_index(drop=True))


def compare_waits(jobs: pd.DataFrame) -> list[WaitRow]:
    """Compare waits over all jobs, by size and by queue; `jobs` has the columns of `Calibration.jobs`."""
    rows = [_row("all", "all jobs", jobs)]
    rows += [_row("size", name, part) for name, _ in SIZES if len(part := jobs[jobs["size"] == name])]
    queues = sorted(set(jobs["queue"]))
    rows += [_row("queue", name, jobs[jobs["queue"] == name]) for name in queues if len(queues) > 1]
    return rows


def _row(kind: str, group: str, jobs: pd.DataFrame) -> WaitRow:
    recorded: Numbers = jobs["recorded_s"].to_numpy("float64")
    simulated: Numbers = jobs["simulated_s"].to_numpy("float64")
    near = np.abs(simulated - recorded) <= np.maximum(300.0, 0.2 * recorded)
    return WaitRow(
        kind,
        group,
        len(jobs),
        float(np.median(recorded)),
        float(np.median(simulated)),
        float(np.percentile(recorded, 90)),
        float(np.percentile(simulated, 90)),
        float(recorded.mean()),
        float(simulated.mean()),
        float(near.mean()),
    )
