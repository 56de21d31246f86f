"""Where a search starts, and where it gives idle GPUs.

Where the local search starts: the price of a GPU, the best value in reach, and an allocation at that price.

Give GPUs that would stay idle to jobs that cannot gain from them in this round.
"""

from dataclasses import replace

import numpy as np

from simsched.jit import jit, leaf

from ._state import (
    CAP,
    COUNT,
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
from ._tables import build, capacity_choices, empty_state, longest_row, middle, pack_rows, unpack_rows
from .allocation_problem import AllocationProblem, AnyIntArray, job_values

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
