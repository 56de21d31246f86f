"""The program that gives each job at most one of its offers within the GPUs of each type, solved by prices.

Prices on the GPUs of each type decouple the jobs, and the cheapest offers bound the optimum from below. Only offers
slightly dearer than their job's cheapest go to the solver; more are added until the answer is within the gap of the
bound, or no offer left out can improve it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simsched.arithmetic import dot

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

#: Cuts after which prices are good enough; any prices give a valid bound.
MOST_CUTS = 60
#: The share of the best bound by which the bound of the prices may fall short.
PRICE_GAP = 1e-5
#: The share of the optimum to which the answer is proven; the artifact's solver also stops there.
RELATIVE_GAP = 1e-4
NODE_LIMIT = 5000
#: The number of offers up to which all go to the solver.
SMALL = 200


@dataclass(frozen=True)
class OfferProblem:
    """Offers sorted by job: `job`, `gpu_type`, `gpus` and `cost` of shape (m,).

    `room` counts the GPUs of each type; `must` marks the jobs that must get an offer. A job without one costs nothing,
    so only offers of negative cost are worth taking. Jobs without offers are left out.
    """

    job: Integers
    gpu_type: Integers
    gpus: Integers
    cost: Floats
    room: Integers
    must: Flags


def solve(problem: OfferProblem) -> Integers:
    """Choose offers of least total cost: for each job an index into the offers, -1 for none.

    Raises `ValueError` if the jobs that must get an offer do not fit.
    """
    chosen = np.full(len(problem.must), -1, dtype=np.int64)
    if not len(problem.job):
        return chosen
    free = _if_room_is_plenty(problem)
    if free is not None:
        return free
    if len(problem.job) <= SMALL:
        best, _ = _milp(problem, np.arange(len(problem.job)))
        chosen[problem.job[best]] = best
        return chosen
    prices, bound = _prices(problem)
    dearer = _dearer(problem, prices)
    enough = max(abs(bound), 1.0) * RELATIVE_GAP
    slack = enough / 8
    while True:
        kept = np.flatnonzero(dearer <= slack)
        best, cost = _milp(problem, kept)
        if cost - bound <= max(slack, enough) or len(kept) == len(problem.job):
            break
        slack = min(4 * slack, cost - bound)
    chosen[problem.job[best]] = best
    return chosen


def _reduced(problem: OfferProblem, prices: Floats) -> tuple[Floats, Integers, Floats, Floats]:
    """Return each offer's cost with prices, and each job's first offer, least cost, and best cost (0 if unserved)."""
    costs = problem.cost + prices[problem.gpu_type] * problem.gpus
    starts = np.flatnonzero(np.diff(problem.job, prepend=-1))
    least = np.minimum.reduceat(costs, starts)
    best = np.where(problem.must[problem.job[starts]], least, np.minimum(least, 0.0))
    return costs, starts, least, best


def _if_room_is_plenty(problem: OfferProblem) -> Integers | None:
    """Give every job its cheapest offer if all of them fit at once, which is optimal; else None."""
    order = np.lexsort((np.arange(len(problem.job)), problem.cost, problem.job))
    first = order[np.unique(problem.job[order], return_index=True)[1]]
    first = first[(problem.cost[first] < 0) | problem.must[problem.job[first]]]
    used = np.bincount(problem.gpu_type[first], weights=problem.gpus[first], minlength=len(problem.room))
    if np.any(used > problem.room):
        return None
    chosen = np.full(len(problem.must), -1, dtype=np.int64)
    chosen[problem.job[first]] = first
    return chosen


def _dearer(problem: OfferProblem, prices: Floats) -> Floats:
    """Return each offer's extra cost over its job's choice at these prices."""
    costs, starts, _, best = _reduced(problem, prices)
    counts = np.diff(np.append(starts, len(costs)))
    dearer: Floats = costs - np.repeat(best, counts)
    return dearer


def _bound(problem: OfferProblem, prices: Floats) -> tuple[float, Floats]:
    """Return the bound that prices give and its gradient: GPUs asked for less GPUs available."""
    costs, starts, least, best = _reduced(problem, prices)
    ends = np.append(starts[1:], len(costs))
    taken = (best == least) & ((least < 0) | problem.must[problem.job[starts]])
    counts = ends - starts
    first = np.flatnonzero((costs == np.repeat(least, counts)) & np.repeat(taken, counts))
    _, once = np.unique(problem.job[first], return_index=True)
    picks = first[once]
    asked = np.bincount(problem.gpu_type[picks], problem.gpus[picks].astype(np.float64), len(problem.room))
    return float(best.sum() - dot(prices, problem.room)), np.asarray(asked - problem.room, dtype=np.float64)


def _prices(problem: OfferProblem) -> tuple[Floats, float]:
    """Return good prices and their bound, by cutting planes."""
    from scipy.optimize import linprog  # slow to load

    types = len(problem.room)
    highest = float(np.max(np.abs(problem.cost))) + 1.0
    prices, best, at = np.zeros(types), -np.inf, np.zeros(types)
    rows: list[Floats] = []
    rights: list[float] = []
    for _ in range(MOST_CUTS):
        value, slope = _bound(problem, prices)
        if value > best:
            best, at = value, prices
        rows.append(np.append(-slope, 1.0))
        rights.append(value - dot(slope, prices))
        cut = linprog(
            np.append(np.zeros(types), -1.0),
            A_ub=np.array(rows),
            b_ub=np.array(rights),
            bounds=[(0.0, highest)] * types + [(None, None)],
        )
        if cut.x is None or cut.fun is None or -cut.fun - best <= PRICE_GAP * max(1.0, abs(best)):
            break
        prices = cut.x[:types]
    return at, best


def _milp(problem: OfferProblem, kept: Integers) -> tuple[Integers, float]:
    """Solve the program of the offers `kept`; returns the chosen offers and their cost, infinite if none fits."""
    from scipy.optimize import Bounds, LinearConstraint, milp  # slow to load
    from scipy.sparse import coo_array  # slow to load

    each = np.arange(len(kept))
    jobs = len(problem.must)
    ones = np.ones(len(kept))
    one = coo_array((ones, (problem.job[kept], each)), shape=(jobs, len(kept))).tocsr()
    room = coo_array(
        (problem.gpus[kept].astype(np.float64), (problem.gpu_type[kept], each)), shape=(len(problem.room), len(kept))
    ).tocsr()
    if not len(kept):
        return kept, np.inf if problem.must.any() else 0.0
    solution = milp(
        problem.cost[kept],
        integrality=np.ones(len(kept), dtype=np.int64),
        bounds=Bounds(0, 1),
        constraints=[
            LinearConstraint(one, problem.must.astype(float), 1.0),
            LinearConstraint(room, -np.inf, problem.room.astype(float)),
        ],
        options={"mip_rel_gap": RELATIVE_GAP, "node_limit": NODE_LIMIT},
    )
    if solution.x is None:
        if len(kept) == len(problem.job):
            raise ValueError("the jobs that must keep their GPUs do not fit on the cluster")
        return kept[:0], np.inf
    taken = np.rint(solution.x)
    return kept[taken.astype(bool)], float(dot(problem.cost[kept], taken))
