"""The search of the paper, compiled: a population of allocations that is crossed, mutated and repaired.

An individual is an allocation [J, N] of 16-bit integers with the worth of each row; only rows that a child does not
inherit unchanged are valued again. Powers come from tables, see ``_tables``.

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

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simsched.jit import jit, leaf

from ._state import CAP, KEPT, LOW, FloatArray, IntArray, Problem, draw
from ._tables import build, middle, stages
from .allocation_problem import AllocationProblem, AnyIntArray, SearchOptions, SearchResult, fitness, job_values

Genes = NDArray[np.int16]
UNIT = 1 << 30


class Breeding(NamedTuple):
    """What the operators need besides the problem. Probabilities are in units of 1 / UNIT."""

    base: Genes  # [J, N] the current allocation, zero rows if a row may not be kept
    order: IntArray  # [J] jobs in the order in which repair serves them, pinned ones first
    pinned: IntArray  # [J] 1 if the row must stay
    size: IntArray  # [N] GPUs of each node
    crossover: int
    reset: int  # probability of resetting a row to the current one
    shrink: int  # probability that a row, then each of its elements, is set to 0
    random: IntArray  # [2]


@leaf
def row_worth(problem: Problem, base: Genes, genes: Genes, job: int) -> float:
    """Value one row."""
    total = 0
    count = 0
    same = True
    for n in range(genes.shape[1]):
        gpus = genes[job, n]
        same = same and gpus == base[job, n]
        if gpus > 0:
            total += gpus
            count += 1
    if same and problem.keep[job, KEPT] == 1:
        return problem.keep_value[job]  # type: ignore[no-any-return]
    return problem.value[job, max(0, min(count, problem.value.shape[1]) - 1), total]  # type: ignore[no-any-return]


@leaf
def mutate(breeding: Breeding, child: Genes, changed: IntArray, free: IntArray, present: IntArray) -> None:
    """Reset rows to the current ones, empty some elements, grow others into free GPUs; marks changed rows."""
    jobs, nodes = child.shape
    random, base = breeding.random, breeding.base
    for n in range(nodes):
        free[n] = breeding.size[n]
        present[n] = 0
    for j in range(jobs):
        if breeding.pinned[j] == 0 and draw(random, UNIT) < breeding.reset:
            changed[j] = 1
            for n in range(nodes):
                child[j, n] = base[j, n]
        if breeding.pinned[j] == 0 and draw(random, UNIT) < breeding.shrink:
            for n in range(nodes):
                if child[j, n] > 0 and draw(random, UNIT) < breeding.shrink:
                    child[j, n] = 0
                    changed[j] = 1
        for n in range(nodes):
            if child[j, n] > 0:
                free[n] -= child[j, n]
                present[n] += 1
    fresh = 1.0 / jobs
    for n in range(nodes):
        if free[n] <= 0:
            continue
        again = 1.0 / max(1, present[n])
        rare = int(UNIT * fresh)
        often = int(UNIT * (fresh + again - fresh * again))
        for j in range(jobs):
            if breeding.pinned[j] == 0 and draw(random, UNIT) < (often if child[j, n] > 0 else rare):
                child[j, n] += draw(random, breeding.size[n] - child[j, n] + 1)
                changed[j] = 1


@jit
def repair(problem: Problem, breeding: Breeding, child: Genes, changed: IntArray) -> None:
    """Make a child feasible: interference, caps, nodes, minima, in this order; earlier jobs of ``order`` win."""
    nodes = child.shape[1]
    used = np.zeros(nodes, np.int64)
    spread = np.zeros(nodes, np.int64)
    turn = np.arange(nodes)
    for j in breeding.order:
        count = 0
        total = 0
        for n in range(nodes):
            if child[j, n] > 0:
                count += 1
                total += child[j, n]
        if count > 1 and problem.exclusive == 1:
            for n in range(nodes):
                if child[j, n] > 0:
                    if spread[n] > 0:
                        total -= child[j, n]
                        child[j, n] = 0
                        changed[j] = 1
                    else:
                        spread[n] = 1
        if total > problem.limits[j, CAP] and breeding.pinned[j] == 0:
            rest = problem.limits[j, CAP]
            changed[j] = 1
            for i in range(nodes):
                k = i + draw(breeding.random, nodes - i)
                turn[i], turn[k] = turn[k], turn[i]
                n = turn[i]
                child[j, n] = min(child[j, n], rest)
                rest -= child[j, n]
    for j in breeding.order:
        total = 0
        for n in range(nodes):
            if child[j, n] > breeding.size[n] - used[n]:
                child[j, n] = breeding.size[n] - used[n]
                changed[j] = 1
            total += child[j, n]
            used[n] += child[j, n]
        if 0 < total < problem.limits[j, LOW] and breeding.pinned[j] == 0:
            changed[j] = 1
            for n in range(nodes):
                used[n] -= child[j, n]
                child[j, n] = 0


@leaf
def _tournament(breeding: Breeding, fit: FloatArray, size: int) -> int:
    a = draw(breeding.random, size)
    b = draw(breeding.random, size)
    return a if fit[a] >= fit[b] else b


@leaf
def _is_new(genes: Genes, fit: FloatArray, size: int, child: int) -> bool:
    """Whether no other individual is identical; only those of equal fitness are compared."""
    for i in range(size):
        if i != child and fit[i] == fit[child]:
            same = True
            for j in range(genes.shape[1]):
                for n in range(genes.shape[2]):
                    if genes[i, j, n] != genes[child, j, n]:
                        same = False
                        break
                if not same:
                    break
            if same:
                return False
    return True


@jit
def settle(problem: Problem, breeding: Breeding, genes: Genes, terms: FloatArray, i: int, changed: IntArray) -> float:
    """Repair an individual, value its changed rows and return its worth."""
    repair(problem, breeding, genes[i], changed)
    total = 0.0
    for j in range(genes.shape[1]):
        if changed[j] == 1:
            terms[i, j] = row_worth(problem, breeding.base, genes[i], j)
        total += terms[i, j]
    return total


@jit
def breed(problem: Problem, breeding: Breeding, genes: Genes, terms: FloatArray, fit: FloatArray, size: int) -> int:
    """Fill ``genes`` from ``size`` on with distinct children of the first ``size`` individuals; return the new size.

    Binary tournament, one cut between jobs, both children kept. Gives up after three attempts per place.
    """
    limit, jobs, nodes = genes.shape
    free = np.zeros(nodes, np.int64)
    present = np.zeros(nodes, np.int64)
    changed = np.zeros(jobs, np.int64)
    filled = size
    first = 0
    second = 0
    cut = 0
    for attempt in range(3 * (limit - size)):
        if filled == limit:
            break
        if attempt % 2 == 0:
            first = _tournament(breeding, fit, size)
            second = _tournament(breeding, fit, size)
            cut = draw(breeding.random, jobs) if draw(breeding.random, UNIT) < breeding.crossover else 0
        for j in range(jobs):
            parent = first if (j < cut) == (attempt % 2 == 0) else second
            changed[j] = 0
            terms[filled, j] = terms[parent, j]
            for n in range(nodes):
                genes[filled, j, n] = genes[parent, j, n]
        mutate(breeding, genes[filled], changed, free, present)
        fit[filled] = settle(problem, breeding, genes, terms, filled, changed)
        if _is_new(genes, fit, filled, filled):
            filled += 1
    return filled


@leaf
def survive(genes: Genes, terms: FloatArray, fit: FloatArray, filled: int, keep: int) -> int:
    """Move the ``keep`` fittest individuals to the front, in place; return how many remain."""
    for i in range(min(keep, filled)):
        best = i
        for k in range(i + 1, filled):
            if fit[k] > fit[best]:
                best = k
        if best != i:
            fit[i], fit[best] = fit[best], fit[i]
            for j in range(genes.shape[1]):
                terms[i, j], terms[best, j] = terms[best, j], terms[i, j]
                for n in range(genes.shape[2]):
                    genes[i, j, n], genes[best, j, n] = genes[best, j, n], genes[i, j, n]
    return min(keep, filled)


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
