"""Metrics of GPUs and nodes: utilisation, efficiency, hours, costs, placement, and energy.

A GPU draws `busy_w` while held, and `idle_w` while free on a node that is up or coming up; a node draws `node_w`
besides its GPUs while it is up or coming up, and `asleep_w` in total otherwise. A held GPU counts as fully loaded, so
the energy is an upper estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import ceil
from typing import Any

import numpy as np

from simsched.arithmetic import Series, dot, ordered_sum
from simsched.results.metric import (
    ALWAYS,
    HIGHER,
    IF_THERE,
    LOWER,
    SECONDS_PER_HOUR,
    Columns,
    Metric,
    Power,
    Tables,
    held_between_rounds,
    integral,
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
    prices = tables.gpu_price_per_h
    if not any(isinstance(one, Series) for one in prices):
        return float((hours * np.asarray(prices)[nodes]).sum())
    times: Iterable[Any] = zip(intervals["start_s"], intervals["end_s"], hours, nodes, strict=True)
    if any(isinstance(one, Series) and one.bill_s for one in prices):
        times = _billed(times, intervals["job_id"], prices)
    return float(
        sum(held * prices[node].between(start, end) / (end - start) for start, end, held, node in times if end > start)
    )


def _billed(
    times: Iterable[tuple[float, float, float, int]], jobs: Iterable[object], prices: Sequence[float | Series]
) -> Iterator[tuple[float, float, float, int]]:
    """Join the intervals of each stay on a node, and extend it by what is paid of its last step."""
    stays: dict[tuple[object, int], list[tuple[float, float, float]]] = {}
    for (start_s, end_s, hours, node), job in sorted(zip(times, jobs, strict=True), key=lambda row: row[0][0]):
        own = stays.setdefault((job, node), [])
        joined = own.pop() if own and own[-1][1] == start_s else (start_s, start_s, 0.0)
        own.append((joined[0], end_s, joined[2] + hours))
    for (_, node), own in stays.items():
        for start_s, end_s, hours in own:
            bill_s = getattr(prices[node], "bill_s", 0.0) or end_s - start_s
            whole_s = max(ceil((end_s - start_s) / bill_s - 1e-9), 1) * bill_s if bill_s else 0.0
            yield start_s, start_s + whole_s, hours * whole_s / max(end_s - start_s, 1e-9), node


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
           "GPU hours held times `cluster.gpu_price_per_h` of their type, or the price of a GPU of their node in its "
           "market at that time, summed; a shared GPU is paid for once",
           _gpu_cost, shown=IF_THERE),
)  # fmt: skip

#: Joint speed of jobs that share GPUs.
SHARING_METRICS = (
    Metric("speed_per_gpu", "sum of speeds per GPU", "", HIGHER,
           "sum over intervals of seconds * `gpus` * `relative_speed`, 0 while restarting, / sum of seconds * `gpus` * "
           "`gpu_share`: what the jobs on a GPU that is held achieve together; 1 if none is shared; "
           "absent if jobs take parts of GPUs", _speed_per_gpu, shown=IF_THERE),
)  # fmt: skip


def _share(column: str) -> Callable[[Tables], float | None]:
    """Return the share of free GPU-seconds that is stranded, over the time in which jobs wait."""

    def compute(tables: Tables) -> float | None:
        rounds, until_s = tables.decided, makespan_s(tables)
        if rounds is None or column not in rounds or until_s is None:
            return None
        waiting = rounds["active_jobs"] > rounds["running_jobs"]
        free = np.where(waiting, rounds["available_gpus"] - rounds["allocated_gpus"], 0)
        lost = np.where(waiting, rounds[column], 0)
        arrays = {"time_s": rounds["time_s"], "free_gpus": free, "lost_gpus": lost}
        both = Columns(arrays, len(rounds), arrays.__getitem__)
        start, end, free_gpus = held_between_rounds(both, "free_gpus", until_s)
        *_, lost_gpus = held_between_rounds(both, "lost_gpus", until_s)
        return ratio(dot(end - start, lost_gpus), dot(end - start, free_gpus))

    return compute


def _room(tables: Tables) -> float | None:
    """Return the mean over time of the largest job that fits in one domain."""
    rounds, until_s = tables.decided, makespan_s(tables)
    if rounds is None or "fits_in_domain_gpus" not in rounds or until_s is None:
        return None
    start, end, fits = held_between_rounds(rounds, "fits_in_domain_gpus", until_s)
    return ratio(dot(end - start, fits), until_s)


def _crossing(tables: Tables) -> float | None:
    intervals = tables.held
    if intervals is None or "levels_crossed" not in intervals:
        return None
    gpu_s = (intervals["end_s"] - intervals["start_s"]) * intervals["gpus"]
    return ratio(float(gpu_s[intervals["levels_crossed"] > 0].sum()), float(gpu_s.sum()))


_MEANING = "`{}` / free GPUs, both integrated over the time in which jobs wait; needs `engine.fragmentation`"

_FRAGMENTATION = tuple(
    Metric(name, title, "share", LOWER, _MEANING.format(column), _share(column))
    for name, title, column in (
        ("fragmentation", "fragmentation", "stranded_gpus"),
        ("fragmentation_by_node", "fragmentation by node", "stranded_by_node_gpus"),
        ("fragmentation_by_domain", "fragmentation by domain", "stranded_by_domain_gpus"),
    )
)

#: The metrics of this module.
PLACEMENT_METRICS = (
    *_FRAGMENTATION,
    Metric("crossing_share", "time across domains", "share", LOWER,
           "share of the GPU-seconds held by jobs that are in several domains of the lowest level above the nodes",
           _crossing),
    Metric("room_in_domain", "largest job in a domain", "GPU", HIGHER,
           "mean over time of `fits_in_domain_gpus`; needs `engine.fragmentation` and tiers with uplinks", _room),
)  # fmt: skip


#: Watt-seconds in a kilowatt-hour.
WATT_S_PER_KWH = 3.6e6


def energy_kwh(tables: Tables) -> float | None:
    """Return the energy drawn from second 0 to the last completion; None if power or tables are unknown."""
    parts = _gpu_seconds(tables)
    if parts is None or tables.power is None:
        return None
    power = tables.power
    busy_ws = ordered_sum(power.busy_w[kind] * busy_s for kind, (busy_s, _) in parts.items())
    return (busy_ws + _unused_ws(tables, power, parts)) / WATT_S_PER_KWH


def unused_energy_kwh(tables: Tables) -> float | None:
    """Return the energy not drawn by GPUs that jobs hold."""
    parts = _gpu_seconds(tables)
    if parts is None or tables.power is None:
        return None
    return _unused_ws(tables, tables.power, parts) / WATT_S_PER_KWH


def _unused_ws(tables: Tables, power: Power, parts: Mapping[str, tuple[float, float]]) -> float:
    assert tables.decided is not None  # otherwise there would be no parts
    span_s = int(makespan_s(tables) or 0)
    up_s = integral(tables.decided, "provisioned_nodes", span_s)
    gpus_ws = ordered_sum(power.idle_w[kind] * idle_s for kind, (_, idle_s) in parts.items())
    return gpus_ws + power.node_w * up_s + power.asleep_w * (power.nodes * span_s - up_s)


def _gpu_seconds(tables: Tables) -> dict[str, tuple[float, float]] | None:
    """Return by type the held GPU-seconds, and the powered and free ones."""
    span_s = makespan_s(tables)
    if tables.power is None or tables.held is None or tables.decided is None or span_s is None:
        return None
    held = _energy_held_gpu_s(tables.held, tables.power)
    powered = _powered_gpu_s(tables.decided, tables.power, span_s)
    if powered is None or held is None:
        return None
    return {kind: (held[kind], powered[kind] - held[kind]) for kind in powered}


def _energy_held_gpu_s(allocations: Columns, power: Power) -> dict[str, float] | None:
    """Return the GPU-seconds held by type; a GPU that several jobs share counts once."""
    seconds = (allocations["end_s"] - allocations["start_s"]).astype(np.float64)
    if "gpu_share" in allocations:
        seconds = seconds * allocations["gpu_share"]
    if len(power.types) == 1:
        return {power.types[0]: dot(seconds, allocations["gpus"])}
    if "placement" not in allocations:
        return None
    kind_of = [make.gpu_type for make in power.makes for _ in range(make.nodes)]
    held = dict.fromkeys(power.types, 0.0)
    for placement, time_s in zip(allocations["placement"], seconds, strict=True):
        for pair in placement.split():
            node, gpus = pair.split(":")
            held[kind_of[int(node)]] += int(gpus) * float(time_s)
    return held


def _powered_gpu_s(rounds: Columns, power: Power, span_s: float) -> dict[str, float] | None:
    """Return the GPU-seconds of nodes that were up or coming up, by type; None if the rounds lack them."""
    if len({(make.gpus_per_node, make.gpu_type) for make in power.makes}) == 1:
        make = power.makes[0]
        return {make.gpu_type: float(make.gpus_per_node * integral(rounds, "provisioned_nodes", int(span_s)))}
    if "provisioned_gpus" not in rounds:
        return None
    rows = [dict(row) for row in rounds["provisioned_gpus"]]
    by_type = {kind: np.array([row.get(kind, np.nan) for row in rows], dtype=np.float64) for kind in power.types}
    arrays = {**by_type, "time_s": rounds["time_s"]}
    counts = Columns(arrays, len(rounds), arrays.__getitem__)
    return {kind: float(integral(counts, kind, int(span_s))) for kind in power.types}


ENERGY_METRICS = (
    Metric("energy_kwh", "energy", "kWh", LOWER,
           "integral from second 0 to `makespan_s`: held GPUs * `busy_w`, free GPUs of nodes up or coming up * "
           "`idle_w`, these nodes * `node_w`, all others * `asleep_w` (`cluster.power`)", energy_kwh, shown=IF_THERE),
    Metric("unused_energy_kwh", "energy of unheld resources", "kWh", LOWER,
           "`energy_kwh` without the GPUs that jobs held", unused_energy_kwh),
)  # fmt: skip
