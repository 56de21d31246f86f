"""Jobs as a bound sees them: releases, work, and the cost of progress in GPU time, all in integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from math import floor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simsched.bounds.check import filled

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

#: The parts of a tick that measure the work of jobs with several speeds, and the parts of GPU time that pay for it.
_PARTS = 1 << 20
_COST_PARTS = 1 << 40


@dataclass(frozen=True, slots=True)
class Speeds:
    """The possible speeds of a job: the most progress per tick by GPUs held (in units of the capacity).

    `points` are (GPUs, speed), both above 0. A job may mix them over time, so its speed is at most their concave
    envelope, and proportional to GPUs below the first point.
    """

    points: tuple[tuple[int, float], ...]

    @property
    def fastest(self) -> float:
        """Return the largest speed."""
        return max(speed for _, speed in self.points)

    def segments(self) -> list[tuple[int, float]]:
        """Return the concave envelope as (further GPUs, further speed), steepest first."""
        hull: list[tuple[int, float]] = [(0, 0.0)]
        top = 0.0
        for gpus, speed in sorted(self.points):
            if speed <= top:
                continue
            while len(hull) > 1 and _slope(hull[-2], hull[-1]) <= _slope(hull[-1], (gpus, speed)):
                hull.pop()
            if hull[-1][0] == gpus:
                hull.pop()
            hull.append((gpus, speed))
            top = speed
        return [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(hull)]


def _slope(low: tuple[int, float], high: tuple[int, float]) -> float:
    return (high[1] - low[1]) / (high[0] - low[0]) if high[0] > low[0] else float("inf")


@dataclass(frozen=True, eq=False)
class RelaxedJobs:
    """Jobs in order of release, on `units` units of GPUs; times count ticks.

    In its i-th mode, job j makes up to `rates[j, i]` progress per tick, each unit of it for `costs[j, i]` /
    `cost_parts` unit-ticks, until it has made `work[j]`; a rate of 0 rules a mode out. Rates are rounded up, work and
    costs down, so that each schedule of the real jobs is a schedule of these. If `whole`, completions are at whole
    ticks. `places` are the indices of the jobs in the original list.
    """

    release: Ints
    work: Ints
    rates: Ints
    costs: Ints
    units: int
    cost_parts: int = 1
    whole: bool = False
    places: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.release)

    @cached_property
    def plain(self) -> dict[str, Any]:
        """The jobs as the check reads them."""
        lists = {name: getattr(self, name).tolist() for name in ("release", "work", "rates", "costs")}
        return {**lists, "units": self.units, "cost_parts": self.cost_parts, "whole": self.whole}

    @cached_property
    def capacity(self) -> int:
        """The most units that jobs can fill."""
        return filled(self.plain)

    @cached_property
    def shortest(self) -> Floats:
        """The ticks that each job takes at its full speed."""
        return np.asarray(self.work / self.rates.sum(axis=1))

    @cached_property
    def area(self) -> Floats:
        """The least unit-ticks of the capacity that each job takes."""
        cheapest = np.where(self.rates > 0, self.costs, np.iinfo(np.int64).max).min(axis=1)
        return np.asarray(self.work * (cheapest / self.cost_parts))


def relaxed_jobs(
    release: Sequence[int], work: Sequence[float], speeds: Sequence[Speeds], units: int, *, on_ticks: bool = True
) -> RelaxedJobs:
    """Return jobs of `work` progress at `speeds`, released at whole ticks, on `units` units of GPUs.

    If every job has one speed and takes a whole number of ticks at it, work is in ticks, else in parts of them. Jobs
    then also complete at ticks, unless `on_ticks` is false. Raises `ValueError` for a job without work.
    """
    if any(amount <= 0 for amount in work):
        raise ValueError("a job without work cannot be bounded")
    envelopes = {one: one.segments() for one in set(speeds)}
    most = max(map(len, envelopes.values()), default=1)
    durations = [amount / one.fastest for amount, one in zip(work, speeds, strict=True)]
    whole = most == 1 and all(duration == int(duration) for duration in durations)
    parts, cost_parts = (1, 1) if whole else (_PARTS, _COST_PARTS)
    ways = {one: _ways(one, steps, parts, cost_parts) for one, steps in envelopes.items()}
    rates, costs = (np.zeros((len(work), most), dtype=np.int64) for _ in range(2))
    for place, one in enumerate(speeds):
        for way, (rate, cost) in enumerate(ways[one]):
            rates[place, way], costs[place, way] = rate, cost
    amounts = np.array([floor(duration * parts) for duration in durations], dtype=np.int64)
    order = np.lexsort((np.arange(len(work)), np.asarray(release, dtype=np.int64)))
    released = np.asarray(release, dtype=np.int64)[order]
    return RelaxedJobs(
        released, amounts[order], rates[order], costs[order], units, cost_parts, whole and on_ticks, order
    )


def _ways(one: Speeds, steps: Sequence[tuple[int, float]], parts: int, cost_parts: int) -> list[tuple[int, int]]:
    """Return (rate, cost) of each segment; float rounding is far below the one part by which rates grow."""
    if parts == 1:
        return [(1, steps[0][0])]
    rates = [int(speed / one.fastest * parts) + 1 for _, speed in steps]
    return [(rate, gpus * cost_parts // rate) for (gpus, _), rate in zip(steps, rates, strict=True)]
