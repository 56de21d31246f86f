"""Builds the tables of a round for the kernels, and finds where a search starts and who gets idle GPUs.

Tables are the only place where powers are computed, always by numpy. The local search starts from the price of a GPU,
the best value in reach, and an allocation at that price. GPUs that would stay idle go to jobs that cannot gain from
them in this round.
"""

from dataclasses import replace

import numpy as np

from simsched.arithmetic import exp, log
from simsched.jit import jit, leaf

from ._state import (
    BLOCK,
    CAP,
    COUNT,
    FIRST,
    FREE,
    JOBS,
    KEPT,
    LOW,
    TOTAL,
    FloatArray,
    IntArray,
    Problem,
    State,
    copy_row,
    fits,
    install,
    place,
    place_keep,
    remove,
)
from .allocation_problem import AllocationProblem, AnyIntArray, job_values, places_of, power_mean

STEEPEST = 600.0  # largest exponent of e in a table; values beyond it are all equally bad
GENTLE = 12.0  # exponents up to here are searched directly


def worth(values: FloatArray, exponent: float, scale: float) -> FloatArray:
    """Turn terms of the power mean into numbers whose sum is to be maximised: ``+-(values / scale) ** p`` or logs.

    Increasing in ``values`` for every exponent and of order one where ``values`` is near ``scale``.
    """
    if exponent == -1:
        return -scale / values  # the usual exponent, at a fraction of the cost
    logs = log(values / scale)
    if exponent == 0:
        return logs
    powers = exp(np.clip(exponent * logs, -STEEPEST, STEEPEST))
    return powers if exponent > 0 else -powers


def pack_rows(problem: AllocationProblem, allocation: AnyIntArray, longest: int) -> IntArray:
    """Write an allocation [J, N] as rows [J, 3 + 2 * longest]; rows on more than ``longest`` nodes are emptied."""
    jobs = allocation.shape[0]
    row, node, gpus = problem.places if allocation is problem.current else places_of(allocation)
    count = np.bincount(row, minlength=jobs)
    if count.max(initial=0) > longest:
        short = count[row] <= longest
        row, node, gpus, count = row[short], node[short], gpus[short], np.where(count <= longest, count, 0)
    kept = np.bincount(row[gpus == problem.current[row, node]], minlength=jobs)
    rows = np.zeros((jobs, FIRST + 2 * longest), np.int64)
    column = FIRST + 2 * (np.arange(row.size) - np.repeat(np.cumsum(count) - count, count))
    rows[:, COUNT] = count
    np.add.at(rows[:, TOTAL], row, gpus)
    rows[:, KEPT] = (kept == count) & (count == problem.current_nodes)
    rows[row, column] = node
    rows[row, column + 1] = gpus
    return rows


