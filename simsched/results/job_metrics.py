"""Metrics of jobs: completion, waiting, restarts, failures and deadlines."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from simsched.results.metric import (
    ALWAYS,
    HIGHER,
    IF_THERE,
    LOWER,
    SECONDS_PER_HOUR,
    Column,
    Columns,
    Metric,
    Tables,
    makespan_s,
    ratio,
    total,
)


def _mean(column: str) -> Callable[[Tables], float | None]:
    def compute(tables: Tables) -> float | None:
        return float(tables.done[column].mean()) if len(tables.done) else None

    return compute


def _percentile(column: str, percent: float) -> Callable[[Tables], float | None]:
    def compute(tables: Tables) -> float | None:
        return tables.done.percentile(column, percent) if len(tables.done) else None

    return compute


def _ranked(column: str, share: float) -> Callable[[Tables], float | None]:
    def compute(tables: Tables) -> float | None:
        values = np.sort(tables.done[column])
        return float(values[int(share * len(values))]) if len(values) else None

    return compute


def _restart_share(tables: Tables) -> float | None:
    return ratio(total(tables, "restart_s"), total(tables, "held_s"))


def _restart_rate(tables: Tables) -> float | None:
    return ratio(total(tables, "restarts") * SECONDS_PER_HOUR, total(tables, "held_s"))


#: Completion times.
COMPLETION_METRICS = (
    Metric("jct_mean_s", "mean JCT", "s", LOWER, "mean of `jct_s` over the finished jobs", _mean("jct_s"), shown=ALWAYS,
           of="groups and types"),
    Metric("jct_median_s", "median JCT", "s", LOWER, "median of `jct_s`", _percentile("jct_s", 50), shown=ALWAYS),
    Metric("jct_p95_s", "95th percentile JCT", "s", LOWER, "95th percentile of `jct_s`", _percentile("jct_s", 95)),
    Metric("jct_p99_s", "99th percentile JCT", "s", LOWER, "99th percentile of `jct_s`", _percentile("jct_s", 99),
           shown=ALWAYS),
    Metric("jct_p99_ranked_s", "99th percentile JCT by rank", "s", LOWER,
           "element int(0.99 n), counted from 0, of the n values of `jct_s` in ascending order: no interpolation",
           _ranked("jct_s", 0.99)),
    Metric("makespan_s", "makespan", "s", LOWER,
           "largest `end_time_s`: from second 0 of the workload to the last completion", makespan_s, shown=ALWAYS),
)  # fmt: skip

#: Waiting times and restarts.
WAITING_METRICS = (
    Metric("queueing_mean_s", "mean queueing", "s", LOWER, "mean of `queueing_s`", _mean("queueing_s"), shown=ALWAYS),
    Metric("queueing_median_s", "median queueing", "s", LOWER, "median of `queueing_s`", _percentile("queueing_s", 50)),
    Metric("queueing_p90_s", "90th percentile queueing", "s", LOWER, "90th percentile of `queueing_s`",
           _percentile("queueing_s", 90)),
    Metric("queueing_p95_s", "95th percentile queueing", "s", LOWER, "95th percentile of `queueing_s`",
           _percentile("queueing_s", 95)),
    Metric("restarts_per_job", "restarts per job", "", LOWER, "mean of `restarts`; the first start is none",
           _mean("restarts"), shown=ALWAYS),
    Metric("restarts_per_hour", "restarts per hour held", "1/h", LOWER, "sum of `restarts` / sum of `held_s` in hours",
           _restart_rate),
    Metric("restart_share", "time lost to restarts", "share", LOWER,
           "sum of `restart_s` / sum of `held_s`; the first start counts", _restart_share),
)  # fmt: skip

#: Holding times.
RUNNING_METRICS = (
    Metric("held_mean_s", "mean running", "s", LOWER, "mean of `held_s`, restarting included", _mean("held_s")),
    Metric("restart_mean_s", "mean restarting", "s", LOWER, "mean of `restart_s`", _mean("restart_s")),
)


def _if_failing(compute: Callable[[Columns], float | None]) -> Callable[[Tables], float | None]:
    """Return a metric of the jobs that exists only if nodes or jobs may fail."""
    return lambda tables: compute(tables.done) if "failures" in tables.done and len(tables.done) else None


def _effective(jobs: Columns) -> float | None:
    productive_s = jobs["held_s"] - jobs["restart_s"] - jobs["checkpoint_s"] - jobs["lost_s"]
    return ratio(float(productive_s.sum()), float((jobs["end_time_s"] - jobs["start_time_s"]).sum()))


def _productive_gpus(jobs: Columns) -> float | None:
    """Return the mean number of GPUs that did lasting work, over the makespan."""
    held_s = np.where(jobs["held_s"] > 0, jobs["held_s"], 1)
    gpus = jobs["attained_gpu_s"] / held_s
    idle_gpu_s = gpus * (jobs["restart_s"] + jobs["checkpoint_s"])
    worth_gpu_s = float((jobs["attained_gpu_s"] - idle_gpu_s - jobs["lost_gpu_s"]).sum())
    return ratio(worth_gpu_s, float(jobs["end_time_s"].max()))


FAILURE_METRICS = (
    Metric("lost_gpu_hours", "GPU hours lost", "GPU h", LOWER,
           "sum of `lost_gpu_s` / 3600: work whose progress was lost to failures",
           _if_failing(lambda jobs: float(jobs["lost_gpu_s"].sum()) / SECONDS_PER_HOUR), shown=IF_THERE),
    Metric("effective_training_ratio", "effective training time", "share", HIGHER,
           "sum of `held_s - restart_s - checkpoint_s - lost_s` / sum of `end_time_s - start_time_s`",
           _if_failing(_effective)),
    Metric("productive_gpus", "productive GPUs", "GPU", HIGHER,
           "sum of `attained_gpu_s - lost_gpu_s`, less the mean GPUs of each job times its `restart_s + checkpoint_s`, "
           "/ `makespan_s`", _if_failing(_productive_gpus)),
    Metric("failures_met", "failures met", "", LOWER,
           "sum of `failures`: times that a failing node took a job off its GPUs",
           _if_failing(lambda jobs: float(jobs["failures"].sum()))),
    Metric("attempts_mean", "attempts per job", "", LOWER, "mean of `attempts`",
           _if_failing(lambda jobs: float(jobs["attempts"].mean()))),
)  # fmt: skip


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
           "mean of `jct_s - deadline_s`, or 0 if that is negative, over the jobs with a deadline",
           _of_deadlines(_tardiness_s), shown=IF_THERE),
    Metric("late_gpu_share", "GPU time of late jobs", "share", LOWER,
           "`attained_gpu_s` of the jobs that miss their deadline / that of all jobs with a deadline",
           _of_deadlines(lambda jobs: ratio(_late_gpu_s(jobs), float(jobs["attained_gpu_s"].sum()))), shown=IF_THERE),
    Metric("late_gpu_hours", "GPU hours of late jobs", "GPU h", LOWER,
           "sum of `attained_gpu_s` / 3600 over the jobs that miss their deadline",
           _of_deadlines(lambda jobs: _late_gpu_s(jobs) / SECONDS_PER_HOUR)),
)  # fmt: skip
