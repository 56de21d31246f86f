"""Usage of GPUs and nodes: utilisation, efficiency, hours, and costs if they have prices."""

from __future__ import annotations

import numpy as np

from simsched.arithmetic import dot
from simsched.results.integrals import integral
from simsched.results.metric import (
    ALWAYS,
    HIGHER,
    IF_THERE,
    LOWER,
    SECONDS_PER_HOUR,
    Columns,
    Metric,
    Tables,
    makespan_s,
    ratio,
    total,
)


def _utilisation(tables: Tables) -> float | None:
    available = _provided(tables, "available_gpus")
    return ratio(
        _held_gpu_s(tables), tables.total_gpus * (makespan_s(tables) or 0.0) if available is None else available
    )


def _provided(tables: Tables, column: str) -> int | None:
    """Integrate a column of the decisions until the last completion; None without completions or the column."""
    span_s = makespan_s(tables)
    return None if tables.decided is None or span_s is None else integral(tables.decided, column, int(span_s))


def _held_gpu_s(tables: Tables) -> float:
    """Return the GPU-seconds for which any job held a GPU; each holder of a shared GPU counts its share."""
    intervals = tables.held
    if intervals is None or "gpu_share" not in intervals:
        return total(tables, "attained_gpu_s")
    seconds = intervals["end_s"] - intervals["start_s"]
    return float((seconds * intervals["gpus"] * intervals["gpu_share"]).sum())


def _efficiency(tables: Tables) -> float | None:
    held = tables.held
    if held is None:
        return None
    running = ~held["restarting"]
    seconds = held["end_s"][running] - held["start_s"][running]
    return ratio(dot(seconds, held["efficiency"][running]), float(seconds.sum()))


def _speed_per_gpu(tables: Tables) -> float | None:
    """Return the summed relative speeds of the jobs on a GPU, over all GPUs and seconds during which it is held."""
    intervals = tables.held
    if intervals is None or "relative_speed" not in intervals:
        return None
    if _takes_parts(intervals):
        return None  # the time for which any job holds a GPU is unknown
    gpu_s = (intervals["end_s"] - intervals["start_s"]) * intervals["gpus"]
    achieved = float((gpu_s * intervals["relative_speed"])[~intervals["restarting"]].sum())
    return ratio(achieved, _held_gpu_s(tables))


def _takes_parts(intervals: Columns) -> bool:
    """Return whether jobs take fractional GPUs: shares of one GPU may then be uneven."""
    single = intervals["gpus"] == 1
    holders = np.array([len(names.split()) + 1 for names in intervals["neighbours"][single].tolist()], dtype=np.int64)
    return bool((np.abs(intervals["gpu_share"][single] * holders - 1) > 1e-9).any())


def _gpu_hours(tables: Tables) -> float | None:
    return ratio(total(tables, "attained_gpu_s") / SECONDS_PER_HOUR, len(tables.done))


def _restart_gpu_hours(tables: Tables) -> float | None:
    held = tables.held
    if held is None or not len(tables.done):
        return None
    gpu_s = (held["end_s"] - held["start_s"]) * held["gpus"]
    if "gpu_share" in held:
        gpu_s = gpu_s * held["gpu_share"]
    return float(gpu_s[held["restarting"]].sum()) / SECONDS_PER_HOUR


def _idle_gpu_hours(tables: Tables) -> float | None:
    available = _provided(tables, "available_gpus")
    return None if available is None else max(0.0, available - _held_gpu_s(tables)) / SECONDS_PER_HOUR


def _node_hours(tables: Tables) -> float | None:
    provided = _provided(tables, "provisioned_nodes")
    return None if provided is None else provided / SECONDS_PER_HOUR


def _cost(tables: Tables) -> float | None:
    hours = _node_hours(tables)
    return None if hours is None or tables.node_price_per_h is None else hours * tables.node_price_per_h


def _gpu_cost(tables: Tables) -> float | None:
    """Return the cost in dollars of all held GPU time; each holder of a shared GPU pays its share."""
    intervals = tables.held
    if intervals is None or not len(tables.gpu_price_per_h):
        return None
    nodes = np.array([int(placement.partition(":")[0]) for placement in intervals["placement"]], dtype=np.int64)
    hours = (intervals["end_s"] - intervals["start_s"]) * intervals["gpus"] / SECONDS_PER_HOUR
    if "gpu_share" in intervals:
        hours = hours * intervals["gpu_share"]
    return float((hours * np.asarray(tables.gpu_price_per_h)[nodes]).sum())


#: How well GPUs were used.
UTILISATION_METRICS = (
    Metric("gpu_utilisation", "GPU utilisation", "share", HIGHER,
           "sum of `attained_gpu_s` / `available_gpus` integrated over the makespan (GPUs of the cluster * "
           "`makespan_s` if none come and go); a GPU counts while a job holds it; of a GPU type "
           "(`gpu_utilisation[v100]`): its GPU seconds held / (its GPUs * `makespan_s`)",
           _utilisation, shown=ALWAYS, of="types"),
    Metric("statistical_efficiency", "statistical efficiency", "share", HIGHER,
           "mean of `efficiency` over all intervals that do not restart, each weighted by its seconds", _efficiency,
           shown=ALWAYS),
)  # fmt: skip

#: GPU hours and node hours.
HOURS_METRICS = (
    Metric("gpu_hours", "GPU hours", "GPU h", "",
           "sum of `attained_gpu_s` / 3600; of a GPU type (`gpu_hours[v100]`) those held on it",
           lambda tables: total(tables, "attained_gpu_s") / SECONDS_PER_HOUR if len(tables.done) else None, of="types"),
    Metric("gpu_hours_per_job", "GPU hours per job", "GPU h", LOWER, "sum of `attained_gpu_s` / 3600 / finished jobs",
           _gpu_hours),
    Metric("restart_gpu_hours", "GPU hours of restarts", "GPU h", LOWER,
           "GPU hours held by jobs while they start or restart", _restart_gpu_hours),
    Metric("idle_gpu_hours", "idle GPU hours", "GPU h", LOWER,
           "`available_gpus` integrated from second 0 to `makespan_s`, less the GPU time held, in hours",
           _idle_gpu_hours),
    Metric("node_hours", "node hours", "node h", LOWER,
           "`provisioned_nodes` integrated from second 0 to `makespan_s`, in hours; before the first decision as after "
           "it",
           _node_hours),
    Metric("cost", "cost", "$", LOWER, "`node_hours` * `cluster.node_price_per_h` of the experiment", _cost,
           shown=IF_THERE),
    Metric("gpu_cost", "GPU cost", "$", LOWER,
           "GPU hours held times `cluster.gpu_price_per_h` of their type, summed; a shared GPU is paid for once",
           _gpu_cost, shown=IF_THERE),
)  # fmt: skip

#: Joint speed of jobs that share GPUs.
SHARING_METRICS = (
    Metric("speed_per_gpu", "sum of speeds per GPU", "", HIGHER,
           "sum over intervals of seconds * `gpus` * `relative_speed`, 0 while restarting, / sum of seconds * `gpus` * "
           "`gpu_share`: what the jobs on a GPU that is held achieve together; 1 if none is shared; "
           "absent if jobs take parts of GPUs", _speed_per_gpu, shown=IF_THERE),
)  # fmt: skip
