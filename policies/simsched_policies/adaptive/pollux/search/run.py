"""The entry point of the search."""

from dataclasses import replace
from typing import Literal

import numpy as np

from ._contenders import contenders, part_of
from .allocation_problem import AllocationProblem, AnyIntArray, IntArray, fitness
from .result import SearchOptions, SearchResult

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
    from ._fill import fill_idle

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
