"""What is computed from the result tables: every metric with its name, unit, formula and direction.

A metric is a pure function of the tables of one cell and of the number of GPUs in the cluster. `summarise` computes
all that the tables allow. Means per application are added under `jct_mean_s[NAME]`: what Table 2 of the Pollux paper
prints as the 99th percentile is the mean JCT of its ImageNet jobs, `jct_mean_s[imagenet]` here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pandas as pd

from simsched.errors import InputError, nearest, wrong

SECONDS_PER_HOUR = 3600


@dataclass(frozen=True)
class Tables:
    """The tables of one cell, None where not recorded, and the number of GPUs in the cluster."""

    jobs: pd.DataFrame
    allocations: pd.DataFrame | None
    rounds: pd.DataFrame | None
    total_gpus: int


@dataclass(frozen=True)
class Metric:
    """One number about a cell.

    `unit` is `s`, `GPU h`, `1/h`, `share` (of 1) or empty (a plain count); `better` is `lower`, `higher` or empty
    where neither is. `compute` gives None where the tables do not allow the metric.
    """

    name: str
    title: str
    unit: str
    better: str
    meaning: str
    compute: Callable[[Tables], float | None]


@dataclass(frozen=True)
class Reading:
    """A metric as somebody named it.

    Summaries have it under `key`, in `stored_unit`; times `factor` it is in the `unit` that was asked for.
    """

    key: str
    title: str
    unit: str
    better: str
    factor: float
    stored_unit: str


def _mean(column: str) -> Callable[[Tables], float | None]:
    def compute(tables: Tables) -> float | None:
        return float(tables.jobs[column].mean()) if len(tables.jobs) else None

    return compute


def _percentile(column: str, percent: float) -> Callable[[Tables], float | None]:
    def compute(tables: Tables) -> float | None:
        return float(np.percentile(tables.jobs[column].to_numpy(), percent)) if len(tables.jobs) else None

    return compute


def _total(tables: Tables, column: str) -> float:
    return float(tables.jobs[column].sum())


def _ratio(above: float, below: float) -> float | None:
    return above / below if below > 0 else None


def _makespan(tables: Tables) -> float | None:
    return float(tables.jobs["end_time_s"].max()) if len(tables.jobs) else None


def _utilisation(tables: Tables) -> float | None:
    return _ratio(_total(tables, "attained_gpu_s"), tables.total_gpus * (_makespan(tables) or 0.0))


def _efficiency(tables: Tables) -> float | None:
    if tables.allocations is None:
        return None
    running = tables.allocations.loc[~tables.allocations["restarting"], ["start_s", "end_s", "efficiency"]]
    seconds = (running["end_s"] - running["start_s"]).to_numpy()
    return _ratio(float(seconds @ running["efficiency"].to_numpy()), float(seconds.sum()))


def _restart_share(tables: Tables) -> float | None:
    return _ratio(_total(tables, "restart_s"), _total(tables, "held_s"))


def _restart_rate(tables: Tables) -> float | None:
    return _ratio(_total(tables, "restarts") * SECONDS_PER_HOUR, _total(tables, "held_s"))


def _gpu_hours(tables: Tables) -> float | None:
    return _ratio(_total(tables, "attained_gpu_s") / SECONDS_PER_HOUR, len(tables.jobs))


def _finished(tables: Tables) -> float | None:
    return float(len(tables.jobs))


def _decisions(tables: Tables) -> float | None:
    return None if tables.rounds is None else float(len(tables.rounds))


_LOWER, _HIGHER = "lower", "higher"

_ALL = (
    Metric("jct_mean_s", "mean JCT", "s", _LOWER, "mean of `jct_s` over the finished jobs", _mean("jct_s")),
    Metric("jct_median_s", "median JCT", "s", _LOWER, "median of `jct_s`", _percentile("jct_s", 50)),
    Metric("jct_p95_s", "95th percentile JCT", "s", _LOWER, "95th percentile of `jct_s`", _percentile("jct_s", 95)),
    Metric("jct_p99_s", "99th percentile JCT", "s", _LOWER, "99th percentile of `jct_s`", _percentile("jct_s", 99)),
    Metric(
        "makespan_s",
        "makespan",
        "s",
        _LOWER,
        "largest `end_time_s`: from second 0 of the workload to the last completion",
        _makespan,
    ),
    Metric(
        "gpu_utilisation",
        "GPU utilisation",
        "share",
        _HIGHER,
        "sum of `attained_gpu_s` / (GPUs of the cluster * `makespan_s`); a GPU counts while a job holds it",
        _utilisation,
    ),
    Metric(
        "statistical_efficiency",
        "statistical efficiency",
        "share",
        _HIGHER,
        "mean of `efficiency` over all intervals that do not restart, each weighted by its seconds",
        _efficiency,
    ),
    Metric("queueing_mean_s", "mean queueing", "s", _LOWER, "mean of `queueing_s`", _mean("queueing_s")),
    Metric(
        "queueing_median_s", "median queueing", "s", _LOWER, "median of `queueing_s`", _percentile("queueing_s", 50)
    ),
    Metric(
        "queueing_p95_s",
        "95th percentile queueing",
        "s",
        _LOWER,
        "95th percentile of `queueing_s`",
        _percentile("queueing_s", 95),
    ),
    Metric(
        "restarts_per_job",
        "restarts per job",
        "",
        _LOWER,
        "mean of `restarts`; the first start is none",
        _mean("restarts"),
    ),
    Metric(
        "restarts_per_hour",
        "restarts per hour held",
        "1/h",
        _LOWER,
        "sum of `restarts` / sum of `held_s` in hours",
        _restart_rate,
    ),
    Metric(
        "restart_share",
        "time lost to restarts",
        "share",
        _LOWER,
        "sum of `restart_s` / sum of `held_s`; the first start counts",
        _restart_share,
    ),
    Metric(
        "gpu_hours_per_job",
        "GPU hours per job",
        "GPU h",
        _LOWER,
        "sum of `attained_gpu_s` / 3600 / finished jobs",
        _gpu_hours,
    ),
    Metric("finished_jobs", "finished jobs", "", "", "rows of the table of jobs", _finished),
    Metric("decisions", "decisions", "", "", "rows of the table of rounds", _decisions),
)

#: The metrics by name, in the order in which tables show them.
METRICS: Mapping[str, Metric] = MappingProxyType({metric.name: metric for metric in _ALL})

#: The metrics of a comparison unless others are asked for.
HEADLINE = (
    "jct_mean_s",
    "jct_median_s",
    "jct_p99_s",
    "makespan_s",
    "gpu_utilisation",
    "statistical_efficiency",
    "queueing_mean_s",
    "restarts_per_job",
)


def summarise(
    jobs: pd.DataFrame, allocations: pd.DataFrame | None, rounds: pd.DataFrame | None, total_gpus: int
) -> dict[str, float]:
    """Compute every metric that the tables allow, and the mean JCT of each application.

    A metric without a value (no finished job, a table not recorded) is left out rather than given as not-a-number.
    Percentiles are interpolated linearly.
    """
    tables = Tables(jobs, allocations, rounds, total_gpus)
    values = {name: metric.compute(tables) for name, metric in METRICS.items()}
    summary = {name: value for name, value in values.items() if value is not None and math.isfinite(value)}
    means = jobs.groupby("application", sort=True)["jct_s"].mean()
    return summary | {f"jct_mean_s[{name}]": float(mean) for name, mean in means.items()}


_NAME = re.compile(r"(?P<name>\w+)(\[(?P<application>[^\]]+)\])?")
_SECONDS = {"_s": 1, "_min": 60, "_h": SECONDS_PER_HOUR}


def find_metric(name: str) -> Reading:
    """Look a metric up by the name that a user wrote.

    Times may be asked for in seconds, minutes or hours by the end of the name: `makespan_h` reads `makespan_s`
    divided by 3600. A bracket picks an application: `jct_mean_h[imagenet]`. Raises `InputError` on other names.
    """
    match = _NAME.fullmatch(name)
    stem, application = (match["name"], match["application"]) if match else (name, None)
    for ending, seconds in _SECONDS.items():
        metric = METRICS.get(stem.removesuffix(ending) + "_s") if stem.endswith(ending) else None
        if metric is not None and (application is None or metric.name == "jct_mean_s"):
            unit = ending.removeprefix("_")
            return _reading(metric, application, unit, 1 / seconds)
    if stem in METRICS and application is None:
        return _reading(METRICS[stem], None, METRICS[stem].unit, 1.0)
    raise _unknown(name)


def _reading(metric: Metric, application: str | None, unit: str, factor: float) -> Reading:
    key = metric.name if application is None else f"{metric.name}[{application}]"
    title = metric.title if application is None else f"{metric.title} of {application}"
    return Reading(key, title, unit, metric.better, factor, metric.unit)


def _unknown(name: str) -> InputError:
    return wrong("metric", f"there is no metric '{name}'", nearest(name, METRICS))


def metrics_markdown() -> str:
    """Write the metrics as a markdown table, as it stands in `docs/results.md`."""
    lines = ["| metric | unit | better | formula |", "|---|---|---|---|"]
    lines += [f"| `{m.name}` | {m.unit} | {m.better} | {m.meaning} |" for m in METRICS.values()]
    return "\n".join(lines) + "\n"