def unpack_rows(problem: AllocationProblem, rows: IntArray) -> AnyIntArray:
    """Undo ``pack_rows``: the allocation [J, N]."""
    allocation = np.zeros(problem.current.shape, problem.current.dtype)  # touch only the pages of nodes that hold jobs
    used = np.arange((rows.shape[1] - FIRST) // 2)[None, :] < rows[:, COUNT, None]
    job, place = np.nonzero(used)
    allocation[job, rows[job, FIRST + 2 * place]] = rows[job, FIRST + 2 * place + 1]
    return allocation


def longest_row(problem: AllocationProblem) -> int:
    """Return the largest number of nodes that a row may touch."""
    now = int(problem.current_nodes.max(initial=1))
    return max(1, now, min(problem.nodes, int(problem.max_gpus.max(initial=1))))


def middle(problem: AllocationProblem, values: FloatArray, exponent: float) -> float:
    """Return the power mean of values [J] without jobs that no allocation could serve: the unit of the tables."""
    served = problem.attainable > problem.floor * (1 + 1e-9)
    return power_mean(values[served], exponent) if served.any() else problem.floor


def build(problem: AllocationProblem, exponent: float, scale: float) -> Problem:
    """Build the kernels' view of a round for one exponent; terms are measured in units of ``scale``.

    A job's worth is relative to the best that it could reach: with a negative exponent, jobs that cannot be served
    would otherwise dominate all others.
    """
    best = worth(problem.attainable, exponent, scale)
    keep = pack_rows(problem, problem.current, longest_row(problem))
    keep[:, KEPT] = problem.keepable & (keep[:, TOTAL] > 0)
    return Problem(
        value=worth(problem.scaled_after_restart, exponent, scale) - best[:, None, None],
        keep_value=worth(problem.current_values, exponent, scale) - best,
        limits=np.stack([problem.lowest, problem.max_gpus], axis=1),
        keep=keep,
        movable=np.flatnonzero(~problem.held),
        exclusive=int(problem.avoid_interference),
    )


def capacity_choices(problem: Problem, node_gpus: IntArray) -> FloatArray:
    """[J, W] the largest worth of a job on each number of GPUs if only node sizes limit it; -inf if there is none."""
    jobs, classes, width = problem.value.shape
    gpus = np.arange(width)
    allowed = (gpus >= problem.limits[:, :1]) & (gpus <= problem.limits[:, 1:])
    choices: FloatArray = np.full((jobs, width), -np.inf)
    for group in range(classes):
        most = node_gpus.sum() if group == classes - 1 else (group + 1) * node_gpus.max(initial=0)
        fitting = allowed & (gpus > group) & (gpus <= most)
        np.maximum(choices, problem.value[:, group], out=choices, where=fitting)
    choices[:, 0] = problem.value[:, 0, 0]
    kept = np.flatnonzero(problem.keep[:, KEPT])
    place = kept, problem.keep[kept, TOTAL]
    choices[place] = np.maximum(choices[place], problem.keep_value[kept])
    return choices


def empty_state(problem: Problem, node_gpus: IntArray, random: IntArray) -> State:
    """Return a state in which no job holds a GPU, on nodes of ``node_gpus`` [N] GPUs."""
    largest = int(node_gpus.max(initial=0))
    node = np.zeros((node_gpus.shape[0], JOBS + max(1, largest)), np.int64)
    node[:, FREE] = node_gpus
    nodes = np.arange(node_gpus.shape[0])
    levels = np.zeros((largest + 1, 1 + -(-nodes.size // BLOCK)), np.int64)
    levels[:, 0] = np.bincount(node_gpus, minlength=largest + 1)
    np.add.at(levels, (node_gpus, 1 + nodes // BLOCK), 1 << (nodes % BLOCK))
    row = np.zeros_like(problem.keep)
    row[:, KEPT] = problem.keep[:, COUNT] == 0
    return State(row, problem.value[:, 0, 0].copy(), node, np.stack([levels, levels]), random)


def stages(exponent: float) -> list[float]:
    """List the exponents to search with in turn: terms of an extreme one would exceed the range of a double."""
    gentle = float(np.clip(exponent, -GENTLE, GENTLE))
    return [exponent] if gentle == exponent else [gentle, exponent]


ANY = 1 << 30


@leaf
def _buy(choices: FloatArray, job: int, price: float) -> int:
    """Return the GPUs whose worth to a job, after paying the price of each, is largest; ties go to the fewest."""
    used = 0
    best = choices[job, 0]
    for g in range(1, choices.shape[1]):
        score = choices[job, g] - price * g
        if score > best:
            best = score
            used = g
    return used


@leaf
def price_gpus(choices: FloatArray, gpus: int, top: FloatArray) -> float:
    """Find the price at which jobs would buy about ``gpus`` GPUs; ``top`` [J] becomes their worth after paying it.

    The Lagrangian relaxation of the total capacity: nodes, packing and interference are left out. No value exceeds the
    sum of ``top`` and the price of all GPUs.
    """
    low = 0.0
    high = 0.0
    for j in range(choices.shape[0]):
        for g in range(1, choices.shape[1]):
            high = max(high, (choices[j, g] - choices[j, 0]) / g)
    price = 0.0
    bound = np.inf
    found = 0.0
    for step in range(80):
        demand = 0
        total = price * gpus
        for j in range(choices.shape[0]):
            used = _buy(choices, j, price)
            total += choices[j, used] - price * used
            demand += used
        if total < bound:
            bound = total
            found = price
        if demand == gpus or (step == 0 and demand < gpus):
            break
        if demand > gpus:
            low = price
        elif step > 0:
            high = price
        if high - low <= 1e-6 * high:
            break
        # prices differ by orders of magnitude when jobs without GPUs weigh a lot: come down in large steps first
        price = 0.5 * (low + high) if low > 0.0 else high / 64.0
    for j in range(choices.shape[0]):
        used = _buy(choices, j, found)
        top[j] = choices[j, used] - found * used
    return found


@leaf
def share_gpus(choices: FloatArray, reached: FloatArray, steps: IntArray) -> float:
    """Return the value that ``reached.size - 1`` GPUs allow if nodes do not matter, by dynamic programming.

    ``reached`` must be zeroed; ``steps`` [W] is scratch space.
    """
    for j in range(choices.shape[0]):
        count = 0
        best = -np.inf
        for g in range(choices.shape[1]):
            if choices[j, g] > best:
                best = choices[j, g]
                steps[count] = g
                count += 1
        for have in range(reached.shape[0] - 1, -1, -1):
            best = -np.inf
            for i in range(count):
                if steps[i] > have:
                    break
                best = max(best, reached[have - steps[i]] + choices[j, steps[i]])
            reached[have] = best
    return float(reached[reached.shape[0] - 1])


@leaf
def _load_row(problem: Problem, state: State, rows: IntArray, job: int) -> None:
    """Install a row that is not the current one if it is not empty, allowed and fits."""
    total = rows[job, TOTAL]
    allowed = problem.limits[job, LOW] <= total <= problem.limits[job, CAP] and total > 0
    if allowed and fits(rows, job, state.node, problem.exclusive):
        copy_row(rows, job, state.row, job)
        install(problem, state, job)
        state.term[job] = problem.value[job, min(rows[job, COUNT], problem.value.shape[1]) - 1, total]


@jit
def load(problem: Problem, state: State, rows: IntArray, price: float) -> None:
    """Fill an empty state with those of the given rows that fit, pinned jobs first; the remaining jobs buy GPUs.

    Current rows go first: a row without a restart never yields to one with a restart.
    """
    jobs = rows.shape[0]
    limit = max(jobs, ANY)  # not a literal, for which numba would compile ``place`` a second time
    held = np.ones(jobs, np.int64)
    for j in problem.movable:
        held[j] = 0
    for turn in range(3):
        for j in range(jobs):
            if (turn == 0) != (held[j] == 1):
                continue
            current = turn == 0 or rows[j, KEPT] == 1
            if turn < 2 and current and problem.keep[j, KEPT] == 1:
                if fits(problem.keep, j, state.node, problem.exclusive):
                    place_keep(problem, state, j)
            elif turn == 2 and not current and state.row[j, COUNT] == 0:
                _load_row(problem, state, rows, j)
    for turn in range(2):
        for j in problem.movable:
            if state.row[j, COUNT] == 0 or (turn == 1 and state.row[j, KEPT] == 0):
                remove(problem, state, j)
                place(problem, state, j, price if turn == 0 else 0.0, limit, limit, held[j] == 0)


def fill_idle(problem: AllocationProblem, allocation: AnyIntArray, rng: np.random.Generator) -> AnyIntArray:
    """Return the allocation [J, N] with idle GPUs given to jobs that have none and whose restart factor is 0.

    Starting such a job adds nothing to the fitness of this round, so no search does it. But it costs nothing either,
    and in the next round the job keeps the GPUs without a restart.
    """
    waiting = (problem.restart_factor == 0) & ~problem.held & (problem.current_nodes == 0)
    if waiting.any():
        waiting &= ~allocation.any(axis=1)
    idle = int(problem.node_gpus.sum() - allocation.sum())
    if idle == 0 or not waiting.any():
        return allocation
    after = replace(problem, current=allocation, restart_factor=np.ones(problem.jobs), pinned=~waiting)
    tables = build(after, problem.fairness, middle(after, job_values(after, allocation), 0.0))
    price = price_gpus(
        capacity_choices(tables, problem.node_gpus), int(problem.node_gpus.sum()), np.zeros(problem.jobs)
    )
    state = empty_state(tables, problem.node_gpus, rng.integers(1, 2147483000, size=2))
    load(tables, state, pack_rows(after, allocation, longest_row(after)), price)
    return unpack_rows(problem, state.row)
