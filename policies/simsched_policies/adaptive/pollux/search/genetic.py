"""The search of the paper: a population of allocations that is crossed, mutated and repaired, compiled.

After Pollux (OSDI'21) section 4.2.1 and its published simulator: population 100, at most 100 generations, one-point
crossover between jobs with probability 0.9, rows reset to the current ones with probability 0.1, elements emptied,
growth into free GPUs, and repair. What differs, and why:

- Selection and survival use the fitness alone. The published search sorts by fitness and a utility (NSGA-II) but
  returns the fittest; one objective spends no effort on a front that is thrown away.
- The current allocation is always in the first population: the result is never worse than changing nothing, which the
  published search may lose. The previous population is matched by job, not by position.
- Repair takes GPUs from the second *distributed* job of a node; the published one also takes them from jobs on a single
  node that come later in the order. Pinned jobs are served first.
- It stops when the best individual has not improved for some generations.

Memory: 4 bytes x population x jobs x nodes, and 16 x population x jobs.
"""

import numpy as np

from ._genetic import UNIT, Breeding, Genes, breed, settle, survive
from ._state import KEPT, IntArray, Problem
from ._tables import build, middle, stages
from .allocation_problem import AllocationProblem, AnyIntArray, FloatArray, fitness, job_values
from .result import SearchOptions, SearchResult

CROSSOVER, RESET, SHRINK = 0.9, 0.1, 0.1


def search_genetic(
    problem: AllocationProblem, population: AnyIntArray, rng: np.random.Generator, options: SearchOptions
) -> SearchResult:
    """Search a round with nodes and jobs that may move; ``population`` [P, J, N] may be empty."""
    random = rng.integers(1, 2147483000, size=2)
    first = [problem.current, *population][: options.population_size]
    genes = np.zeros((2 * options.population_size, problem.jobs, problem.nodes), np.int16)
    genes[: len(first)] = np.clip(np.stack(first), 0, problem.node_gpus)
    size, unit = len(first), middle(problem, problem.current_values, 0.0)
    generations = evaluations = 0
    for exponent in stages(problem.fairness):
        tables = build(problem, exponent, unit)
        size, rounds, tried = _evolve(problem, tables, random, genes, size, options)
        generations, evaluations = generations + rounds, evaluations + tried
        unit = middle(problem, job_values(problem, genes[0]), problem.fairness)
    found = genes[:size].copy()
    return SearchResult(
        found[0].astype(problem.current.dtype), fitness(problem, found[0]), found, generations, evaluations
    )


def _evolve(
    problem: AllocationProblem, tables: Problem, random: IntArray, genes: Genes, size: int, options: SearchOptions
) -> tuple[int, int, int]:
    """Evolve the first ``size`` individuals in place, best first; return their number, generations and evaluations."""
    breeding = _breeding(problem, tables, random)
    terms = np.zeros(genes.shape[:2])
    fit: FloatArray = np.full(genes.shape[0], -np.inf)
    everything = np.ones(problem.jobs, np.int64)
    for i in range(size):
        genes[i, problem.held] = problem.current[problem.held]
        fit[i] = settle(tables, breeding, genes, terms, i, everything)
    size, evaluations = survive(genes, terms, fit, size, size), size
    best, since, generation = fit[0], 0, 0
    while generation < options.generations - 1 and since < options.stagnation:
        generation += 1
        filled = breed(tables, breeding, genes[: size + options.population_size], terms, fit, size)
        evaluations += filled - size
        if filled == size:
            break
        size = survive(genes, terms, fit, filled, options.population_size)
        since = 0 if fit[0] > best else since + 1
        best = fit[0]
    return size, generation, evaluations


def _breeding(problem: AllocationProblem, tables: Problem, random: IntArray) -> Breeding:
    usable = tables.keep[:, KEPT] == 1
    return Breeding(
        base=np.where(usable[:, None], problem.current, 0).astype(np.int16),
        order=np.argsort(~problem.held, kind="stable"),
        pinned=problem.held.astype(np.int64),
        size=problem.node_gpus,
        crossover=int(CROSSOVER * UNIT),
        reset=int(RESET * UNIT),
        shrink=int(SHRINK * UNIT),
        random=random,
    )
