"""The entry point of the search, and which waiting jobs it looks at when they far outnumber the GPUs.

If an optimal allocation gives a waiting job g GPUs on a class of nodes, the others hold at most G - g. Of the G - g + 1
waiting jobs that value these GPUs most, at least one holds nothing and can take its place without loss of fitness.
Hence it suffices to search jobs among the first G - g + 1 for some g and some class; ignoring the others loses no
optimum.
"""

from dataclasses import replace
from typing import Literal

import numpy as np

from .allocation_problem import (
    AllocationProblem,
    AnyIntArray,
    BoolArray,
    FloatArray,
    IntArray,
    SearchOptions,
    SearchResult,
    fitness,
)

#: Up to this many waiting jobs are all searched, whatever the number of GPUs.
MANY = 1000


def contenders(problem: AllocationProblem) -> IntArray | None:
    """Return the jobs to search with: those that hold GPUs, are pinned, or may get some; None for all.

    All are searched if at most `MANY` jobs wait, or at most as many as there are GPUs.
    """
    gpus = int(problem.node_gpus.sum())
    waiting = ~problem.held & (problem.current_nodes == 0)
    places = np.flatnonzero(waiting)
    if places.size <= max(MANY, gpus):
        return None
    chosen = ~waiting
    chosen[places[_may_get_some(problem, places, gpus)]] = True
    return np.flatnonzero(chosen)


def part_of(problem: AllocationProblem, jobs: IntArray) -> AllocationProblem:
    """Return the problem of some jobs alone; the others hold nothing."""
    weight = problem.weight if np.ndim(problem.weight) == 0 else np.asarray(problem.weight)[jobs]
    return replace(
        problem,
        speedup=problem.speedup[jobs],
        max_gpus=problem.max_gpus[jobs],
        current=problem.current[jobs],
        restart_factor=problem.restart_factor[jobs],
        min_gpus=problem.lowest[jobs],
        pinned=problem.held[jobs],
        weight=weight,
    )


def _may_get_some(problem: AllocationProblem, places: IntArray, gpus: int) -> BoolArray:
    """Mark the waiting jobs at `places` that are among the first for some number of GPUs on some class of nodes."""
    worth = problem.scaled_after_restart[places]
    low, high = problem.lowest[places], problem.max_gpus[places]
    marked = np.zeros(places.size, dtype=np.bool_)
    for given in range(1, min(worth.shape[2] - 1, gpus) + 1):
        able = np.flatnonzero((low <= given) & (high >= given))
        for group in range(min(worth.shape[1], given)):
            values = worth[able, group, given]
            gain = np.flatnonzero(values > problem.floor)
            marked[able[gain[_first(values[gain], gpus - given + 1)]]] = True
    return marked


def _first(values: FloatArray, most: int) -> IntArray:
    """Return the indices of the `most` largest values; ties go to the first."""
    if values.size <= most:
        return np.arange(values.size)
    least = np.partition(values, values.size - most)[values.size - most]
    larger = np.flatnonzero(values > least)
    return np.concatenate([larger, np.flatnonzero(values == least)[: most - larger.size]])


Method = Literal["hybrid", "genetic"]


def search(
    problem: AllocationProblem,
    *,
    method: Method = "hybrid",
    population: AnyIntArray | None = None,
    seed_or_rng: int | np.random.Generator = 0,
    options: SearchOptions | None = None,
) -> SearchResult:
    """Find an allocation of high fitness, never lower than that of keeping the current rows that still fit.

    The same arguments and seed give the same allocation, bit for bit, with numba's compiler on or off.

    Args:
        problem: the round.
        method: "hybrid" (see ``hybrid``) or "genetic" (see ``genetic``).
        population: [P, J, N] allocations to start from besides the current one, for example the previous round's
            population after ``match_population``; need not be feasible.
        seed_or_rng: the only source of randomness.
        options: how hard to search.

    Raises:
        ValueError: for an unknown method, or a population of the wrong shape or with negative numbers.
    """
    if method not in ("hybrid", "genetic"):
        raise ValueError(f'method must be "hybrid" or "genetic", not {method!r}')
    shape = problem.current.shape
    starts = np.zeros((0, *shape), np.int64) if population is None else np.asarray(population)
    if starts.ndim != 3 or starts.shape[1:] != shape or np.any(starts < 0):
        raise ValueError(f"population must have shape [P, {shape[0]}, {shape[1]}], none below 0")
    if problem.jobs == 0 or problem.nodes == 0 or problem.held.all():
        allocation = np.where(problem.held[:, None], problem.current, 0)
        return SearchResult(allocation, fitness(problem, allocation), allocation[None], 0, 1)
    options = options or SearchOptions()
    rng = np.random.default_rng(seed_or_rng)
    jobs = contenders(problem)
    if jobs is None:
        found = _find(problem, method, starts, rng, options)
    else:
        found = _for_all(problem, jobs, _find(part_of(problem, jobs), method, starts[:, jobs], rng, options))
    if not options.fill_idle:
        return found
    from ._tables import fill_idle

    filled = fill_idle(problem, found.allocation, rng)
    if filled is found.allocation:
        return found
    rest = found.population[1:]
    return replace(found, allocation=filled, population=np.concatenate([filled[None].astype(rest.dtype), rest]))


def _find(
    problem: AllocationProblem, method: Method, starts: AnyIntArray, rng: np.random.Generator, options: SearchOptions
) -> SearchResult:
    if method == "hybrid":
        from .hybrid import search_hybrid as find
    else:
        from .genetic import search_genetic as find
    return find(problem, starts, rng, options)


def _for_all(problem: AllocationProblem, jobs: IntArray, found: SearchResult) -> SearchResult:
    """Extend a result for some jobs to all of them; the others hold nothing."""
    allocation = np.zeros(problem.current.shape, problem.current.dtype)
    allocation[jobs] = found.allocation
    population = np.zeros((found.population.shape[0], *problem.current.shape), found.population.dtype)
    population[:, jobs] = found.population
    return replace(found, allocation=allocation, population=population, fitness=fitness(problem, allocation))
