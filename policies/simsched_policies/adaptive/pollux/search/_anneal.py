"""Local search by ruin and recreate: take a few related jobs off their nodes, put them back, keep improvements.

A move frees all jobs of one or two nodes, or what blocks a job's return to its current row, or some jobs at random;
each is then placed at the best of all its configurations under a random price for a GPU. Worse allocations are accepted
now and then (simulated annealing). After Schrimpf et al. (2000), record breaking optimisation by ruin and recreate.
"""

from typing import NamedTuple

import numpy as np

from ._jit import jit, leaf
from ._state import (
    ALL,
    CAP,
    COUNT,
    FIRST,
    JOBS,
    KEPT,
    LOW,
    OCCUPIED,
    TOTAL,
    FloatArray,
    IntArray,
    Problem,
    State,
    copy_row,
    draw,
    fits,
    install,
    place,
    place_keep,
    remove,
)

RUIN = 12  # most jobs taken off in one move
BACK, NODES = 2, 6  # of 8 moves: for a return to a current row; these and those around nodes; the rest at random
AROUND, SOME = 2, 5  # most nodes, most jobs at random
STAY, LESS = 3, 7  # of 16 moves: the first job gets its current row back; these and those where one must take less
ANY = 1 << 30


class Plan(NamedTuple):
    """How long and how warm to search."""

    moves: int
    warm: float  # first temperature, in units of a typical term
    cooling: float  # factor of the temperature from one move to the next
    price: float  # value of a GPU, the centre of the prices tried
    prices: FloatArray  # factors of the price
    logs: FloatArray  # logarithms of evenly spaced numbers in (0, 1)
    enough: float  # stop at this total value


@leaf
def price_gpus(problem: Problem, gpus: int, out: FloatArray) -> float:
    """Find the price at which jobs would buy about ``gpus`` GPUs; ``out[0]`` becomes an upper bound of the value.

    The Lagrangian relaxation of the total capacity: nodes, packing and interference are left out.
    """
    value = problem.value
    low = 0.0
    high = 0.0
    bound = np.inf
    price = 0.0
    for step in range(80):
        demand = 0
        total = price * gpus
        for j in range(value.shape[0]):
            best = value[j, 0, 0]
            used = 0
            if problem.keep[j, KEPT] == 1:
                score = problem.keep_value[j] - price * problem.keep[j, TOTAL]
                if step == 0:
                    high = max(high, (score - value[j, 0, 0]) / problem.keep[j, TOTAL])
                if score > best:
                    best = score
                    used = problem.keep[j, TOTAL]
            for k in range(value.shape[1]):
                for g in range(max(k + 1, problem.limits[j, LOW]), min(problem.limits[j, CAP], gpus) + 1):
                    score = value[j, k, g] - price * g
                    if score > best:
                        best = score
                        used = g
                    if step == 0:
                        high = max(high, (score - value[j, 0, 0]) / g)
            total += best
            demand += used
        bound = min(bound, total)
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
    out[0] = bound
    return price


@leaf
def _mark(job: int, ruined: IntArray, chosen: IntArray, size: int) -> int:
    """Add a job to the ones to take off, unless it is there already or may not move."""
    if size < ruined.shape[0] and chosen[job] == 0:
        ruined[size] = job
        chosen[job] = 1
        return size + 1
    return size


@leaf
def _mark_node(node: IntArray, n: int, ruined: IntArray, chosen: IntArray, size: int) -> int:
    for i in range(node[n, OCCUPIED]):
        size = _mark(node[n, JOBS + i], ruined, chosen, size)
    return size


@leaf
def _pick(problem: Problem, state: State, ruined: IntArray, chosen: IntArray) -> int:
    """Choose the jobs to take off; ``chosen`` is 2 for pinned jobs and 0 for all others. Returns how many."""
    movable = problem.movable.shape[0]
    row, node, keep, random = state.row, state.node, problem.keep, state.random
    kind = draw(random, 8)
    size = 0
    job = problem.movable[draw(random, movable)]
    if kind < BACK:
        for _ in range(4):
            if row[job, KEPT] == 0 and keep[job, KEPT] == 1:
                break
            job = problem.movable[draw(random, movable)]
        size = _mark(job, ruined, chosen, size)
        for i in range(keep[job, COUNT]):
            size = _mark_node(node, keep[job, FIRST + 2 * i], ruined, chosen, size)
    elif kind < NODES:
        size = _mark(job, ruined, chosen, size)
        for _ in range(1 + draw(random, AROUND)):
            size = _mark_node(node, draw(random, node.shape[0]), ruined, chosen, size)
    else:
        for _ in range(1 + draw(random, SOME)):
            size = _mark(job, ruined, chosen, size)
            job = problem.movable[draw(random, movable)]
    return size


