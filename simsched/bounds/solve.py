"""The search for a lower bound: prices of GPU time over time, improved step by step."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from simsched.bounds.certificate import PRICE_PARTS, Certificate
from simsched.bounds.check import proved
from simsched.bounds.jobs import Floats, RelaxedJobs
from simsched.bounds.kernels import evaluate, fast_machine
from simsched.bounds.makespan import worth_of
from simsched.bounds.prices import ROUNDING, Prices, climb, own_prices

#: Intervals of the coarsest and of the finest grid of prices, and how much finer each is than the previous one.
_COARSEST, _FINEST, _FINER = 256, 4096, 4
#: Steps on each grid, and the part of the last direction that a step keeps.
_STEPS, _MOMENTUM = 160, 0.5
#: The most intervals that jobs visit in the steps on one grid: if steps take long, there are fewer.
_MOST_VISITS, _FEWEST_STEPS = 20_000_000, 8


def lower_bound(jobs: RelaxedJobs, *, quick: bool = False) -> Certificate:
    """Return lower bounds on the jobs' completion times and makespan, with their proof.

    A `quick` search, which leaves out the finer grids and own prices, finds lower ones in a fraction of the time.

    Prices of GPU time are a Lagrangian relaxation of the capacity: each job is charged for the GPU time that it holds
    and chooses its own completion time, the least sum of both. Every choice of prices gives a bound (weak duality), so
    neither the grid of intervals nor the number of steps can raise it above the best schedule. The search is a
    subgradient method with Polyak's steps towards a target that is lowered if it is not reached. Jobs of fixed widths
    then get their own prices (`own_prices`). The other bound is that of one machine with all GPUs, which
    shortest-remaining-area-first solves (Schrage 1968). Equal input gives equal bounds.
    """
    release, area = jobs.release.astype(np.float64), jobs.area
    stretches, worth, ends = (np.empty(size) for size in (4 * len(jobs) + 1, 4 * len(jobs) + 1, len(jobs)))
    count = fast_machine(release, area, float(jobs.capacity), stretches, worth, ends)
    common = _search(jobs, stretches[:count], worth[:count], ends, quick=quick)
    alone = Prices((0,), (0,), float((ends - release).sum()) * (1 - ROUNDING * len(jobs)))
    best = max((common, *(() if quick else (own_prices(jobs, common),)), alone), key=lambda found: found.proved)
    values, packed = worth_of(jobs)
    found = Certificate(best.starts, best.prices, best.own, values, fast_machine=best is alone, packed=packed)
    flow_sum, makespan = proved(found.to_json(), jobs.plain)
    return replace(found, flow_sum=flow_sum, makespan=makespan)


def _search(jobs: RelaxedJobs, stretches: Floats, worth: Floats, ends: Floats, *, quick: bool) -> Prices:
    """Return prices that all jobs pay for a unit-tick."""
    release, work = jobs.release.astype(np.float64), jobs.work.astype(np.float64)
    rates, costs = jobs.rates.astype(np.float64), jobs.costs / jobs.cost_parts
    capacity = float(jobs.capacity)
    visits, parts = np.zeros(1, dtype=np.int64), np.empty(len(jobs))

    def value(starts: Floats, prices: Floats, wanting: Floats) -> float:
        visits[0] = 0
        used = np.empty(len(starts))
        found = evaluate(release, work, rates, costs, capacity, starts, np.append(prices, 0.0), used, parts, visits)
        wanting[:] = used[:-1] / np.diff(starts) - capacity
        return found

    begun = np.zeros(len(stretches))  # the price at the start of each stretch: the delay that one unit-tick less causes
    for place in range(len(stretches) - 2, -1, -1):
        if worth[place] > 0:
            begun[place] = begun[place + 1] + worth[place] * (stretches[place + 1] - stretches[place])
    grid = _grid(stretches, max(float(ends.max()), float((release + jobs.shortest).max())), 8 * len(jobs))
    every = max(1, len(grid) // _COARSEST)
    starts, prices = grid[:1], np.zeros(0)
    best = -np.inf
    while True:
        finer = np.append(grid[:-1:every], grid[-1])
        candidates = [np.interp(finer[:-1], stretches, begun * scale) for scale in (0, 0.5, 1.0)]
        if len(starts) > 1:
            candidates.append(np.interp(finer[:-1], starts, np.append(prices, 0.0)))
        for one in candidates:
            found = value(finer, one, np.empty(len(one)))
            if one is candidates[0] or found > best:
                best, chosen = found, one
        steps = min(_STEPS, max(_FEWEST_STEPS, _MOST_VISITS // (int(visits[0]) + 1)))
        starts, prices = finer, climb(partial(value, finer), np.diff(finer), chosen, best, steps, _MOMENTUM)
        if quick or every == 1:
            break
        every = max(1, every // _FINER)
    exact = np.rint(prices * PRICE_PARTS)
    flow = value(starts, exact / PRICE_PARTS, np.empty(len(prices)))
    charged = capacity * float((exact / PRICE_PARTS * np.diff(starts)).sum())
    flow -= ROUNDING * (abs(flow) + 2 * charged)
    return Prices(tuple(map(int, starts)), (*map(int, exact), 0), flow, parts)


def _grid(stretches: Floats, end: float, most: int) -> Floats:
    """Return up to `most` whole ticks, from 0 to the end of all, dense where there are many events."""
    quarter = min(_FINEST, most) // 4
    even = np.linspace(0.0, end, quarter)
    busy = np.quantile(stretches, np.linspace(0, 1, 3 * quarter))
    return np.unique(np.ceil(np.concatenate([[0.0], even, busy])))
