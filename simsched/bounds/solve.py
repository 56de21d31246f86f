"""The search for a lower bound: prices of GPU time over time, improved step by step."""

from __future__ import annotations

from collections.abc import Callable
from math import floor

import numpy as np

from simsched.bounds.certificate import PRICE_PARTS, Certificate
from simsched.bounds.jobs import Floats, RelaxedJobs
from simsched.bounds.kernels import evaluate, fast_machine

#: Intervals of the coarsest and of the finest grid of prices, and how much finer each is than the one before.
_COARSEST, _FINEST, _FINER = 256, 4096, 4
#: Steps on each grid, and how many without progress before they are shortened.
_STEPS, _PATIENCE = 160, 12
#: How much of the last direction a step keeps.
_MOMENTUM = 0.5
#: Intervals that jobs look at in the steps on one grid, at most: where each step takes long, there are fewer.
_MOST_VISITS, _FEWEST_STEPS = 20_000_000, 8
#: Progress worth noting, and what rounding could add to a sum, relative to the parts of the sum.
_PROGRESS, _ROUNDING = 1e-5, 1e-11


def lower_bound(jobs: RelaxedJobs) -> Certificate:
    """Return lower bounds of the jobs' completion times and makespan, with what proves them.

    Prices of GPU time are a Lagrangian relaxation of the capacity: each job is charged for the GPU time that it holds
    and chooses its own completion time, the least sum of both. Every choice of prices gives a bound (weak duality), so
    neither the grid of intervals nor the number of steps can raise it above the best schedule. The search is a
    subgradient method with Polyak's steps towards a target that is lowered where it is not reached. The other bound is
    that of one machine with all GPUs, which shortest-remaining-area-first solves (Schrage 1968). Equal input gives
    equal bounds.
    """
    release, area = jobs.release.astype(np.float64), jobs.area
    stretches, worth, ends = (np.empty(size) for size in (4 * len(jobs) + 1, 4 * len(jobs) + 1, len(jobs)))
    count = fast_machine(release, area, float(jobs.capacity), stretches, worth, ends)
    starts, prices, flow = _search(jobs, stretches[:count], worth[:count], ends)
    fast_flow = float((ends - release).sum()) * (1 - _ROUNDING * len(jobs))
    makespan_from, makespan = _makespan(jobs)
    by_prices = flow >= fast_flow
    return Certificate(
        jobs=jobs,
        starts=starts if by_prices else (0,),
        prices=prices if by_prices else (0,),
        fast_machine=not by_prices,
        flow_sum=max(0, floor(max(flow, fast_flow))),
        makespan=floor(makespan * (1 - _ROUNDING)),
        makespan_from=makespan_from,
    )


def _search(
    jobs: RelaxedJobs, stretches: Floats, worth: Floats, ends: Floats
) -> tuple[tuple[int, ...], tuple[int, ...], float]:
    """Return starts of intervals, their prices in `PRICE_PARTS`, and the sum of flow times that these prove."""
    release, work = jobs.release.astype(np.float64), jobs.work.astype(np.float64)
    rates, costs = jobs.rates.astype(np.float64), jobs.costs / jobs.cost_parts
    capacity = float(jobs.capacity)

    visits = np.zeros(1, dtype=np.int64)

    def value(starts: Floats, prices: Floats, used: Floats) -> float:
        visits[0] = 0
        return evaluate(release, work, rates, costs, capacity, starts, prices, used, visits)

    begun = np.zeros(len(stretches))  # the price at the start of each stretch: what a unit-tick less would delay
    for place in range(len(stretches) - 2, -1, -1):
        if worth[place] > 0:
            begun[place] = begun[place + 1] + worth[place] * (stretches[place + 1] - stretches[place])
    grid = _grid(stretches, max(float(ends.max()), float((release + jobs.shortest).max())), 8 * len(jobs))
    every = max(1, len(grid) // _COARSEST)
    starts, prices = grid[:1], np.zeros(1)
    best = -np.inf
    while True:
        finer = np.append(grid[:-1:every], grid[-1])
        candidates = [np.interp(finer, stretches, begun * scale) for scale in (0, 0.5, 1.0)]
        if len(starts) > 1:
            candidates.append(np.interp(finer, starts, prices))
        for one in candidates:
            one[-1] = 0.0
            found = value(finer, one, np.empty(len(finer)))
            if one is candidates[0] or found > best:
                best, chosen = found, one
        steps = min(_STEPS, max(_FEWEST_STEPS, _MOST_VISITS // (int(visits[0]) + 1)))
        starts, prices = finer, _climb(value, capacity, finer, chosen, best, steps)
        if every == 1:
            break
        every = max(1, every // _FINER)
    exact = np.rint(prices * PRICE_PARTS)
    proved = value(starts, exact / PRICE_PARTS, np.empty(len(starts)))
    charged = capacity * float((exact[:-1] / PRICE_PARTS * np.diff(starts)).sum())
    proved -= _ROUNDING * (abs(proved) + 2 * charged)
    return tuple(map(int, starts)), tuple(map(int, exact)), proved


def _grid(stretches: Floats, end: float, most: int) -> Floats:
    """Return up to `most` whole ticks, from 0 to the end of all, dense where much happens."""
    quarter = min(_FINEST, most) // 4
    even = np.linspace(0.0, end, quarter)
    busy = np.quantile(stretches, np.linspace(0, 1, 3 * quarter))
    return np.unique(np.ceil(np.concatenate([[0.0], even, busy])))


def _climb(
    value: Callable[[Floats, Floats, Floats], float],
    capacity: float,
    starts: Floats,
    prices: Floats,
    best: float,
    steps: int,
) -> Floats:
    """Improve prices, the last of which stays 0; returns the best found."""
    spans = np.diff(starts)
    used, direction, top = np.empty(len(starts)), np.zeros(len(spans)), prices
    hoped, idle = 0.1 * abs(best), 0
    for _ in range(steps):
        found = value(starts, prices, used)
        idle = 0 if found > best + _PROGRESS * abs(best) else idle + 1
        if found > best:
            best, top = found, prices
        if idle > _PATIENCE:
            hoped, idle, prices = hoped / 2, 0, top
            direction[:] = 0.0
            continue
        wanting = used[:-1] / spans - capacity
        wanting[(prices[:-1] <= 0) & (wanting < 0)] = 0.0
        direction = wanting + _MOMENTUM * direction
        norm = float((direction * direction * spans).sum())
        if norm <= 0:
            break
        prices = prices.copy()
        prices[:-1] = np.maximum(0.0, prices[:-1] + max(best + hoped - found, 0.0) / norm * direction)
    return top


def _makespan(jobs: RelaxedJobs) -> tuple[int, float]:
    """Return the tick from which work is counted, and the makespan that follows from it.

    Work that a job cannot have done before that tick, even at full speed, must be done on the capacity after it.
    """
    longest = float((jobs.release + jobs.shortest).max())
    after = np.cumsum(jobs.area[::-1])[::-1]
    ranked = np.argsort(-(jobs.release + after / jobs.capacity), kind="stable")[:64]
    best = 0, 0.0
    for tick in sorted({int(jobs.release[place]) for place in ranked}):
        done = np.maximum(0.0, tick - jobs.release) / jobs.shortest
        left = float((jobs.area * np.maximum(0.0, 1 - done)).sum())
        found = tick + left / jobs.capacity
        if found > best[1]:
            best = tick, found
    return best[0], max(longest, best[1])