@leaf
def _recreate(problem: Problem, state: State, plan: Plan, ruined: IntArray, had: IntArray, size: int) -> None:
    """Place the removed jobs, in random order and at a random price, then offer each again what is left over.

    Now and then the first one placed must change its row and take fewer GPUs than it had (``had``, beside ``ruined``).
    """
    row, levels, random, keep = state.row, state.levels, state.random, problem.keep
    price = plan.price * plan.prices[draw(random, plan.prices.shape[0])]
    way = draw(random, 16)
    first = ruined[0]
    if way < STAY and keep[first, KEPT] == 1 and fits(keep, first, state.node, problem.exclusive):
        place_keep(problem, state, first)
    for i in range(size - 1, 0, -1):
        k = draw(random, i + 1)
        ruined[i], ruined[k] = ruined[k], ruined[i]
        had[i], had[k] = had[k], had[i]
    for i in range(2 * size):
        again = i >= size
        job = ruined[i - size] if again else ruined[i]
        if levels[ALL, 0, 0] == state.node.shape[0] and again:
            break
        if again and row[job, KEPT] == 1 and row[job, COUNT] > 0:
            continue
        if row[job, COUNT] > 0:
            if not again:
                continue
            remove(problem, state, job)
        limit = ANY
        classes = ANY
        may_keep = True
        if i == 0 and STAY <= way < LESS:
            may_keep = False
            limit = max(1, had[0] - 1 - draw(random, 2))
        elif not again and draw(random, 16) == 0:
            limit = 1 + draw(random, max(1, problem.limits[job, CAP]))
            classes = ANY if draw(random, 2) == 0 else 1
            may_keep = draw(random, 2) == 0
        place(problem, state, job, 0.0 if again else price, limit, classes, may_keep)


@leaf
def _sum(terms: FloatArray) -> float:
    total = 0.0
    for term in terms:
        total += term
    return total


@leaf
def _undo(problem: Problem, state: State, order: IntArray, saved: IntArray, terms: FloatArray, size: int) -> None:
    for i in range(size):
        remove(problem, state, order[i])
    for i in range(size):
        copy_row(saved, i, state.row, order[i])
        install(problem, state, order[i])
        state.term[order[i]] = terms[i]


@jit
def anneal(problem: Problem, state: State, best: IntArray, plan: Plan, out: IntArray) -> float:
    """Improve the state by ``plan.moves`` moves; leaves the best rows in ``best`` [J, 3 + 2 M] and returns their value.

    ``out[0]`` counts the moves made, ``out[1]`` the rows evaluated. ``best`` starts as a copy of the state's rows.
    """
    jobs, width = state.row.shape
    most = min(RUIN, problem.movable.shape[0])
    ruined = np.zeros(most, np.int64)
    order = np.zeros(most, np.int64)
    had = np.zeros(most, np.int64)
    saved = np.zeros((most, width), np.int64)
    terms = np.zeros(most)
    chosen = np.full(jobs, 2, np.int64)
    for j in problem.movable:
        chosen[j] = 0
    stale = np.zeros(jobs, np.int64)  # 1: the row may differ from the best one
    changed = np.zeros(jobs, np.int64)  # the jobs of stale rows
    stales = 0
    value = _sum(state.term)
    record = value
    heat = plan.warm
    for _ in range(plan.moves):
        if record >= plan.enough:
            break
        heat *= plan.cooling
        size = _pick(problem, state, ruined, chosen)
        before = 0.0
        for i in range(size):
            job = ruined[i]
            order[i] = job
            chosen[job] = 0
            had[i] = state.row[job, TOTAL]
            terms[i] = state.term[job]
            before += state.term[job]
            copy_row(state.row, job, saved, i)
            remove(problem, state, job)
        _recreate(problem, state, plan, ruined, had, size)
        after = 0.0
        for i in range(size):
            after += state.term[order[i]]
        out[0] += 1
        out[1] += size
        if after - before >= heat * plan.logs[draw(state.random, plan.logs.shape[0])]:
            value += after - before
            if abs(before) > 1e4 * abs(value):  # what is left of a large number would be rounding
                value = _sum(state.term)
            for i in range(size):
                if stale[order[i]] == 0:
                    stale[order[i]] = 1
                    changed[stales] = order[i]
                    stales += 1
            if value > record + 1e-12 * abs(record):
                record = value
                for i in range(stales):
                    copy_row(state.row, changed[i], best, changed[i])
                    stale[changed[i]] = 0
                stales = 0
        else:
            _undo(problem, state, order, saved, terms, size)
    return record


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
    """Fill an empty state with those of the given rows that fit, pinned jobs first; the jobs left out buy GPUs.

    Current rows go first: a row without a restart never yields to one with.
    """
    jobs = rows.shape[0]
    limit = max(jobs, ANY)  # not a literal, for which numba would compile ``place`` once more
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
