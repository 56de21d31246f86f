"""Maximum-weight matching in general graphs by the primal-dual blossom method, O(n^3).

Source: Edmonds 1965; Galil, "Efficient algorithms for finding maximum matching in graphs", 1986. Trees of alternating
paths grow from every free vertex; odd cycles shrink to blossoms; duals move until an edge becomes tight.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from simsched.jit import jit

Ints = npt.NDArray[np.int64]

#: Weights are rounded to multiples of the largest over this, so that duals stay integers and noise breaks no tie.
_SCALE = 2**44
#: Multiplies doubles from 1/4 to 1 to whole numbers.
_EXACT = 2.0**54
_FREE, _EVEN, _ODD = -1, 0, 1


# Vertices are 1..n and blossoms n+1 and up; 0 is nobody. Two arrays compile much faster than a record of
# sixteen.
# Layers of `edge`: the edge by which a reaches b weighs [_WEIGHT, a, b] and runs between the vertices [_TAIL, a, b] and
# [_HEAD, a, b]; [_VIA, b, x] is the petal of blossom b that holds vertex x, [_PETALS, b] its petals round the cycle.
_WEIGHT, _TAIL, _HEAD, _VIA, _PETALS = _LAYERS = range(5)
# Rows of `node`: among others the outermost blossom, the even vertex nearest to a node (slack) and the vertex by which
# the tree reached it (parent); then a queue, a stack, and the counts below.
_DUAL, _MATE, _SLACK, _OUTER, _PARENT, _LABEL, _SEEN, _PETAL_COUNT, _QUEUE, _STACK, _COUNTS = _ROWS = range(11)
_VERTICES, _HIGHEST, _QUEUE_HEAD, _QUEUE_TAIL, _CLOCK = range(5)


def max_weight_matching(weights: npt.NDArray[np.float64]) -> tuple[tuple[int, int], ...]:
    """Return the pairs (i, j), i < j, of a matching of maximum total weight, sorted.

    `weights` is a symmetric n x n matrix; its diagonal and entries of 0 or less are not edges. Deterministic.
    """
    size = len(weights)
    largest = float(weights.max()) if size else 0.0
    if largest <= 0:
        return ()
    whole = np.where(weights > 0, np.rint(weights / largest * _SCALE), 0.0).astype(np.int64)
    return _pairs(_match(*_start(whole)), size)


def exact_matching(weights: npt.NDArray[np.float64]) -> tuple[tuple[int, int], ...]:
    """Return a matching like `max_weight_matching` that sees every bit of weights of at most 1.

    Rounding noise in the weights, which may differ between the two entries of a pair, then decides ties, as in Muri's
    artifact, whose schedules depend on it.
    """
    whole = np.where(weights > 0, weights * _EXACT, 0.0).astype(np.int64)
    return _pairs(_match(*_start(whole)), len(weights)) if whole.any() else ()


def _pairs(mate: Ints, size: int) -> tuple[tuple[int, int], ...]:
    """List the pairs given the mates of the vertices."""
    return tuple((i, int(mate[i + 1]) - 1) for i in range(size) if mate[i + 1] - 1 > i)


def _start(whole: Ints) -> tuple[Ints, Ints]:
    size = len(whole)
    total = size + size // 2 + 2
    edge = np.zeros((len(_LAYERS), total, total), dtype=np.int64)
    edge[_WEIGHT, 1 : size + 1, 1 : size + 1] = whole
    edge[_TAIL], edge[_HEAD] = np.indices((total, total))
    np.fill_diagonal(edge[_VIA, : size + 1, : size + 1], np.arange(size + 1))
    node = np.zeros((len(_ROWS), 2 * total), dtype=np.int64)
    node[_DUAL, 1 : size + 1] = whole.max()
    node[_OUTER, : size + 1] = np.arange(size + 1)
    node[_COUNTS, _VERTICES], node[_COUNTS, _HIGHEST] = size, size
    return edge, node


@jit
def _distance(edge: Ints, node: Ints, a: int, b: int) -> np.int64:
    """Compute the reduced cost of the edge by which `a` reaches `b`; 0 if it is tight."""
    tail, head = edge[_TAIL, a, b], edge[_HEAD, a, b]
    distance: np.int64 = node[_DUAL, tail] + node[_DUAL, head] - 2 * edge[_WEIGHT, tail, head]
    return distance


@jit
def _update_slack(edge: Ints, node: Ints, u: int, x: int) -> None:
    if node[_SLACK, x] == 0 or _distance(edge, node, u, x) < _distance(edge, node, node[_SLACK, x], x):
        node[_SLACK, x] = u


@jit
def _set_slack(edge: Ints, node: Ints, x: int) -> None:
    node[_SLACK, x] = 0
    for u in range(1, node[_COUNTS, _VERTICES] + 1):
        if edge[_WEIGHT, u, x] > 0 and node[_OUTER, u] != x and node[_LABEL, node[_OUTER, u]] == _EVEN:
            _update_slack(edge, node, u, x)


@jit
def _enqueue(edge: Ints, node: Ints, x: int) -> None:
    """Add the vertices of `x` to the queue, petal by petal."""
    node[_STACK, 0] = x
    height = 1
    while height > 0:
        height -= 1
        top = node[_STACK, height]
        if top <= node[_COUNTS, _VERTICES]:
            node[_QUEUE, node[_COUNTS, _QUEUE_TAIL]] = top
            node[_COUNTS, _QUEUE_TAIL] += 1
        else:
            for i in range(node[_PETAL_COUNT, top] - 1, -1, -1):
                node[_STACK, height] = edge[_PETALS, top, i]
                height += 1


@jit
def _set_outer(edge: Ints, node: Ints, x: int, blossom: int) -> None:
    node[_STACK, 0] = x
    height = 1
    while height > 0:
        height -= 1
        top = node[_STACK, height]
        node[_OUTER, top] = blossom
        if top > node[_COUNTS, _VERTICES]:
            for i in range(node[_PETAL_COUNT, top]):
                node[_STACK, height] = edge[_PETALS, top, i]
                height += 1


@jit
def _reverse(edge: Ints, node: Ints, blossom: int, first: int, end: int) -> None:
    """Reverse the petals from `first` to before `end`."""
    last = end - 1
    while first < last:
        edge[_PETALS, blossom, first], edge[_PETALS, blossom, last] = (
            edge[_PETALS, blossom, last],
            edge[_PETALS, blossom, first],
        )
        first += 1
        last -= 1


@jit
def _even_way(edge: Ints, node: Ints, blossom: int, petal: int) -> int:
    """Find `petal` in the cycle, which is reversed if the path to it from the base is odd."""
    count = node[_PETAL_COUNT, blossom]
    place = 0
    while edge[_PETALS, blossom, place] != petal:
        place += 1
    if place % 2 == 0:
        return place
    _reverse(edge, node, blossom, 1, count)
    way: int = count - place
    return way


@jit
def _set_mate(edge: Ints, node: Ints, a: int, b: int) -> None:
    """Match `a` with `b`, and the petals inside `a` with each other."""
    node[_STACK, 0], node[_STACK, 1] = a, b
    height = 2
    while height > 0:
        height -= 2
        u, v = node[_STACK, height], node[_STACK, height + 1]
        node[_MATE, u] = edge[_HEAD, u, v]
        if u <= node[_COUNTS, _VERTICES]:
            continue
        petal = edge[_VIA, u, edge[_TAIL, u, v]]
        place = _even_way(edge, node, u, petal)
        for i in range(place):
            node[_STACK, height], node[_STACK, height + 1] = edge[_PETALS, u, i], edge[_PETALS, u, i ^ 1]
            height += 2
        node[_STACK, height], node[_STACK, height + 1] = petal, v
        height += 2
        _reverse(edge, node, u, 0, place)
        _reverse(edge, node, u, place, node[_PETAL_COUNT, u])
        _reverse(edge, node, u, 0, node[_PETAL_COUNT, u])


@jit
def _augment(edge: Ints, node: Ints, u: int, v: int) -> None:
    """Flip the alternating path from `u` up to the root of its tree."""
    while True:
        former = node[_OUTER, node[_MATE, u]]
        _set_mate(edge, node, u, v)
        if former == 0:
            return
        above = node[_OUTER, node[_PARENT, former]]
        _set_mate(edge, node, former, above)
        u, v = above, former


@jit
def _common_ancestor(edge: Ints, node: Ints, u: int, v: int) -> int:
    """Find the lowest node on both paths to the roots, 0 if the roots differ."""
    node[_COUNTS, _CLOCK] += 1
    while u != 0 or v != 0:
        if u != 0:
            if node[_SEEN, u] == node[_COUNTS, _CLOCK]:
                return u
            node[_SEEN, u] = node[_COUNTS, _CLOCK]
            u = node[_OUTER, node[_MATE, u]]
            if u != 0:
                u = node[_OUTER, node[_PARENT, u]]
        u, v = v, u
    return 0


@jit
def _collect(edge: Ints, node: Ints, blossom: int, x: int, ancestor: int) -> None:
    while x != ancestor:
        odd = node[_OUTER, node[_MATE, x]]
        count = node[_PETAL_COUNT, blossom]
        edge[_PETALS, blossom, count] = x
        edge[_PETALS, blossom, count + 1] = odd
        node[_PETAL_COUNT, blossom] = count + 2
        _enqueue(edge, node, odd)
        x = node[_OUTER, node[_PARENT, odd]]


@jit
def _shrink(edge: Ints, node: Ints, u: int, ancestor: int, v: int) -> None:
    """Form a blossom from the cycle that the edge between `u` and `v` closes."""
    size = node[_COUNTS, _VERTICES]
    b = size + 1
    while b <= node[_COUNTS, _HIGHEST] and node[_OUTER, b] != 0:
        b += 1
    node[_COUNTS, _HIGHEST] = max(node[_COUNTS, _HIGHEST], b)
    node[_DUAL, b] = 0
    node[_LABEL, b] = _EVEN
    node[_MATE, b] = node[_MATE, ancestor]
    edge[_PETALS, b, 0] = ancestor
    node[_PETAL_COUNT, b] = 1
    _collect(edge, node, b, u, ancestor)
    count = node[_PETAL_COUNT, b]
    _reverse(edge, node, b, 1, count)
    _collect(edge, node, b, v, ancestor)
    _set_outer(edge, node, b, b)
    _connect(edge, node, b)
    _set_slack(edge, node, b)


@jit
def _connect(edge: Ints, node: Ints, b: int) -> None:
    """Connect the blossom to every node by the edge of least reduced cost among its petals."""
    highest = node[_COUNTS, _HIGHEST]
    for x in range(1, highest + 1):
        edge[_WEIGHT, b, x] = 0
        edge[_WEIGHT, x, b] = 0
    for x in range(1, node[_COUNTS, _VERTICES] + 1):
        edge[_VIA, b, x] = 0
    for i in range(node[_PETAL_COUNT, b]):
        petal = edge[_PETALS, b, i]
        for x in range(1, highest + 1):
            if edge[_WEIGHT, b, x] == 0 or _distance(edge, node, petal, x) < _distance(edge, node, b, x):
                edge[_WEIGHT, b, x], edge[_WEIGHT, x, b] = edge[_WEIGHT, petal, x], edge[_WEIGHT, x, petal]
                edge[_TAIL, b, x], edge[_HEAD, b, x] = edge[_TAIL, petal, x], edge[_HEAD, petal, x]
                edge[_TAIL, x, b], edge[_HEAD, x, b] = edge[_TAIL, x, petal], edge[_HEAD, x, petal]
        for x in range(1, node[_COUNTS, _VERTICES] + 1):
            if edge[_VIA, petal, x] != 0:
                edge[_VIA, b, x] = petal


@jit
def _expand(edge: Ints, node: Ints, b: int) -> None:
    """Undo an odd blossom whose dual is 0; its even path stays in the tree."""
    count = node[_PETAL_COUNT, b]
    for i in range(count):
        _set_outer(edge, node, edge[_PETALS, b, i], edge[_PETALS, b, i])
    entry = edge[_VIA, b, edge[_TAIL, b, node[_PARENT, b]]]
    place = _even_way(edge, node, b, entry)
    for i in range(0, place, 2):
        odd, even = edge[_PETALS, b, i], edge[_PETALS, b, i + 1]
        node[_PARENT, odd] = edge[_TAIL, even, odd]
        node[_LABEL, odd] = _ODD
        node[_LABEL, even] = _EVEN
        node[_SLACK, odd] = 0
        _set_slack(edge, node, even)
        _enqueue(edge, node, even)
    node[_LABEL, entry] = _ODD
    node[_PARENT, entry] = node[_PARENT, b]
    for i in range(place + 1, count):
        node[_LABEL, edge[_PETALS, b, i]] = _FREE
        _set_slack(edge, node, edge[_PETALS, b, i])
    node[_OUTER, b] = 0


@jit
def _use_tight(edge: Ints, node: Ints, a: int, b: int) -> bool:
    """Grow a tree by a tight edge, shrink a cycle, or augment; True if the matching grew."""
    tail, head = edge[_TAIL, a, b], edge[_HEAD, a, b]
    u, v = node[_OUTER, tail], node[_OUTER, head]
    if node[_LABEL, v] == _FREE:
        node[_PARENT, v] = tail
        node[_LABEL, v] = _ODD
        even = node[_OUTER, node[_MATE, v]]
        node[_SLACK, v] = 0
        node[_SLACK, even] = 0
        node[_LABEL, even] = _EVEN
        _enqueue(edge, node, even)
    elif node[_LABEL, v] == _EVEN:
        ancestor = _common_ancestor(edge, node, u, v)
        if ancestor == 0:
            _augment(edge, node, u, v)
            _augment(edge, node, v, u)
            return True
        _shrink(edge, node, u, ancestor, v)
    return False


@jit
def _search(edge: Ints, node: Ints) -> bool:
    """Use the tight edges of all queued vertices; True if the matching grew."""
    size = node[_COUNTS, _VERTICES]
    while node[_COUNTS, _QUEUE_HEAD] < node[_COUNTS, _QUEUE_TAIL]:
        u = node[_QUEUE, node[_COUNTS, _QUEUE_HEAD]]
        node[_COUNTS, _QUEUE_HEAD] += 1
        if node[_LABEL, node[_OUTER, u]] == _ODD:
            continue
        for v in range(1, size + 1):
            if edge[_WEIGHT, u, v] > 0 and node[_OUTER, u] != node[_OUTER, v]:
                if _distance(edge, node, u, v) == 0:
                    if _use_tight(edge, node, u, v):
                        return True
                else:
                    _update_slack(edge, node, u, node[_OUTER, v])
    return False


@jit
def _shift(edge: Ints, node: Ints) -> bool:
    """Move the duals until an edge becomes tight; False if a free vertex reaches 0, which proves the optimum."""
    size, highest = node[_COUNTS, _VERTICES], node[_COUNTS, _HIGHEST]
    step = np.int64(2**62)
    for b in range(size + 1, highest + 1):
        if node[_OUTER, b] == b and node[_LABEL, b] == _ODD:
            step = min(step, node[_DUAL, b] // np.int64(2))
    for x in range(1, highest + 1):
        if node[_OUTER, x] == x and node[_SLACK, x] != 0:
            if node[_LABEL, x] == _FREE:
                step = min(step, _distance(edge, node, node[_SLACK, x], x))
            elif node[_LABEL, x] == _EVEN:
                step = min(step, _distance(edge, node, node[_SLACK, x], x) // 2)
    for u in range(1, size + 1):
        if node[_LABEL, node[_OUTER, u]] == _EVEN:
            if node[_DUAL, u] <= step:
                return False
            node[_DUAL, u] -= step
        elif node[_LABEL, node[_OUTER, u]] == _ODD:
            node[_DUAL, u] += step
    for b in range(size + 1, highest + 1):
        if node[_OUTER, b] == b:
            if node[_LABEL, b] == _EVEN:
                node[_DUAL, b] += 2 * step
            elif node[_LABEL, b] == _ODD:
                node[_DUAL, b] -= 2 * step
    return True


@jit
def _grow(edge: Ints, node: Ints) -> bool:
    """Enlarge the matching by one pair, or return False at the optimum."""
    for x in range(1, node[_COUNTS, _HIGHEST] + 1):
        node[_LABEL, x] = _FREE
        node[_SLACK, x] = 0
    node[_COUNTS, _QUEUE_HEAD] = 0
    node[_COUNTS, _QUEUE_TAIL] = 0
    for x in range(1, node[_COUNTS, _HIGHEST] + 1):
        if node[_OUTER, x] == x and node[_MATE, x] == 0:
            node[_PARENT, x] = 0
            node[_LABEL, x] = _EVEN
            _enqueue(edge, node, x)
    if node[_COUNTS, _QUEUE_TAIL] == 0:
        return False
    while True:
        if _search(edge, node):
            return True
        if not _shift(edge, node):
            return False
        node[_COUNTS, _QUEUE_HEAD] = 0
        node[_COUNTS, _QUEUE_TAIL] = 0
        for x in range(1, node[_COUNTS, _HIGHEST] + 1):
            near = node[_SLACK, x]
            if node[_OUTER, x] == x and near != 0 and node[_OUTER, near] != x and _distance(edge, node, near, x) == 0:
                grown = _use_tight(edge, node, near, x)
                if grown:
                    return True
        for b in range(node[_COUNTS, _VERTICES] + 1, node[_COUNTS, _HIGHEST] + 1):
            if node[_OUTER, b] == b and node[_LABEL, b] == _ODD and node[_DUAL, b] == 0:
                _expand(edge, node, b)


@jit
def _match(edge: Ints, node: Ints) -> Ints:
    while _grow(edge, node):
        pass
    mate: Ints = node[_MATE]
    return mate
