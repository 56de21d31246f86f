"""A partial or whole allocation that is changed job by job: adding, removing and placing a job.

No powers are computed here: values come from tables, which makes compiled and interpreted runs agree bit for bit. A row
is a short list of (node, GPUs). Nodes are found through counts by free GPUs, which treats identical nodes alike. Arrays
are few and packed, because numba pays for every array of a tuple at every call.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simsched.jit import leaf

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

COUNT, TOTAL, KEPT, FIRST = 0, 1, 2, 3  # a row: nodes, GPUs, 1 if it is the current row, then node and GPUs in turn
FREE, SPREAD, OCCUPIED, JOBS = 0, 1, 2, 3  # a node: free GPUs, distributed jobs, jobs, then which jobs
ALL, OPEN, CLOSED = 0, 1, 2  # nodes by free GPUs: all, those that a distributed job may still use, the others
LOW, CAP = 0, 1
MODULUS_A, MODULUS_B = 2147483563, 2147483399
#: Nodes of a block, one bit each; two bits of a word stay unused to avoid signs.
BLOCK = 62
#: The index of the only bit of a number, by its remainder: the powers of 2 below 2**66 differ modulo 67.
BITS = np.array([next((bit for bit in range(66) if 2**bit % 67 == rest), -1) for rest in range(67)])


class Problem(NamedTuple):
    """The constants of a search. J jobs, K node classes, W GPU counts, M longest row."""

    value: FloatArray  # [J, K, W] worth of a changed row
    keep_value: FloatArray  # [J] worth of the current row
    limits: IntArray  # [J, 2] fewest and most GPUs
    keep: IntArray  # [J, 3 + 2 M] current rows; KEPT is 1 if the row may be kept and is not empty
    movable: IntArray  # the jobs that are not pinned
    exclusive: int  # 1: one distributed job a node


class State(NamedTuple):
    """The state that changes. S is the size of the largest node."""

    row: IntArray  # [J, 3 + 2 M]
    term: FloatArray  # [J] worth of the row
    node: IntArray  # [N, 3 + S]
    levels: IntArray  # [2, S + 1, 1 + blocks]: the number of nodes, then one bit for each of them
    random: IntArray  # [2] state of the generator


@leaf
def draw(random: IntArray, bound: int) -> int:
    """A number in [0, bound), by two combined multiplicative generators that stay inside 64 bits (L'Ecuyer 1988)."""
    a = (random[0] * 40014) % MODULUS_A
    b = (random[1] * 40692) % MODULUS_B
    random[0] = a
    random[1] = b
    return ((a - b + MODULUS_B) % MODULUS_A) % bound  # type: ignore[no-any-return]


@leaf
def _shift(levels: IntArray, which: int, node: int, level: int, more: int) -> None:
    """Add a node to those with ``level`` GPUs free (``more`` 1) or remove it (-1)."""
    levels[which, level, 0] += more
    levels[which, level, 1 + node // BLOCK] += more * (1 << (node % BLOCK))


@leaf
def _next(levels: IntArray, which: int, level: int, node: int) -> int:
    """Return the first node at or after ``node`` with ``level`` GPUs free, -1 if there is none."""
    rest = node % BLOCK
    for block in range(1 + node // BLOCK, levels.shape[2]):
        mask = (
            levels[ALL, level, block] - levels[OPEN, level, block] if which == CLOSED else levels[which, level, block]
        )
        mask >>= rest
        if mask != 0:
            return int((block - 1) * BLOCK + rest + BITS[(mask & -mask) % 67])
        rest = 0
    return -1


@leaf
def _next_from(levels: IntArray, level: int, start: int, passed: int, nodes: int) -> int:
    """Return the first open node with ``level`` GPUs free, cyclic from ``start`` after ``passed`` nodes; or -1."""
    if levels[OPEN, level, 0] == 0 or passed == nodes:
        return -1
    if start + passed < nodes:
        n = _next(levels, OPEN, level, start + passed)
        if n >= 0:
            return n
        passed = nodes - start
    n = _next(levels, OPEN, level, start + passed - nodes)
    return n if n < start else -1


@leaf
def _give(problem: Problem, state: State, n: int, gpus: int, spread: int) -> None:
    """Change a node's free GPUs and distributed jobs by these numbers."""
    node, levels = state.node, state.levels
    level = node[n, FREE]
    after = level + gpus
    _shift(levels, ALL, n, level, -1)
    _shift(levels, ALL, n, after, 1)
    if problem.exclusive == 0 or node[n, SPREAD] == 0:
        _shift(levels, OPEN, n, level, -1)
    node[n, SPREAD] += spread
    if problem.exclusive == 0 or node[n, SPREAD] == 0:
        _shift(levels, OPEN, n, after, 1)
    node[n, FREE] = after


@leaf
def remove(problem: Problem, state: State, job: int) -> None:
    """Take a job off all its nodes."""
    row, node = state.row, state.node
    count = row[job, COUNT]
    spread = 1 if count > 1 else 0
    for i in range(count):
        n = row[job, FIRST + 2 * i]
        _give(problem, state, n, row[job, FIRST + 2 * i + 1], -spread)
        last = node[n, OCCUPIED] - 1
        for k in range(last):
            if node[n, JOBS + k] == job:
                node[n, JOBS + k] = node[n, JOBS + last]
                break
        node[n, OCCUPIED] = last
    row[job, COUNT] = 0
    row[job, TOTAL] = 0
    row[job, KEPT] = 1 if problem.keep[job, COUNT] == 0 else 0
    state.term[job] = problem.value[job, 0, 0]


@leaf
def install(problem: Problem, state: State, job: int) -> None:
    """Remove the GPUs of a job's row, already written in ``state.row``, from the free ones."""
    row, node = state.row, state.node
    count = row[job, COUNT]
    spread = 1 if count > 1 else 0
    for i in range(count):
        n = row[job, FIRST + 2 * i]
        _give(problem, state, n, -row[job, FIRST + 2 * i + 1], spread)
        node[n, JOBS + node[n, OCCUPIED]] = job
        node[n, OCCUPIED] += 1


@leaf
def copy_row(source: IntArray, i: int, target: IntArray, k: int) -> None:
    """Copy the used part of a row."""
    for c in range(FIRST + 2 * source[i, COUNT]):
        target[k, c] = source[i, c]


@leaf
def fits(row: IntArray, job: int, node: IntArray, exclusive: int) -> bool:
    """Whether nodes have room for a row, and no other distributed job if interference is avoided."""
    count = row[job, COUNT]
    for i in range(count):
        n = row[job, FIRST + 2 * i]
        if node[n, FREE] < row[job, FIRST + 2 * i + 1] or (exclusive == 1 and count > 1 and node[n, SPREAD] > 0):
            return False
    return True


@leaf
def place_keep(problem: Problem, state: State, job: int) -> None:
    """Give a job its current row back; the caller has checked that it fits."""
    copy_row(problem.keep, job, state.row, job)
    install(problem, state, job)
    state.term[job] = problem.keep_value[job]


@leaf
def _room(levels: IntArray, want: int) -> int:
    """GPUs free on the ``want`` open nodes with most room (0: on all of them); 0 if fewer nodes have any."""
    room = 0
    used = 0
    for level in range(levels.shape[1] - 1, 0, -1):
        take = levels[OPEN, level, 0] if want == 0 else min(levels[OPEN, level, 0], want - used)
        room += take * level
        used += take
    return room if used >= want else 0


@leaf
def place(problem: Problem, state: State, job: int, price: float, limit: int, classes: int, may_keep: bool) -> None:
    """Give a job without GPUs the row worth most after paying ``price`` for each GPU, on the nodes as they are.

    At most ``limit`` GPUs and the first ``classes`` node classes if the row is not the current one. Ties go to no GPU,
    then to the current row, then to few GPUs.
    """
    value, levels = problem.value, state.levels
    best = value[job, 0, 0]
    group = -1
    gpus = limit
    if may_keep and problem.keep[job, KEPT] == 1 and fits(problem.keep, job, state.node, problem.exclusive):
        score = problem.keep_value[job] - price * problem.keep[job, TOTAL]
        if score > best:
            best = score
            group = -2
    top = levels.shape[1] - 1
    while top > 0 and levels[ALL, top, 0] == 0:
        top -= 1
    low = problem.limits[job, LOW]
    high = min(problem.limits[job, CAP], limit)
    groups = value.shape[1]
    for k in range(min(groups, classes) if top > 0 else 0):
        if high <= k:
            break
        room = top
        if k > 0:
            room = _room(levels, k + 1)
            if room > 0 and k == groups - 1:
                room = _room(levels, 0)
        for g in range(max(k + 1, low), min(high, room) + 1):
            score = value[job, k, g] - price * g
            if score > best:
                best = score
                group = k
                gpus = g
    if group == -2:
        place_keep(problem, state, job)
    elif group >= 0:
        if group == 0:
            _choose_one(state, job, gpus, problem.exclusive)
        else:
            _choose_many(state, job, group + 1, gpus, group == groups - 1)
        install(problem, state, job)
        same = problem.keep[job, KEPT] == 1 and _same_row(state.row, problem.keep, job)
        state.row[job, KEPT] = 1 if same else 0
        state.term[job] = problem.keep_value[job] if same else value[job, group, gpus]


@leaf
def _same_row(row: IntArray, keep: IntArray, job: int) -> bool:
    """Whether two rows hold the same GPUs of the same nodes, in any order."""
    count = row[job, COUNT]
    if count != keep[job, COUNT] or row[job, TOTAL] != keep[job, TOTAL]:
        return False
    for i in range(FIRST, FIRST + 2 * count, 2):
        found = False
        for k in range(FIRST, FIRST + 2 * count, 2):
            if row[job, i] == keep[job, k] and row[job, i + 1] == keep[job, k + 1]:
                found = True
        if not found:
            return False
    return True


@leaf
def _choose_one(state: State, job: int, gpus: int, exclusive: int) -> None:
    """Write a row on one node: the tightest fit, preferably on a node closed to distributed jobs; sometimes any fit."""
    row, levels = state.row, state.levels
    level = gpus
    while levels[ALL, level, 0] == 0:
        level += 1
    if draw(state.random, 8) == 0:
        other = gpus + draw(state.random, levels.shape[1] - gpus)
        if levels[ALL, other, 0] > 0:
            level = other
    closed = exclusive == 1 and levels[ALL, level, 0] > levels[OPEN, level, 0]
    which = CLOSED if closed else ALL
    n = _next(levels, which, level, draw(state.random, state.node.shape[0]))
    if n < 0:
        n = _next(levels, which, level, 0)
    row[job, COUNT] = 1
    row[job, TOTAL] = gpus
    row[job, FIRST] = n
    row[job, FIRST + 1] = gpus


@leaf
def _choose_many(state: State, job: int, want: int, gpus: int, or_more: bool) -> None:
    """Write a row on ``want`` open nodes: the roomiest first, the last one the tightest that holds the rest.

    The caller has checked that ``gpus`` fit on exactly ``want`` nodes, or on that many ``or_more``.
    """
    row, levels = state.row, state.levels
    while or_more and _room(levels, want) < gpus:
        want += 1
    nodes = state.node.shape[0]
    start = draw(state.random, nodes)
    level = levels.shape[1] - 1
    passed = 0
    rest = gpus
    for i in range(want):
        if i == want - 1:
            tight = rest
            while tight < level and levels[OPEN, tight, 0] == 0:
                tight += 1
            if tight < level:
                level = tight
                passed = 0
        n = _next_from(levels, level, start, passed, nodes)
        while n < 0:
            level -= 1
            n = _next_from(levels, level, start, 0, nodes)
        passed = (n - start if n >= start else n + nodes - start) + 1
        row[job, FIRST + 2 * i] = n
        row[job, FIRST + 2 * i + 1] = min(level, rest - (want - 1 - i))
        rest -= row[job, FIRST + 2 * i + 1]
    row[job, COUNT] = want
    row[job, TOTAL] = gpus
