"""Local search by ruin and recreate: take a few related jobs off their nodes, put them back, keep improvements.

A move frees all jobs of one or two nodes, or the jobs that block another job's return to its current row, or some jobs
at random; each is then placed in its best configuration at a random price of a GPU. Jobs and nodes are drawn by regret.
At the price of the Lagrangian bound, the gap to that bound is the sum over jobs of the worth that each loses against
the GPUs that it would buy, plus the price of idle GPUs. Worse allocations are sometimes accepted (simulated annealing).
After Schrimpf et al. (2000), record breaking optimisation by ruin and recreate.
"""

from typing import NamedTuple

import numpy as np

from simsched.arithmetic import ordered_sum
from simsched.jit import jit, leaf

from ._state import (
    ALL,
    CAP,
    COUNT,
    FIRST,
    FREE,
    JOBS,
    KEPT,
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
PATIENCE = 2  # epochs without a gain after which the search stops
BACK, NODES = 2, 6  # of 8 moves: returns to a current row; these plus moves around nodes; the rest are random
AROUND, SOME = 2, 5  # most nodes, most jobs at random
STAY, LESS = 3, 7  # of 16 moves: the first job gets its current row back; these plus moves where one must take less
ANY = 1 << 30

_sum = leaf(ordered_sum)


class Plan(NamedTuple):
    """The length, temperature and prices of a search."""

    moves: int  # at most
    epoch: int  # moves of one cooling; then the temperature is reset
    warm: float  # first temperature, in units of a typical term
    cooling: float  # factor of the temperature from one move to the next
    enough: float  # stop at this total value
    gain: float  # the least improvement that counts as a gain in an epoch
    price: float  # price of a GPU, the centre of the prices tried
    top: FloatArray  # [J] most that each job is worth after paying this price for its GPUs
    draws: int  # largest sample of jobs (of nodes: half) from which the one with most regret is chosen
    prices: FloatArray  # factors of the price
    logs: FloatArray  # logarithms of evenly spaced numbers in (0, 1)


@leaf
def _mark(job: int, ruined: IntArray, chosen: IntArray, size: int) -> int:
    """Add a job to those to remove, unless it is already there or may not move."""
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
def _regret(state: State, plan: Plan, job: int) -> float:
    """Return a job's regret: its worth net of the price of GPUs, below that with the GPUs it would buy."""
    return plan.top[job] - state.term[job] + plan.price * state.row[job, TOTAL]  # type: ignore[no-any-return]


@leaf
def _draw_job(problem: Problem, state: State, plan: Plan) -> int:
    """Draw a few jobs and return the one with most regret."""
    movable = problem.movable.shape[0]
    job = problem.movable[draw(state.random, movable)]
    worst = _regret(state, plan, job)
    for _ in range(draw(state.random, plan.draws)):
        other = problem.movable[draw(state.random, movable)]
        regret = _regret(state, plan, other)
        if regret > worst:
            job = other
            worst = regret
    return int(job)


@leaf
def _draw_node(state: State, plan: Plan) -> int:
    """Draw a few nodes and return the one whose jobs have most regret, idle GPUs counted at their price."""
    nodes = state.node.shape[0]
    chosen = -1
    worst = 0.0
    for _ in range(1 + draw(state.random, (plan.draws + 1) // 2)):
        n = draw(state.random, nodes)
        regret = plan.price * state.node[n, FREE]
        for i in range(state.node[n, OCCUPIED]):
            regret += _regret(state, plan, state.node[n, JOBS + i])
        if chosen < 0 or regret > worst:
            chosen = n
            worst = regret
    return chosen


@leaf
def _pick(problem: Problem, state: State, plan: Plan, ruined: IntArray, chosen: IntArray) -> int:
    """Choose the jobs to remove and return their number; ``chosen`` is 2 for pinned jobs and 0 for all others."""
    row, node, keep, random = state.row, state.node, problem.keep, state.random
    kind = draw(random, 8)
    size = 0
    job = _draw_job(problem, state, plan)
    if kind < BACK:
        for _ in range(4):
            if row[job, KEPT] == 0 and keep[job, KEPT] == 1:
                break
            job = _draw_job(problem, state, plan)
        size = _mark(job, ruined, chosen, size)
        for i in range(keep[job, COUNT]):
            size = _mark_node(node, keep[job, FIRST + 2 * i], ruined, chosen, size)
        if kind == 0:
            size = _mark_node(node, _draw_node(state, plan), ruined, chosen, size)
        elif kind == 1:
            size = _mark(_draw_job(problem, state, plan), ruined, chosen, size)
    elif kind < NODES:
        size = _mark(job, ruined, chosen, size)
        for _ in range(1 + draw(random, AROUND)):
            size = _mark_node(node, _draw_node(state, plan), ruined, chosen, size)
    else:
        for _ in range(1 + draw(random, SOME)):
            size = _mark(job, ruined, chosen, size)
            job = _draw_job(problem, state, plan)
    return size


@leaf
def _recreate(problem: Problem, state: State, plan: Plan, ruined: IntArray, had: IntArray, size: int) -> None:
    """Place the removed jobs in random order, each at a random price, then offer the GPUs left over to each again.

    Sometimes the first one placed must change its row and take fewer GPUs than it had (``had``, aligned with
    ``ruined``).
    """
    row, levels, random, keep = state.row, state.levels, state.random, problem.keep
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
        price = 0.0 if again else plan.price * plan.prices[draw(random, plan.prices.shape[0])]
        place(problem, state, job, price, limit, classes, may_keep)


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
    """Improve the state by at most ``plan.moves`` moves; return the best value.

    The best rows end up in ``best`` [J, 3 + 2 M]. ``out[0]`` counts the moves made, ``out[1]`` the rows evaluated.
    ``best`` starts as a copy of the state's rows.
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
    idle = 0
    earlier = record
    for move in range(plan.moves):
        if record >= plan.enough:
            break
        if move > 0 and move % plan.epoch == 0:
            idle = 0 if record > earlier + plan.gain else idle + 1
            if idle == PATIENCE:
                break
            earlier = record
            heat = plan.warm
        heat *= plan.cooling
        size = _pick(problem, state, plan, ruined, chosen)
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
            if abs(before) > 1e4 * abs(value):  # subtracting from a large number would leave only rounding errors
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
