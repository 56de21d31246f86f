"""Maximum-weight matching in general graphs by the primal-dual blossom method, O(n^3).

Source: Edmonds 1965; Galil, "Efficient algorithms for finding maximum matching in graphs", 1986. A tree of alternating
paths grows from every free vertex; odd cycles are shrunk to blossoms; duals move until an edge becomes tight.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simsched.jit import jit

Ints = npt.NDArray[np.int64]

#: Weights are rounded to multiples of the largest over this, so that the duals stay whole and no tie is left to noise.
_SCALE = 2**44
_FREE, _EVEN, _ODD = -1, 0, 1


class _State(NamedTuple):
    """Vertices are 1..n and blossoms n+1 and up; 0 is nobody.

    `weight[a, b]` is the edge by which `a` reaches `b`, between vertices `tail[a, b]` and `head[a, b]`. `outer` is the
    blossom on the outside, `petals[b, :petal_count[b]]` what blossom b was made of, and `via[b, x]` the petal of b that
    holds vertex x. `slack[x]` is the even vertex nearest to x, `parent[x]` the vertex by which the tree reached x.
    `counts` holds the vertices, the highest blossom, the head and tail of the queue, and the clock of `seen`.
    """

    weight: Ints
    tail: Ints
    head: Ints
    via: Ints
    petals: Ints
    petal_count: Ints
    dual: Ints
    mate: Ints
    slack: Ints
    outer: Ints
    parent: Ints
    label: Ints
    seen: Ints
    queue: Ints
    counts: Ints


_VERTICES, _HIGHEST, _QUEUE_HEAD, _QUEUE_TAIL, _CLOCK = 0, 1, 2, 3, 4


def max_weight_matching(weights: npt.NDArray[np.float64]) -> tuple[tuple[int, int], ...]:
    """Return the pairs (i, j), i < j, of a matching of maximum total weight, sorted.

    `weights` is a symmetric n x n matrix; entries of 0 and less are no edges. Equal matrices give equal matchings.
    """
    size = len(weights)
    largest = float(weights.max()) if size else 0.0
    if largest <= 0:
        return ()
    whole = np.where(weights > 0, np.rint(weights / largest * _SCALE), 0.0).astype(np.int64)
    np.fill_diagonal(whole, 0)
    mate = _match(_start(whole))
    return tuple((i, int(mate[i + 1]) - 1) for i in range(size) if mate[i + 1] - 1 > i)


def _start(whole: Ints) -> _State:
    size = len(whole)
    total = size + size // 2 + 2
    weight = np.zeros((total, total), dtype=np.int64)
    weight[1 : size + 1, 1 : size + 1] = whole
    tail, head = np.indices((total, total), dtype=np.int64)
    via = np.diag(np.arange(total, dtype=np.int64))
    via[size + 1 :] = 0
    rows = [np.zeros(total, dtype=np.int64) for _ in range(8)]
    dual, mate, slack, outer, parent, label, seen, petal_count = rows
    dual[1 : size + 1] = whole.max()
    outer[: size + 1] = np.arange(size + 1)
    petals = np.zeros((total, total), dtype=np.int64)
    queue = np.zeros(2 * total, dtype=np.int64)
    counts = np.array([size, size, 0, 0, 0], dtype=np.int64)
    return _State(
        weight, tail, head, via, petals, petal_count, dual, mate, slack, outer, parent, label, seen, queue, counts
    )


@jit
def _distance(s: _State, a: int, b: int) -> int:
    """Compute the reduced cost of the edge by which `a` reaches `b`; 0 if it is tight."""
    tail, head = s.tail[a, b], s.head[a, b]
    return s.dual[tail] + s.dual[head] - 2 * s.weight[tail, head]


@jit
def _update_slack(s: _State, u: int, x: int) -> None:
    if s.slack[x] == 0 or _distance(s, u, x) < _distance(s, s.slack[x], x):
        s.slack[x] = u


@jit
def _set_slack(s: _State, x: int) -> None:
    s.slack[x] = 0
    for u in range(1, s.counts[_VERTICES] + 1):
        if s.weight[u, x] > 0 and s.outer[u] != x and s.label[s.outer[u]] == _EVEN:
            _update_slack(s, u, x)


@jit
def _enqueue(s: _State, x: int) -> None:
    """Add the vertices of `x` to the queue, petal by petal."""
    stack = [x]
    while len(stack) > 0:
        top = stack.pop()
        if top <= s.counts[_VERTICES]:
            s.queue[s.counts[_QUEUE_TAIL]] = top
            s.counts[_QUEUE_TAIL] += 1
        else:
            for i in range(s.petal_count[top] - 1, -1, -1):
                stack.append(s.petals[top, i])  # noqa: PERF401, numba has no extend of a generator


@jit
def _set_outer(s: _State, x: int, blossom: int) -> None:
    stack = [x]
    while len(stack) > 0:
        top = stack.pop()
        s.outer[top] = blossom
        if top > s.counts[_VERTICES]:
            for i in range(s.petal_count[top]):
                stack.append(s.petals[top, i])  # noqa: PERF401


@jit
def _even_way(s: _State, blossom: int, petal: int) -> int:
    """Find `petal` in the cycle, which is turned round if the way there from its base is odd."""
    count = s.petal_count[blossom]
    place = 0
    while s.petals[blossom, place] != petal:
        place += 1
    if place % 2 == 0:
        return place
    s.petals[blossom, 1:count] = s.petals[blossom, 1:count][::-1].copy()
    return count - place


@jit
def _set_mate(s: _State, a: int, b: int) -> None:
    """Match `a` with `b`, and the petals inside `a` with each other."""
    stack = [(a, b)]
    while len(stack) > 0:
        u, v = stack.pop()
        s.mate[u] = s.head[u, v]
        if u <= s.counts[_VERTICES]:
            continue
        petal = s.via[u, s.tail[u, v]]
        place = _even_way(s, u, petal)
        for i in range(place):
            stack.append((s.petals[u, i], s.petals[u, i ^ 1]))
        stack.append((petal, v))
        count = s.petal_count[u]
        s.petals[u, :count] = np.concatenate((s.petals[u, place:count], s.petals[u, :place]))


@jit
def _augment(s: _State, u: int, v: int) -> None:
    """Flip the alternating path from `u` up to the root of its tree."""
    while True:
        former = s.outer[s.mate[u]]
        _set_mate(s, u, v)
        if former == 0:
            return
        above = s.outer[s.parent[former]]
        _set_mate(s, former, above)
        u, v = above, former


@jit
def _common_ancestor(s: _State, u: int, v: int) -> int:
    """Find the lowest node on both ways to the roots, 0 if the roots differ."""
    s.counts[_CLOCK] += 1
    while u != 0 or v != 0:
        if u != 0:
            if s.seen[u] == s.counts[_CLOCK]:
                return u
            s.seen[u] = s.counts[_CLOCK]
            u = s.outer[s.mate[u]]
            if u != 0:
                u = s.outer[s.parent[u]]
        u, v = v, u
    return 0


@jit
def _collect(s: _State, blossom: int, x: int, ancestor: int) -> None:
    while x != ancestor:
        odd = s.outer[s.mate[x]]
        count = s.petal_count[blossom]
        s.petals[blossom, count] = x
        s.petals[blossom, count + 1] = odd
        s.petal_count[blossom] = count + 2
        _enqueue(s, odd)
        x = s.outer[s.parent[odd]]


@jit
def _shrink(s: _State, u: int, ancestor: int, v: int) -> None:
    """Make a blossom of the cycle that the edge between `u` and `v` closes."""
    size = s.counts[_VERTICES]
    b = size + 1
    while b <= s.counts[_HIGHEST] and s.outer[b] != 0:
        b += 1
    s.counts[_HIGHEST] = max(s.counts[_HIGHEST], b)
    s.dual[b] = 0
    s.label[b] = _EVEN
    s.mate[b] = s.mate[ancestor]
    s.petals[b, 0] = ancestor
    s.petal_count[b] = 1
    _collect(s, b, u, ancestor)
    count = s.petal_count[b]
    s.petals[b, 1:count] = s.petals[b, 1:count][::-1].copy()
    _collect(s, b, v, ancestor)
    _set_outer(s, b, b)
    _connect(s, b)
    _set_slack(s, b)


@jit
def _connect(s: _State, b: int) -> None:
    """Let the blossom reach every node by the edge of its petals with the least reduced cost."""
    highest = s.counts[_HIGHEST]
    for x in range(1, highest + 1):
        s.weight[b, x] = 0
        s.weight[x, b] = 0
    s.via[b, :] = 0
    for i in range(s.petal_count[b]):
        petal = s.petals[b, i]
        for x in range(1, highest + 1):
            if s.weight[b, x] == 0 or _distance(s, petal, x) < _distance(s, b, x):
                s.weight[b, x], s.weight[x, b] = s.weight[petal, x], s.weight[x, petal]
                s.tail[b, x], s.head[b, x] = s.tail[petal, x], s.head[petal, x]
                s.tail[x, b], s.head[x, b] = s.tail[x, petal], s.head[x, petal]
        for x in range(1, s.counts[_VERTICES] + 1):
            if s.via[petal, x] != 0:
                s.via[b, x] = petal


@jit
def _expand(s: _State, b: int) -> None:
    """Undo an odd blossom whose dual is 0; its even way stays in the tree."""
    count = s.petal_count[b]
    for i in range(count):
        _set_outer(s, s.petals[b, i], s.petals[b, i])
    entry = s.via[b, s.tail[b, s.parent[b]]]
    place = _even_way(s, b, entry)
    for i in range(0, place, 2):
        odd, even = s.petals[b, i], s.petals[b, i + 1]
        s.parent[odd] = s.tail[even, odd]
        s.label[odd] = _ODD
        s.label[even] = _EVEN
        s.slack[odd] = 0
        _set_slack(s, even)
        _enqueue(s, even)
    s.label[entry] = _ODD
    s.parent[entry] = s.parent[b]
    for i in range(place + 1, count):
        s.label[s.petals[b, i]] = _FREE
        _set_slack(s, s.petals[b, i])
    s.outer[b] = 0


@jit
def _use_tight(s: _State, a: int, b: int) -> bool:
    """Grow a tree by a tight edge, shrink a cycle, or augment; True if the matching grew."""
    tail, head = s.tail[a, b], s.head[a, b]
    u, v = s.outer[tail], s.outer[head]
    if s.label[v] == _FREE:
        s.parent[v] = tail
        s.label[v] = _ODD
        even = s.outer[s.mate[v]]
        s.slack[v] = 0
        s.slack[even] = 0
        s.label[even] = _EVEN
        _enqueue(s, even)
    elif s.label[v] == _EVEN:
        ancestor = _common_ancestor(s, u, v)
        if ancestor == 0:
            _augment(s, u, v)
            _augment(s, v, u)
            return True
        _shrink(s, u, ancestor, v)
    return False


@jit
def _search(s: _State) -> bool:
    """Use the tight edges of all queued vertices; True if the matching grew."""
    size = s.counts[_VERTICES]
    while s.counts[_QUEUE_HEAD] < s.counts[_QUEUE_TAIL]:
        u = s.queue[s.counts[_QUEUE_HEAD]]
        s.counts[_QUEUE_HEAD] += 1
        if s.label[s.outer[u]] == _ODD:
            continue
        for v in range(1, size + 1):
            if s.weight[u, v] > 0 and s.outer[u] != s.outer[v]:
                if _distance(s, u, v) == 0:
                    if _use_tight(s, u, v):
                        return True
                else:
                    _update_slack(s, u, s.outer[v])
    return False


@jit
def _shift(s: _State) -> bool:
    """Move the duals until an edge becomes tight; False if a free vertex reaches 0, which proves the optimum."""
    size, highest = s.counts[_VERTICES], s.counts[_HIGHEST]
    step = np.int64(2**62)
    for b in range(size + 1, highest + 1):
        if s.outer[b] == b and s.label[b] == _ODD:
            step = min(step, s.dual[b] // 2)
    for x in range(1, highest + 1):
        if s.outer[x] == x and s.slack[x] != 0:
            if s.label[x] == _FREE:
                step = min(step, _distance(s, s.slack[x], x))
            elif s.label[x] == _EVEN:
                step = min(step, _distance(s, s.slack[x], x) // 2)
    for u in range(1, size + 1):
        if s.label[s.outer[u]] == _EVEN:
            if s.dual[u] <= step:
                return False
            s.dual[u] -= step
        elif s.label[s.outer[u]] == _ODD:
            s.dual[u] += step
    for b in range(size + 1, highest + 1):
        if s.outer[b] == b:
            if s.label[b] == _EVEN:
                s.dual[b] += 2 * step
            elif s.label[b] == _ODD:
                s.dual[b] -= 2 * step
    return True


@jit
def _grow(s: _State) -> bool:
    """Make the matching one pair larger, or return False at the optimum."""
    s.label[:] = _FREE
    s.slack[:] = 0
    s.counts[_QUEUE_HEAD] = 0
    s.counts[_QUEUE_TAIL] = 0
    for x in range(1, s.counts[_HIGHEST] + 1):
        if s.outer[x] == x and s.mate[x] == 0:
            s.parent[x] = 0
            s.label[x] = _EVEN
            _enqueue(s, x)
    if s.counts[_QUEUE_TAIL] == 0:
        return False
    while True:
        if _search(s):
            return True
        if not _shift(s):
            return False
        s.counts[_QUEUE_HEAD] = 0
        s.counts[_QUEUE_TAIL] = 0
        for x in range(1, s.counts[_HIGHEST] + 1):
            near = s.slack[x]
            if s.outer[x] == x and near != 0 and s.outer[near] != x and _distance(s, near, x) == 0:
                if _use_tight(s, near, x):
                    return True
        for b in range(s.counts[_VERTICES] + 1, s.counts[_HIGHEST] + 1):
            if s.outer[b] == b and s.label[b] == _ODD and s.dual[b] == 0:
                _expand(s, b)


@jit
def _match(s: _State) -> Ints:
    while _grow(s):
        pass
    return s.mate
