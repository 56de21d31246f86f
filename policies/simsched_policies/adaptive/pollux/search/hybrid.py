"""The default search: a greedy start from what runs now, then local search by ruin and recreate.

An unchanged row avoids the restart factor, hence most jobs keep theirs; a job that changes gains nothing from its old
place, hence its row is only a choice of (node class, GPUs) on any nodes with room. See ``_anneal`` for the moves. The
steps:

1. price a GPU by the Lagrangian relaxation of the total capacity, which also bounds the value that can be reached;
2. start from the current allocation or the best allocation of the previous population, whichever is fitter after
   the jobs without a row have bought GPUs at that price;
3. anneal; stop at the bound.

Exponents far from 0 are reached in two stages, because their terms differ by more than a double can hold.
"""

import numpy as np

from simsched.arithmetic import log

from ._anneal import Plan, anneal, load, price_gpus
from ._state import COUNT, KEPT, TOTAL, IntArray, State
from ._tables import build, current_values, empty_state, longest_row, middle, pack_rows, stages, unpack_rows, worth
from .allocation_problem import AllocationProblem, AnyIntArray, fitness, job_values
from .result import SearchOptions, SearchResult

MOVES, MOST_EXTRA, EXTRA = 150, 2500, 400  # moves a job, and in all min(2500, 400 a job) more
WARM, COLD = 0.1, 0.001  # first and last temperature, in typical terms
PRICES = np.array([0.9, 1.0, 1.1] * 5 + [0.0, 0.5, 2.0])  # mostly near the one found, now and then far off
MANY_GPUS = 2**15  # of a node; with fewer, populations are kept as 16-bit integers
LOGS = log((np.arange(1024) + 0.5) / 1024)


def search_hybrid(
    problem: AllocationProblem, population: AnyIntArray, rng: np.random.Generator, options: SearchOptions
) -> SearchResult:
    """Search a round that has jobs that may move, and nodes; ``population`` [P, J, N] may be empty."""
    random = rng.integers(1, 2147483000, size=2)
    starts: list[AnyIntArray] = [problem.current, *population[: options.starts]]
    unit = middle(problem, current_values(problem), 0.0)
    found: list[IntArray] = []
    counts = np.zeros(2, np.int64)
    exponents = stages(problem.fairness)
    for exponent in exponents:
        if found:
            starts = [problem.current, found[-1]]
            unit = middle(problem, job_values(problem, found[-1]), problem.fairness)
        found.append(_search_exponent(problem, exponent, unit, starts, random, options, counts))
    return _result(problem, found, counts, len(exponents))


def _result(problem: AllocationProblem, found: list[IntArray], counts: IntArray, runs: int) -> SearchResult:
    scores = [fitness(problem, allocation) for allocation in found]
    ranked = sorted(range(len(found)), key=lambda i: (-scores[i], -i))
    distinct: list[IntArray] = []
    for i in ranked:
        if not any(np.array_equal(found[i], other) for other in distinct):
            distinct.append(found[i])
    few = np.int16 if problem.node_gpus.max(initial=0) < MANY_GPUS else np.int64
    population = np.stack([allocation.astype(few) for allocation in distinct])
    return SearchResult(distinct[0], scores[ranked[0]], population, runs, int(counts[0]))


def _search_exponent(
    problem: AllocationProblem,
    exponent: float,
    unit: float,
    starts: list[AnyIntArray],
    random: IntArray,
    options: SearchOptions,
    counts: IntArray,
) -> IntArray:
    """Anneal for one exponent from the best of the starts; returns an allocation [J, N]."""
    tables = build(problem, exponent, unit)
    bound = np.zeros(1)
    price = price_gpus(tables, int(problem.node_gpus.sum()), bound)
    state, value = empty_state(tables, problem.node_gpus, random), -np.inf
    for start in starts:
        trial = empty_state(tables, problem.node_gpus, random)
        load(tables, trial, _rows(problem, start, tables.keep), price)
        if float(trial.term.sum()) > value:
            state, value = trial, float(trial.term.sum())
    best = state.row.copy()
    jobs = tables.movable.size
    moves = int(options.effort * (MOVES * jobs + min(MOST_EXTRA, EXTRA * jobs)))
    heat = _typical(problem, exponent, unit, state)
    enough = bound[0] - 1e-10 * abs(bound[0])
    cooling = (COLD / WARM) ** (1.0 / max(1, moves))
    anneal(tables, state, best, Plan(moves, WARM * heat, cooling, price, PRICES, LOGS, enough), counts)
    return unpack_rows(best, problem.nodes)


def _rows(problem: AllocationProblem, start: AnyIntArray, current: IntArray) -> IntArray:
    """Return an allocation as rows; those of the current one are at hand."""
    if start is not problem.current:
        return pack_rows(problem, start, longest_row(problem))
    rows = current.copy()
    rows[:, KEPT] = 1
    return rows


def _typical(problem: AllocationProblem, exponent: float, unit: float, state: State) -> float:
    """Return the size of a typical term, the unit of temperature."""
    if exponent == 0:
        return 1.0
    group = np.clip(state.row[:, COUNT], 1, problem.speedup.shape[1]) - 1
    speedup = problem.speedup[np.arange(problem.jobs), group, state.row[:, TOTAL]]
    factor = np.where(state.row[:, KEPT] == 1, 1.0, problem.restart_factor)
    values = speedup * problem.weight * factor + problem.floor  # as `job_values`, without the whole allocation
    return float(np.median(np.abs(worth(values, exponent, unit))))
