"""Times of jobs: completion, waiting, restarting."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from simsched.results.metric import ALWAYS, LOWER, SECONDS_PER_HOUR, Metric, Tables, makespan_s, ratio, total


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
