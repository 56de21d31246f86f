"""Builds the market of a cluster from its groups: zones, availability and prices over time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import isclose
from pathlib import Path
from typing import Any

from simsched.arithmetic import Series
from simsched.errors import input_error, nearest
from simsched.experiment.cluster import ClusterSpec, Price
from simsched.model import JobSpec
from simsched.model.outages import Market, MarketGroup
from simsched.reading import first_lines, number, read_records, whole_number

_TIME = "time_s"


def market_of(spec: ClusterSpec, tick_s: float = 0) -> Market | None:
    """Return the market of a cluster, None if no group has a zone.

    Raises `InputError` naming file and line for a series with gaps, prices below 0, an availability other than 0 and 1,
    or times that are no multiples of the engine's ticks of `tick_s` seconds.
    """
    groups, first = [], 0
    for group in spec.groups or ():
        for spot, price in group.offers():
            nodes = tuple(range(first, first := first + group.nodes))
            available = _series(group.available, group.zone, tick_s, most=1) if spot and group.available else None
            prices = _priced(price, group.zone, tick_s)
            groups.append(MarketGroup(group.zone, nodes, spot, prices, available, group.notice))
    return Market(tuple(groups)) if any(group.zone for group in spec.groups or ()) else None


def _priced(price: Price, zone: str, tick_s: float) -> Series:
    return _series(price, zone, tick_s) if isinstance(price, str) else Series(1.0, (price,))


@lru_cache(maxsize=256)
def _series(path: str, zone: str, tick_s: float, most: float = float("inf")) -> Series:
    header = next(iter(first_lines(Path(path), 1)), "").strip().split(",")
    if zone not in header:
        raise input_error(path, f"has no column for the zone '{zone}'", nearest(zone, header), line=1)
    times: list[float] = []
    values: list[float] = []
    for line, row in read_records(Path(path), (_TIME, zone), header):
        try:
            times.append(number(row[_TIME], f"column '{_TIME}'", least=0))
            if most == 1:
                values.append(whole_number(row[zone], f"column '{zone}'", most=1))
            else:
                values.append(number(row[zone], f"column '{zone}'", least=0))
            _check_time(times, tick_s)
        except ValueError as error:
            raise input_error(path, str(error), "", line=line) from error
    if len(values) < 2:
        raise input_error(path, "a series needs at least two rows", "give a number for a constant price")
    return Series(times[1] - times[0], tuple(values), path)


def _check_time(times: Sequence[float], tick_s: float) -> None:
    if len(times) == 1 and times[0]:
        raise ValueError(f"the first '{_TIME}' is {times[0]:g}; begin at second 0, the start of the workload")
    if (len(times) > 1 and not isclose(times[-1] - times[-2], times[1] - times[0], rel_tol=1e-9)) or times[-1] < 0:
        raise ValueError(f"'{_TIME}' goes from {times[-2]:g} to {times[-1]:g} in a series of equal steps")
    if len(times) > 1 and times[1] <= times[0]:
        raise ValueError(f"'{_TIME}' does not rise from {times[0]:g} to {times[1]:g}")
    if tick_s and not isclose(times[-1] / tick_s, round(times[-1] / tick_s), abs_tol=1e-9):
        raise ValueError(f"second {times[-1]:g} is no multiple of the engine's ticks of {tick_s:g} s (engine.tick_s)")


def check_horizon(market: Market, jobs: Sequence[JobSpec]) -> None:
    """Raise `InputError` for a series that ends before the deadline or the duration of some job is over."""
    last_s = max((job.submit_time_s + max(job.deadline_s or 0, job.duration_s) for job in jobs), default=0)
    for group in market.groups:
        for series in (group.prices, group.available):
            if series is not None and series.source and (end_s := series.step_s * len(series.values)) < last_s:
                message = f"the series ends at second {end_s:g}, before the work could (second {last_s:g})"
                raise input_error(
                    series.source, message, "give a longer one, or fewer jobs", line=len(series.values) + 1
                )


def prices_of(market: Market) -> list[dict[str, Any]]:
    """Return the prices of consecutive nodes as plain data, for a cell's manifest."""
    return [
        {
            "nodes": len(one.nodes),
            "zone": one.zone,
            "spot": one.spot,
            "step_s": one.prices.step_s,
            "values": list(one.prices.values),
        }
        for one in market.groups
    ]
