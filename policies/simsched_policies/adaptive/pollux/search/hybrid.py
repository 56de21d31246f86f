"""The default search: a greedy start from the current allocation, then local search by ruin and recreate.

An unchanged row avoids the restart factor, so most jobs keep theirs. A job that changes gains nothing from its old
place, so its row is only a choice of (node class, GPUs) on any nodes with room. See ``_anneal`` for the moves. The
steps:

1. price a GPU by the Lagrangian relaxation of the total capacity, which also bounds the value that can be reached; in
   small rounds dynamic programming bounds it more closely;
2. start from the current allocation, the part of it that jobs would buy again at that price or the best allocation of
   the previous population, whichever is fittest after the jobs without a row have bought GPUs at that price;
3. anneal in epochs; stop near the bound, or when epochs have gained nothing.

Exponents far from 0 are reached in two stages, because their terms differ by more than a double can hold.
"""

import numpy as np

from simsched.arithmetic import log

from ._anneal import Plan, anneal
from ._state import COUNT, KEPT, TOTAL, FloatArray, IntArray, Problem, State
from ._tables import (
    build,
    capacity_choices,
    empty_state,
    load,
    longest_row,
    middle,
    pack_rows,
    price_gpus,
    share_gpus,
    stages,
    unpack_rows,
    worth,
)
from .allocation_problem import AllocationProblem, AnyIntArray, SearchOptions, SearchResult, fitness, job_values

# Here jobs do not outnumber GPUs, since the others must wait anyway.
MOVES, MOST_EXTRA, EXTRA = 30, 8000, 150  # moves per job, plus min(8000, 150 per job) in all
EPOCH, EPOCH_EXTRA = 20, 200  # least moves of an epoch: per job, plus a constant
DRAWS, JOBS_A_DRAW, MOST_DRAWS = 4, 16, 16  # a choice is among 4 jobs plus one for each 16, at most 16
CLOSE = 3e-5  # negligible gap to the bound and gain of an epoch, as a share of the typical term of every job
MOST_CELLS = 2**20  # jobs x GPUs x GPUs of a job up to which dynamic programming bounds the value
WARM, COLD = 0.1, 0.001  # first and last temperature, in typical terms
PRICES = np.array([0.9, 1.0, 1.1] * 5 + [0.0, 0.5, 2.0])  # mostly near the price found, sometimes far off
LOGS = log((np.arange(1024) + 0.5) / 1024)


def search_hybrid(
    problem: AllocationProblem, population: AnyIntArray, rng: np.random.Generator, options: SearchOptions
) -> SearchResult:
    """Search a round with nodes and jobs that may move; ``population`` [P, J, N] may be empty."""
    random = rng.integers(1, 2147483000, size=2)
    starts: list[AnyIntArray] = [problem.current, *population[: options.starts]]
    unit = middle(problem, problem.current_values, 0.0)
    found: list[AnyIntArray] = []
    counts = np.zeros(2, np.int64)
    exponents = stages(problem.fairness)
    for exponent in exponents:
        if found:
            starts = [problem.current, found[-1]]
            unit = middle(problem, job_values(problem, found[-1]), problem.fairness)
        found.append(_search_exponent(problem, exponent, unit, starts, random, options, counts))
    return _result(problem, found, counts, len(exponents))


def _result(problem: AllocationProblem, found: list[AnyIntArray], counts: IntArray, runs: int) -> SearchResult:
    scores = [fitness(problem, allocation) for allocation in found]
    ranked = sorted(range(len(found)), key=lambda i: (-scores[i], -i))
    distinct: list[AnyIntArray] = []
    for i in ranked:
        if not any(np.array_equal(found[i], other) for other in distinct):
            distinct.append(found[i])
    population = np.stack(distinct) if len(distinct) > 1 else distinct[0][None]
    return SearchResult(distinct[0], scores[ranked[0]], population, runs, int(counts[0]))


def _search_exponent(
    problem: AllocationProblem,
    exponent: float,
    unit: float,
    starts: list[AnyIntArray],
    random: IntArray,
    options: SearchOptions,
    counts: IntArray,
) -> AnyIntArray:
    """Anneal for one exponent from the best of the starts; return an allocation [J, N]."""
    tables = build(problem, exponent, unit)
    gpus, top = int(problem.node_gpus.sum()), np.zeros(problem.jobs)
    choices = capacity_choices(tables, problem.node_gpus)
    price = price_gpus(choices, gpus, top)
    bound = float(top.sum()) + price * gpus
    if choices.size * gpus <= MOST_CELLS:
        bound = min(bound, share_gpus(choices, np.zeros(gpus + 1), np.zeros(choices.shape[1], np.int64)))
    state = _start(problem, tables, [_rows(problem, start, tables.keep) for start in starts], price, top, random)
    best = state.row.copy()
    heat, jobs = _typical(problem, exponent, unit, state), min(tables.movable.size, gpus)
    moves = max(1, int(options.effort * (MOVES * jobs + min(MOST_EXTRA, EXTRA * jobs))))
    epoch = moves // max(1, moves // max(1, int(options.effort * (EPOCH * jobs + EPOCH_EXTRA))))
    close = CLOSE * (abs(exponent) or 1.0) * jobs * heat
    plan = Plan(
        moves=moves,
        epoch=epoch,
        warm=WARM * heat,
        cooling=(COLD / WARM) ** (1.0 / epoch),
        enough=bound - close,
        gain=close,
        price=price,
        top=top,
        draws=min(MOST_DRAWS, DRAWS + jobs // JOBS_A_DRAW),
        prices=PRICES,
        logs=LOGS,
    )
    anneal(tables, state, best, plan, counts)
    return unpack_rows(problem, best)


def _start(
    problem: AllocationProblem, tables: Problem, starts: list[IntArray], price: float, top: FloatArray, random: IntArray
) -> State:
    """Load the best of the starts, or of the first one without rows that jobs would not buy again at the price."""
    bought = starts[0].copy()
    bought[tables.keep_value - price * tables.keep[:, TOTAL] < top - 1e-9 * np.abs(top)] = 0
    state, value = None, -np.inf
    for rows in (*starts, bought):
        trial = empty_state(tables, problem.node_gpus, random)
        load(tables, trial, rows, price)
        if state is None or float(trial.term.sum()) > value:
            state, value = trial, float(trial.term.sum())
    assert state is not None
    return state


def _rows(problem: AllocationProblem, start: AnyIntArray, current: IntArray) -> IntArray:
    """Return an allocation as rows; the rows of the current one are cached."""
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
    values = speedup * problem.weight * factor + problem.floor  # same as `job_values`, without unpacking the allocation
    return float(np.sort(np.abs(worth(values, exponent, unit)))[problem.jobs // 2])
