"""Sia's values of configurations, and the program that gives each job one (Jayaram Subramanya et al., SOSP'23).

A configuration is a GPU type and a number of nodes and GPUs: powers of two inside a node, whole nodes beyond.

The program is solved by prices on the GPUs of each type, which decouple the jobs; the cheapest offers bound the optimum
from below. Only offers slightly dearer than their job's cheapest go to the solver; more are added until the answer is
within the gap of the bound, or no offer left out can improve it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simsched.arithmetic import dot, power

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

#: Exponent p of goodputs, weight of a job left without GPUs, most GPUs of a job: the artifact's values.
FAIRNESS = -0.5
PENALTY = 1.1
MOST_GPUS = 64
#: No goodput counts as less than this, no goodput to the power p as more than that.
LEAST_GOODPUT = 1e-4
MOST_VALUE = 3000.0


class Configuration(NamedTuple):
    """GPUs of one type: `gpus` in all, on `nodes` nodes."""

    gpu_type: str
    nodes: int
    gpus: int


def configurations(groups: Mapping[str, tuple[int, int]], most_gpus: int = MOST_GPUS) -> tuple[Configuration, ...]:
    """List the configurations of a cluster, `groups` gives (nodes, GPUs per node) by GPU type.

    Inside a node: the powers of two and the whole node; beyond: whole nodes up to `most_gpus`.
    """
    found = []
    for gpu_type, (nodes, per_node) in sorted(groups.items()):
        inside = {2**power for power in range(per_node.bit_length())} | {per_node}
        found += [Configuration(gpu_type, 1, gpus) for gpus in sorted(inside) if gpus <= min(per_node, most_gpus)]
        most_nodes = min(nodes, most_gpus // per_node)
        found += [Configuration(gpu_type, count, count * per_node) for count in range(2, most_nodes + 1)]
    return tuple(found)


def rigid(groups: Mapping[str, tuple[int, int]], gpus: int) -> tuple[Configuration, ...]:
    """List the configurations of a job that takes exactly `gpus` GPUs: one on each type that has that many."""
    return tuple(
        Configuration(gpu_type, -(-gpus // per_node), gpus)
        for gpu_type, (nodes, per_node) in sorted(groups.items())
        if gpus <= nodes * per_node
    )


def may_grow_to(largest_gpus: int, most_gpus: int = MOST_GPUS) -> int:
    """Return the most GPUs that an adaptive job may get next: twice the most it ran on, or one if it never ran."""
    return min(max(2 * largest_gpus, 1), most_gpus)


def restart_factor(age_s: float, restarts: int, delay_s: float) -> float:
    """Return the factor in [0, 1] on the goodput of a configuration that differs from the current one.

    The share of its life that a job would have spent on training with one more restart, at `delay_s` each; 1 while it
    is no older than one restart (artifact).
    """
    if age_s <= delay_s:
        return 1.0
    return max(age_s - restarts * delay_s, 0.0) / (age_s + delay_s)


def bootstrapped(rate: float, alone_here: float, alone_there: float) -> float:
    """Return the speed on several GPUs of a type on which the job ran on one GPU only (the bootstrap of unknown types).

    `rate` is the speed on as many GPUs of a known type, `alone_there` that on one GPU of that type, `alone_here` the
    speed on one GPU of the type in question.
    """
    return alone_here / alone_there * rate


def values(
    goodputs: Floats, gpus: Integers, current: int = -1, factor: float = 1.0, fairness: float = FAIRNESS
) -> Floats:
    """Return the value of each configuration of one job: shape (c,); smaller is better for `fairness` < 0.

    `goodputs` and `gpus` are by configuration, `current` is the index of the one held (-1 for none), `factor` its
    `restart_factor`. Goodputs are relative to the least of them, which counts as much as its GPUs.
    """
    floored = np.maximum(goodputs, LEAST_GOODPUT)
    least = int(np.argmin(floored))
    row = floored / floored[least] * gpus[least]
    others = np.arange(len(row)) != current
    row = np.where(others & (current >= 0), row * factor, row)
    powered: Floats = np.minimum(np.round(power(np.maximum(row, LEAST_GOODPUT), fairness), 2), MOST_VALUE)
    return powered


class Offers(NamedTuple):
    """The configurations on offer to the jobs, as arrays of shape (m,), sorted by job.

    `job` and `gpu_type` count from 0; `value` is each offer's value. A rigid job has one offer per type, an adaptive
    one has one per configuration, a restarting one only the one it holds.
    """

    job: Integers
    gpu_type: Integers
    gpus: Integers
    value: Floats


def offers_of(rows: Sequence[tuple[Sequence[int], Sequence[int], Sequence[float]]]) -> Offers:
    """Combine the offers of jobs: for each job the types, GPUs and values of its configurations."""
    job = np.repeat(np.arange(len(rows)), [len(types) for types, _, _ in rows])
    types, gpus, value = (np.array([cell for row in rows for cell in row[part]]) for part in range(3))
    return Offers(job, types.astype(np.int64), gpus.astype(np.int64), value.astype(np.float64))


def choose(
    offers: Offers,
    room: Integers,
    jobs: int,
    *,
    weights: Floats | None = None,
    must: Flags | None = None,
    fairness: float = FAIRNESS,
    penalty: float = PENALTY,
) -> Integers:
    """Choose at most one offer for each of `jobs` jobs: an index into the offers, -1 for none.

    `room` counts the GPUs of each type, `weights` and `must` (the job must get an offer) are by job. For negative
    `fairness`, minimises the weighted values plus `penalty` for each job without GPUs; for positive, maximises the
    values less the penalties. Raises `ValueError` if the jobs that must get an offer do not fit.
    """
    weight = np.ones(jobs) if weights is None else weights
    sign = 1.0 if fairness < 0 else -1.0
    cost = sign * weight[offers.job] * offers.value - penalty
    needed = np.zeros(jobs, dtype=bool) if must is None else must
    return solve(OfferProblem(offers.job, offers.gpu_type, offers.gpus, cost, room, needed))


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
