"""What becomes of deadlines: metrics that are there only where jobs have some."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from simsched.results.metric import HIGHER, IF_THERE, LOWER, SECONDS_PER_HOUR, Column, Columns, Metric, Tables, ratio


def _of_deadlines(compute: Callable[[Columns], float | None]) -> Callable[[Tables], float | None]:
    """Return a metric of the jobs with a deadline, shown only if there are any."""

    def of_tables(tables: Tables) -> float | None:
        if "deadline_s" not in tables.done:
            return None
        promised = tables.done.where(np.isfinite(tables.done["deadline_s"]))
        return compute(promised) if len(promised) else None

    return of_tables


def _late(jobs: Columns) -> Column:
    late: Column = jobs["jct_s"] > jobs["deadline_s"]
    return late


def _met(jobs: Columns) -> float | None:
    return 1.0 - float(_late(jobs).mean()) if len(jobs) else None


def _tardiness_s(jobs: Columns) -> float:
    return float(np.maximum(jobs["jct_s"] - jobs["deadline_s"], 0).mean())


def _late_gpu_s(jobs: Columns) -> float:
    return float(jobs["attained_gpu_s"][_late(jobs)].sum())


DEADLINE_METRICS = (
    Metric("deadlines_missed", "deadlines missed", "share", LOWER,
           "share of the jobs with a deadline whose `jct_s` exceeds `deadline_s`",
           _of_deadlines(lambda jobs: float(_late(jobs).mean()))),
    Metric("deadlines_met", "deadlines met", "share", HIGHER,
           "share of the jobs with a deadline whose `jct_s` is at most `deadline_s`", _of_deadlines(_met),
           shown=IF_THERE),
    Metric("deadlines_declined", "deadlines declined", "share", "",
           "share of the jobs with a deadline that are `declined`; the others are admitted",
           _of_deadlines(lambda jobs: float(jobs["declined"].mean())), shown=IF_THERE),
    Metric("promises_kept", "admitted deadlines met", "share", HIGHER,
           "share of the jobs with a deadline that is not `declined` whose `jct_s` is at most `deadline_s`",
           _of_deadlines(lambda jobs: _met(jobs.where(~jobs["declined"]))), shown=IF_THERE),
    Metric("tardiness_mean_s", "mean tardiness", "s", LOWER,
           "mean of `jct_s - deadline_s`, or 0 where that is negative, over the jobs with a deadline",
           _of_deadlines(_tardiness_s), shown=IF_THERE),
    Metric("late_gpu_share", "GPU time of late jobs", "share", LOWER,
           "`attained_gpu_s` of the jobs that miss their deadline / that of all jobs with a deadline",
           _of_deadlines(lambda jobs: ratio(_late_gpu_s(jobs), float(jobs["attained_gpu_s"].sum()))), shown=IF_THERE),
    Metric("late_gpu_hours", "GPU hours of late jobs", "GPU h", LOWER,
           "sum of `attained_gpu_s` / 3600 over the jobs that miss their deadline",
           _of_deadlines(lambda jobs: _late_gpu_s(jobs) / SECONDS_PER_HOUR)),
)  # fmt: skip
