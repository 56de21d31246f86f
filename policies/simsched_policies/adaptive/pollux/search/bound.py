"""An upper bound on the fitness of a round that no feasible allocation exceeds.

For a fixed exponent the power mean is monotone in a sum over jobs, and a round chooses one configuration per job: no
GPU, the current row, or g GPUs on a class of nodes. The relaxations, from coarse to fine: only the number of GPUs
counts (by a price for a GPU); nodes, packing and interference count (a mixed-integer program solved by HiGHS through
scipy); and how each distributed job spreads over the nodes counts too.
"""

from time import perf_counter

import numpy as np

from simsched.arithmetic import exp, log

from ._program import CURRENT, NOTHING, Columns, program_bound
from ._tables import worth
from .allocation_problem import AllocationProblem, AnyIntArray, FloatArray, IntArray, fitness, is_feasible

SAFETY = 1e-6  # the solver's tolerances, as a share of the sum of terms
CLOSE = 1e-5  # relative gap below which no finer relaxation is tried
WHOLE_CELLS = 4096  # jobs x nodes up to which choices are integral and every busy node has its own constraints
MOST_COLUMNS = 60_000  # configurations beyond which only the number of GPUs is relaxed


def upper_bound(problem: AllocationProblem, time_limit_s: float = 10.0, allocation: AnyIntArray | None = None) -> float:
    """Return a number that the fitness of no feasible allocation of this round exceeds.

    A program that is not solved in time gives a weaker bound, never a wrong one; the bound includes the solver's
    tolerances.

    Args:
        problem: the round.
        time_limit_s: wall time for the solver.
        allocation: [J, N] a feasible allocation; a good one makes the bound tighter and quicker. Default: a quick
            search.

    Raises:
        ValueError: if ``allocation`` breaks a rule of the round.
    """
    if problem.jobs == 0:
        return 0.0
    if allocation is None:
        from .run import search

        allocation = search(problem, seed_or_rng=0).allocation
    elif not is_feasible(problem, allocation):
        raise ValueError("the allocation is not feasible")
    reached = fitness(problem, allocation)
    if problem.held.all() or problem.nodes == 0:
        return reached
    columns = _columns(problem, reached)
    bound = _as_fitness(problem, _capacity_bound(problem, columns), reached)
    whole = problem.jobs * problem.nodes <= WHOLE_CELLS
    end = perf_counter() + time_limit_s
    for split in (False, True) if whole else (False,):
        left = end - perf_counter()
        if columns.job.size > MOST_COLUMNS or bound <= reached * (1 + CLOSE) or left <= 0:
            break
        total = program_bound(problem, columns, left, whole=whole, split=split)
        bound = min(bound, _as_fitness(problem, total, reached))
    return max(reached, bound)


def _columns(problem: AllocationProblem, reached: float) -> Columns:
    """List the configurations that some allocation at least as fit as ``reached`` could use."""
    changed = problem.scaled_after_restart
    current = problem.current_values
    usable = np.flatnonzero(problem.node_gpus > 0).size
    biggest = int(problem.node_gpus.max(initial=0))
    counts = np.arange(changed.shape[2])
    parts: list[tuple[IntArray, IntArray, IntArray, FloatArray]] = []
    movable = np.flatnonzero(~problem.held)
    parts.append((movable, np.full(movable.size, NOTHING), np.zeros(movable.size, np.int64), changed[movable, 0, 0]))
    stay = np.flatnonzero(problem.keepable & ((problem.current_gpus > 0) | problem.held))
    parts.append((stay, np.full(stay.size, CURRENT), problem.current_gpus[stay], current[stay]))
    for k in range(changed.shape[1] if usable else 0):
        most = biggest if k == 0 else problem.node_gpus.sum()
        fewest, top = np.maximum(problem.lowest, k + 1), np.minimum(problem.max_gpus, most)
        allowed = (counts >= fewest[:, None]) & (counts <= top[:, None]) & ~problem.held[:, None] & (k < usable)
        masked = np.where(allowed, changed[:, k], -np.inf)
        before = np.maximum.accumulate(np.concatenate([changed[:, 0, :1], masked[:, :-1]], axis=1), axis=1)
        job, gpus = np.nonzero(masked > before)
        parts.append((job, np.full(job.size, k), gpus, changed[job, k, gpus]))
    job, group, gpus, terms = (np.concatenate([part[i] for part in parts]) for i in range(4))
    keep = np.ones(job.size, np.bool_)
    if problem.fairness < 0:  # one term this small alone would push the mean below what is reached
        keep = terms >= reached * (1 - 1e-9) * problem.jobs ** (1.0 / problem.fairness)
    value = worth(terms, problem.fairness, _scale(problem, reached))
    return Columns(job[keep], group[keep], gpus[keep], value[keep])


def _scale(problem: AllocationProblem, reached: float) -> float:
    if problem.fairness > 0:
        return max(float(problem.scaled_after_restart.max()), float(problem.current_values.max()))
    return reached


def _as_fitness(problem: AllocationProblem, total: float, reached: float) -> float:
    """Turn a bound on the summed worth of the columns into one on the fitness, including the solver's tolerances."""
    p, scale = problem.fairness, _scale(problem, reached)
    if not np.isfinite(total):
        return np.inf
    if p == 0:
        return float(scale * exp(total / problem.jobs + SAFETY))
    if p < 0:
        mean = -total / problem.jobs - SAFETY
        return float(scale * exp(log(mean) / p)) if mean > 0 else np.inf
    return float(scale * exp(log(max(total, 0.0) / problem.jobs + SAFETY) / p))


def _capacity_bound(problem: AllocationProblem, columns: Columns) -> float:
    """Bound the sum by Lagrangian relaxation of the number of GPUs alone, the price found by bisection."""
    gpus = int(problem.node_gpus.sum())
    order = np.argsort(columns.job, kind="stable")
    job, used, value = columns.job[order], columns.gpus[order], columns.value[order]
    starts = np.flatnonzero(np.diff(job, prepend=-1))
    lengths = np.diff(np.append(starts, job.size))
    lowest = np.repeat(np.minimum.reduceat(value, starts), lengths)
    low, high, best, price = 0.0, float(((value - lowest) / np.maximum(used, 1)).max()), np.inf, 0.0
    for _ in range(60):
        scores = value - price * used
        top = np.maximum.reduceat(scores, starts)
        best = min(best, float(top.sum()) + price * gpus)
        wanted = np.where(scores >= np.repeat(top, lengths), used, used.max())
        if int(np.minimum.reduceat(wanted, starts).sum()) > gpus:
            low = price
        else:
            high = price
        if high - low <= 1e-12 * high:
            break
        price = 0.5 * (low + high)
    return best
