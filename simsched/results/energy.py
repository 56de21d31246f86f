"""The energy drawn by the nodes of a cell, from its tables and the power of its GPU types.

A GPU draws `busy_w` while held, and `idle_w` while free on a node that is up or coming up; a node draws `node_w`
besides its GPUs while it is up or coming up, and `asleep_w` in total otherwise. A held GPU counts as fully loaded, so
the energy is an upper estimate.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from simsched.arithmetic import dot, ordered_sum
from simsched.results.integrals import integral
from simsched.results.metric import IF_THERE, LOWER, Columns, Metric, Tables, makespan_s
from simsched.results.power import Power

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
    held = _held_gpu_s(tables.held, tables.power)
    powered = _powered_gpu_s(tables.decided, tables.power, span_s)
    if powered is None or held is None:
        return None
    return {kind: (held[kind], powered[kind] - held[kind]) for kind in powered}


def _held_gpu_s(allocations: Columns, power: Power) -> dict[str, float] | None:
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
