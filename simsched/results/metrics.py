"""What is computed from the result tables: every metric with its name, unit, formula and direction.

A metric is a pure function of the tables of one cell and of the number of GPUs in the cluster. `summarise` computes
all that the tables allow. Means per application and per tenant are added under `jct_mean_s[NAME]`: what Table 2 of the
Pollux paper prints as the 99th percentile is the mean JCT of its ImageNet jobs, `jct_mean_s[imagenet]` here. A time
divided by that of the reference policy under the same seed is called `_ratio`, as in `jct_mean_ratio`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import pandas as pd

from simsched.errors import InputError, input_error, nearest
from simsched.results.cost_metrics import COST_METRICS
from simsched.results.deadline_metrics import DEADLINE_METRICS
from simsched.results.energy import ENERGY_METRICS
from simsched.results.failure_metrics import FAILURE_METRICS
from simsched.results.fragmentation import PLACEMENT_METRICS
from simsched.results.metric import SECONDS_PER_HOUR, LossTable, Metric, Tables, makespan_s, means_by, ratio
from simsched.results.over_time import integral
from simsched.results.power import Power
from simsched.results.quality import QUALITY_METRICS
from simsched.results.rho_metrics import RHO_METRICS


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
        return float(tables.done[column].mean()) if len(tables.done) else None

    return compute


def _percentile(column: str, percent: float) -> Callable[[Tables], float | None]:
    def compute(tables: Tables) -> float | None:
        return float(np.percentile(tables.done[column], percent)) if len(tables.done) else None

    return compute


def _ranked(column: str, share: float) -> Callable[[Tables], float | None]:
    def compute(tables: Tables) -> float | None:
        values = np.sort(tables.done[column])
        return float(values[int(share * len(values))]) if len(values) else None

    return compute


def _total(tables: Tables, column: str) -> float:
    return float(tables.done[column].sum())


def _utilisation(tables: Tables) -> float | None:
    span_s = makespan_s(tables) or 0.0
    if tables.decided is None:
        return ratio(_held_gpu_s(tables), tables.total_gpus * span_s)
    return ratio(_held_gpu_s(tables), integral(tables.decided, "available_gpus", int(span_s)))


def _held_gpu_s(tables: Tables) -> float:
    """Return the GPU-seconds for which anybody held a GPU: of one that is shared each holder counts its share."""
    intervals = tables.held
    if intervals is None or "gpu_share" not in intervals:
        return _total(tables, "attained_gpu_s")
    seconds = intervals["end_s"] - intervals["start_s"]
    return float((seconds * intervals["gpus"] * intervals["gpu_share"]).sum())


def _speed_per_gpu(tables: Tables) -> float | None:
    """Return the sum of the relative speeds of the jobs on a GPU, over all GPUs and seconds for which any holds it."""
    intervals = tables.allocations
    if intervals is None or "relative_speed" not in intervals:
        return None
    if _takes_parts(intervals):
        return None  # how long a GPU is held by anybody is not told
    gpu_s = (intervals["end_s"] - intervals["start_s"]) * intervals["gpus"]
    achieved = float((gpu_s * intervals["relative_speed"])[~intervals["restarting"]].sum())
    return ratio(achieved, _held_gpu_s(tables))


def _takes_parts(intervals: pd.DataFrame) -> bool:
    """Return whether jobs take parts of GPUs: then those on one GPU need not have even shares of it."""
    single = intervals[intervals["gpus"] == 1]
    holders = single["neighbours"].str.count(" ") + 1 + (single["neighbours"] != "")
    return bool((single["gpu_share"] * holders - 1).abs().gt(1e-9).any())


def _node_hours(tables: Tables) -> float | None:
    if tables.decided is None or not len(tables.done):
        return None
    return integral(tables.decided, "provisioned_nodes", int(makespan_s(tables) or 0)) / SECONDS_PER_HOUR


def _cost(tables: Tables) -> float | None:
    hours = _node_hours(tables)
    return None if hours is None or tables.node_price_per_h is None else hours * tables.node_price_per_h


def _best(tables: Tables) -> list[float]:
    return sorted(tables.accuracies or (), reverse=True)[:_TOP]


def _accuracy(tables: Tables) -> float | None:
    best = _best(tables)
    return float(np.mean(best)) if best else None


def _accuracy_spread(tables: Tables) -> float | None:
    best = _best(tables)
    return float(np.std(best, ddof=1)) if len(best) > 1 else None


def _efficiency(tables: Tables) -> float | None:
    if tables.allocations is None:
        return None
    running = tables.allocations.loc[~tables.allocations["restarting"], ["start_s", "end_s", "efficiency"]]
    seconds = (running["end_s"] - running["start_s"]).to_numpy()
    return ratio(float(seconds @ running["efficiency"].to_numpy()), float(seconds.sum()))


def _restart_share(tables: Tables) -> float | None:
    return ratio(_total(tables, "restart_s"), _total(tables, "held_s"))


def _restart_rate(tables: Tables) -> float | None:
    return ratio(_total(tables, "restarts") * SECONDS_PER_HOUR, _total(tables, "held_s"))


def _gpu_hours(tables: Tables) -> float | None:
    return ratio(_total(tables, "attained_gpu_s") / SECONDS_PER_HOUR, len(tables.done))


def _finished(tables: Tables) -> float | None:
    return float(len(tables.done))


def _decisions(tables: Tables) -> float | None:
    return None if tables.decided is None else float(len(tables.decided))


_LOWER, _HIGHER = "lower", "higher"
_TOP = 5

_ALL = (
    Metric("jct_mean_s", "mean JCT", "s", _LOWER, "mean of `jct_s` over the finished jobs", _mean("jct_s")),
    Metric("jct_median_s", "median JCT", "s", _LOWER, "median of `jct_s`", _percentile("jct_s", 50)),
    Metric("jct_p95_s", "95th percentile JCT", "s", _LOWER, "95th percentile of `jct_s`", _percentile("jct_s", 95)),
    Metric("jct_p99_s", "99th percentile JCT", "s", _LOWER, "99th percentile of `jct_s`", _percentile("jct_s", 99)),
    Metric(
        "jct_p99_ranked_s",
        "99th percentile JCT by rank",
        "s",
        _LOWER,
        "element int(0.99 n), counted from 0, of the n values of `jct_s` in ascending order: no interpolation",
        _ranked("jct_s", 0.99),
    ),
    Metric(
        "makespan_s",
        "makespan",
        "s",
        _LOWER,
        "largest `end_time_s`: from second 0 of the workload to the last completion",
        makespan_s,
    ),
    Metric(
        "gpu_utilisation",
        "GPU utilisation",
        "share",
        _HIGHER,
        "sum of `attained_gpu_s` / `available_gpus` integrated over the makespan (GPUs of the cluster * `makespan_s` "
        "where none come and go); a GPU counts while a job holds it; of a GPU type (`gpu_utilisation[v100]`): its GPU "
        "seconds held / (its GPUs * `makespan_s`)",
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
        "queueing_p90_s",
        "90th percentile queueing",
        "s",
        _LOWER,
        "90th percentile of `queueing_s`",
        _percentile("queueing_s", 90),
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
        "gpu_hours",
        "GPU hours",
        "GPU h",
        "",
        "sum of `attained_gpu_s` / 3600; of a GPU type (`gpu_hours[v100]`) those held on it",
        lambda tables: _total(tables, "attained_gpu_s") / SECONDS_PER_HOUR if len(tables.jobs) else None,
    ),
    Metric(
        "gpu_hours_per_job",
        "GPU hours per job",
        "GPU h",
        _LOWER,
        "sum of `attained_gpu_s` / 3600 / finished jobs",
        _gpu_hours,
    ),
    Metric(
        "node_hours",
        "node hours",
        "node h",
        _LOWER,
        "`provisioned_nodes` integrated from second 0 to `makespan_s`, in hours; before the first decision as after it",
        _node_hours,
    ),
    Metric("cost", "cost", "$", _LOWER, "`node_hours` * `cluster.node_price_per_h` of the experiment", _cost),
    *ENERGY_METRICS,
    Metric(
        "top5_accuracy",
        "top-5 accuracy",
        "%",
        _HIGHER,
        "mean accuracy of the five best trials of hyper-parameter tuning",
        _accuracy,
    ),
    Metric(
        "top5_accuracy_sd",
        "sd of top-5 accuracy",
        "%",
        "",
        "standard deviation (n - 1) of the accuracies of these five",
        _accuracy_spread,
    ),
    Metric(
        "speed_per_gpu",
        "sum of speeds per GPU",
        "",
        _HIGHER,
        "sum over intervals of seconds * `gpus` * `relative_speed`, 0 while restarting, / sum of seconds * `gpus` * "
        "`gpu_share`: what the jobs on a GPU that is held achieve together; 1 where none is shared; "
        "not there where jobs take parts of GPUs",
        _speed_per_gpu,
    ),
    Metric("held_mean_s", "mean running", "s", _LOWER, "mean of `held_s`, restarting included", _mean("held_s")),
    Metric("restart_mean_s", "mean restarting", "s", _LOWER, "mean of `restart_s`", _mean("restart_s")),
    *RHO_METRICS,
    *COST_METRICS,
    *FAILURE_METRICS,
    *PLACEMENT_METRICS,
    *QUALITY_METRICS,
    *DEADLINE_METRICS,
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

#: Metrics that few runs have (price or power of nodes, hyper-parameter tuning, losses, deadlines), and are then wanted.
OCCASIONAL = (
    "cost",
    "gpu_cost",
    "energy_kwh",
    "top5_accuracy",
    "top5_accuracy_sd",
    "normalised_loss_mean",
    "time_to_90_mean_s",
    "deadlines_met",
    "deadlines_declined",
    "tardiness_mean_s",
    "late_gpu_share",
)


def summarise(
    jobs: pd.DataFrame,
    allocations: pd.DataFrame | None,
    rounds: pd.DataFrame | None,
    total_gpus: int,
    *,
    node_price_per_h: float | None = None,
    accuracies: Sequence[float] | None = None,
    losses: Mapping[str, LossTable] | None = None,
    power: Power | None = None,
    gpu_price_per_h: Sequence[float] = (),
) -> dict[str, float]:
    """Compute every metric that the tables allow, and the mean JCT of each application and of each tenant.

    Where nodes or jobs may fail, that of each final state too (`jct_mean_s[Failed]`). A metric without a value (no
    job, no table) is left out rather than given as not-a-number. Percentiles are interpolated linearly.
    """
    tables = Tables(
        jobs, allocations, rounds, total_gpus, node_price_per_h, accuracies, None, losses, power, gpu_price_per_h
    )
    values = {name: metric.compute(tables) for name, metric in METRICS.items()}
    summary = {name: value for name, value in values.items() if value is not None and math.isfinite(value)}
    for column in ("tenant", "application", *(("status",) if "failures" in jobs else ())):
        means = means_by(tables.done[column], tables.done["jct_s"])
        summary |= {f"jct_mean_s[{name}]": float(mean) for name, mean in means.items() if name}
    return summary


def summarise_rho(rho: Sequence[float] | pd.Series) -> dict[str, float]:
    """Compute the metrics of finish-time fairness from the ratios of a cell."""
    tables = Tables(pd.DataFrame(), None, None, 0, rho=np.asarray(rho, dtype=float).tolist())
    values = {name: metric.compute(tables) for name, metric in METRICS.items() if name.startswith("rho_")}
    return {name: value for name, value in values.items() if value is not None}


#: Metrics of rho that exist without one application, too (`simsched.results.partial_rho`).
PARTIAL_RHO = ("rho_above_1", "rho_above_2")
#: Metrics that exist for each GPU type of a cluster of several, too, as does `jct_mean_s` (`simsched.results.by_type`).
BY_TYPE = ("gpu_utilisation", "gpu_hours")
_NAME = re.compile(r"(?P<name>\w+)(\[(?P<application>[^\]]+)\])?")
_RATIO = "_ratio"
_SECONDS = {"_s": 1, "_min": 60, "_h": SECONDS_PER_HOUR}


def find_metric(name: str) -> Reading:
    """Look a metric up by the name that a user wrote.

    Times may be asked for in seconds, minutes or hours by the end of the name: `makespan_h` reads `makespan_s`
    divided by 3600. A bracket picks an application, a tenant or a GPU type, `jct_mean_h[imagenet]`, or, of rho, leaves
    one out: `rho_above_1[all but ncf]`. With `_ratio` for the unit the metric is divided by the reference policy's:
    `makespan_ratio`. Raises `InputError` on other names.
    """
    match = _NAME.fullmatch(name)
    stem, application = (match["name"], match["application"]) if match else (name, None)
    for ending, seconds in _SECONDS.items():
        metric = METRICS.get(stem.removesuffix(ending) + "_s") if stem.endswith(ending) else None
        if metric is not None and (application is None or metric.name == "jct_mean_s"):
            unit = ending.removeprefix("_")
            return _reading(metric, application, unit, 1 / seconds)
    metric = METRICS.get(stem.removesuffix(_RATIO) + "_s") if stem.endswith(_RATIO) else None
    if metric is not None and (application is None or metric.name == "jct_mean_s"):
        whole = _reading(metric, application, "", 1.0)
        return replace(whole, key=ratio_key(whole.key), title=f"{whole.title} / reference's", stored_unit="")
    named = stem in BY_TYPE or (stem in PARTIAL_RHO and (application or "").startswith("all but "))
    if stem in METRICS and (application is None or named):
        return _reading(METRICS[stem], application, METRICS[stem].unit, 1.0)
    raise _unknown(name)


def ratio_key(key: str) -> str:
    """Return the key of the ratio of a time to the reference's: `jct_mean_ratio[a]` for `jct_mean_s[a]`."""
    name, bracket, rest = key.partition("[")
    return name.removesuffix("_s") + _RATIO + bracket + rest


def _reading(metric: Metric, application: str | None, unit: str, factor: float) -> Reading:
    key = metric.name if application is None else f"{metric.name}[{application}]"
    title = metric.title if application is None else f"{metric.title} of {application}"
    return Reading(key, title, unit, metric.better, factor, metric.unit)


def _unknown(name: str) -> InputError:
    return input_error("metric", f"there is no metric '{name}'", nearest(name, METRICS))


def metrics_markdown() -> str:
    """Write the metrics as a markdown table, as it stands in `docs/results.md`."""
    lines = ["| metric | unit | better | formula |", "|---|---|---|---|"]
    lines += [f"| `{m.name}` | {m.unit} | {m.better} | {m.meaning} |" for m in METRICS.values()]
    return "\n".join(lines) + "\n"
