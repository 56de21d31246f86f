"""The result and the steps of a search for prices; and each job's own prices, derived from common ones.

Own prices of jobs with fixed widths express that the jobs that run at a time must fit together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from itertools import pairwise
from math import gcd

import numpy as np

from simsched.bounds.certificate import PRICE_PARTS
from simsched.bounds.jobs import Floats, Ints, RelaxedJobs
from simsched.bounds.kernels import choose_each, pack_each

#: The most that rounding adds to a sum, relative to its parts, and the least progress that counts.
ROUNDING, _PROGRESS = 1e-11, 1e-5
#: The number of steps without progress before steps shorten.
_PATIENCE = 12


@dataclass(frozen=True, eq=False)
class Prices:
    """Prices, in `PRICE_PARTS`, of the intervals that start at `starts`, and the sum of flow times that they prove.

    `parts` are the contributions of jobs to it; `own` is as in `Certificate`.
    """

    starts: tuple[int, ...]
    prices: tuple[int, ...]
    proved: float
    parts: Floats = field(default_factory=lambda: np.empty(0))
    own: tuple[tuple[int, ...], ...] = ()


def climb(
    value: Callable[[Floats, Floats], float], spans: Floats, prices: Floats, best: float, steps: int, momentum: float
) -> Floats:
    """Improve prices of value `best` by steps that keep a part of the last direction; returns the best found.

    `value` returns the value of prices and writes by how much each is too low, in units of what `spans` price.
    """
    wanting, direction, top = np.empty(len(prices)), np.zeros(len(prices)), prices
    hoped, idle = 0.1 * abs(best), 0
    for _ in range(steps):
        found = value(prices, wanting)
        idle = 0 if found > best + _PROGRESS * abs(best) else idle + 1
        if found > best:
            best, top = found, prices
        if idle > _PATIENCE:
            hoped, idle, prices = hoped / 2, 0, top
            direction[:] = 0.0
            continue
        wanting[(prices <= 0) & (wanting < 0)] = 0.0
        direction = wanting + momentum * direction
        norm = float((direction * direction * spans).sum())
        if norm <= 0:
            break
        prices = np.maximum(0.0, prices + max(best + hoped - found, 0.0) / norm * direction)
    return top


#: The steps, the part of the last direction that each keeps, and the affordable work of a step: prices times units.
_STEPS, _MOMENTUM, _MOST_WORK, _FEWEST_STEPS = 240, 0.8, 6_000_000_000, 60
#: A job has prices until waiting costs this many times as much as the job does at the common prices.
_LONGER = 1.2


def own_prices(jobs: RelaxedJobs, common: Prices) -> Prices:
    """Return prices of each job's running time in each interval, derived from the common ones.

    A common price of GPU time lets a job run at 24/32 of its speed on 24 free GPUs. Own prices charge jobs for running,
    whatever their width, and pay back in each interval the dearest set of jobs that fits side by side (Lagrangian
    decomposition; Guignard and Kim, Math. Programming 1987). At a job's width times the common price, both are equal,
    so steps from there only raise the bound. If jobs have several speeds, if all have one width, which own prices
    cannot improve, or if there are too many jobs, it returns the common prices.
    """
    if jobs.cost_parts != 1 or jobs.rates.shape[1] != 1 or len(np.unique(jobs.costs)) == 1:
        return common
    release, work = jobs.release.astype(np.float64), jobs.work.astype(np.float64)
    starts = np.union1d(common.starts, jobs.release[jobs.release <= common.starts[-1]]).astype(np.float64)
    first = np.searchsorted(starts, release, side="right") - 1
    ends = np.searchsorted(starts, release + _LONGER * common.parts)
    counts = np.maximum(1, np.minimum(ends, len(starts) - 1) - first)
    part = reduce(gcd, (int(width) for width in np.unique(jobs.costs)), jobs.units)
    units = jobs.units // part
    steps = min(_STEPS, _MOST_WORK // (units * int(counts.sum())))
    if steps < _FEWEST_STEPS or first[-1] + 1 >= len(starts):
        return common
    rows = np.concatenate([[0], np.cumsum(counts)])
    widths = np.repeat(jobs.costs[:, 0], counts)
    intervals = np.arange(rows[-1]) - np.repeat(rows[:-1] - first, counts)
    spans = np.diff(starts)
    order, columns = _by_interval(intervals, len(spans))
    lengths, packed = spans[intervals], np.empty(len(intervals))

    def value(prices: np.ndarray, wanting: np.ndarray) -> float:
        pays = choose_each(release, work, starts, first, rows, prices, wanting)
        paid = pack_each(spans, columns, order, widths // part, units, prices, packed)
        np.subtract(wanting / lengths, packed, out=wanting)
        return pays - paid

    at_common = np.asarray(common.prices)[np.searchsorted(common.starts, starts, side="right") - 1] / PRICE_PARTS
    prices = widths * at_common[intervals]
    prices = climb(value, lengths, prices, common.proved, steps, _MOMENTUM)
    exact = np.rint(prices * PRICE_PARTS).astype(np.int64)
    proved = value(exact / PRICE_PARTS, np.empty(len(exact)))
    proved -= ROUNDING * (abs(proved) + 2 * float((exact / PRICE_PARTS * lengths).sum()))
    own = tuple(tuple(exact[low:high].tolist()) for low, high in pairwise(rows))
    return Prices(tuple(map(int, starts)), (0,) * len(starts), proved, common.parts, own)


def _by_interval(intervals: Ints, count: int) -> tuple[Ints, Ints]:
    """Return the indices of prices in order of their intervals, and the start of each interval."""
    order = np.argsort(intervals, kind="stable")
    return order, np.searchsorted(intervals[order], np.arange(count + 1))
