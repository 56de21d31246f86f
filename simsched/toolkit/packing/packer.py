"""Places pods on the nodes of a cluster one by one by a rule, or until they ask for more than it has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from simsched.jit import jit, leaf
from simsched.model import Node
from simsched.model.placement import GPU_MILLI, Pod
from simsched.toolkit.packing.cluster import MOST_PODS, Floats, Free, Ints, count, fits, request_of, take
from simsched.toolkit.packing.names import FGD, RANDOM, RULES, NodeOrder
from simsched.toolkit.packing.rules import Books, choose_gpus, score

#: The score of a node that a request does not fit on; rules give negative scores to nodes far beyond their scales.
_MISFIT = int(np.iinfo(np.int64).min)


class _Scores(NamedTuple):
    """Scores by node and request, `_MISFIT` if the request does not fit, and how many pods the node then held.

    Requests repeat, and a pod changes one node only: few scores have to be computed again.
    """

    value: Ints
    pods: Ints


class Packer:
    """Nodes that fill up; a tie goes to the first of the nodes in the order given."""

    def __init__(
        self, nodes: Sequence[Node], pods: Sequence[Pod], rule: str, target: Sequence[Pod] | None = None
    ) -> None:
        """Start with empty nodes and a rule of `RULES`; the target of FGD defaults to the pods of the list."""
        self._rule, self._nodes = RULES.index(rule), nodes
        self._books = Books.of(nodes, pods, pods if target is None else target)
        kinds = {request: i for i, request in enumerate(dict.fromkeys(map(request_of, pods)))}
        self._request = np.array([kinds[request_of(pod)] for pod in pods], dtype=np.int64)
        self._memory_mib = np.array([pod.memory_mib for pod in pods], dtype=np.int64)
        shape = len(nodes), len(kinds)
        self._scores = _Scores(np.zeros(shape, dtype=np.int64), np.full(shape, -1, dtype=np.int64))

    @property
    def gpu_milli(self) -> list[list[int]]:
        """Return the thousandths of each GPU that are free, node by node."""
        free = self._books.free
        return [room[:gpus].tolist() for room, gpus in zip(free.room.gpu_milli, free.room.gpus, strict=True)]

    def scores(self, pod: int) -> list[int | None]:
        """Return the score of each node for pod number `pod`, None if it does not fit."""
        request, memory = int(self._request[pod]), int(self._memory_mib[pod])
        _rescore(self._rule, request, self._books, self._scores)
        fitting = (_fitting(self._books.free, node, request, memory, self._scores) for node in range(len(self._nodes)))
        return [int(self._scores.value[node, request]) if fit else None for node, fit in enumerate(fitting)]

    def place(self, arrivals: Sequence[int], draws: Floats | None = None) -> Ints:
        """Place the pods with these numbers and return the node of each, -1 if it fits nowhere.

        `draws`, shape (arrivals, 2) in [0, 1), choose the node and the GPU under `random`.
        """
        order = np.asarray(arrivals, dtype=np.int64)
        chances = np.zeros((len(order), 2)) if draws is None else draws
        return _place_all(self._rule, order, chances, self._request, self._memory_mib, self._books, self._scores)

    def unusable(self) -> float:
        """Return the share of all free GPUs that a pod of the target cannot use, 0 if none is free."""
        books = self._books
        for node in range(len(self._nodes)):
            count(books.free, node, books.target, books.fragments)
        free = int(books.free.room.gpu_milli.sum())
        return float(books.fragments.unusable.sum()) / free if free else 0.0


def fit_nowhere(nodes: Sequence[Node], pods: Sequence[Pod]) -> int:
    """Count the pods that fit on no empty node."""
    counts = Counter(replace(pod, name="") for pod in pods)
    packer = Packer(nodes, list(counts), RULES[0])
    return sum(number for i, number in enumerate(counts.values()) if all(one is None for one in packer.scores(i)))


@leaf
def _rescore(rule: int, request: int, books: Books, scores: _Scores) -> None:
    """Rescore a request on the nodes that have changed since."""
    free = books.free
    for node in range(len(free.room.gpus)):
        if scores.pods[node, request] == free.pods[node]:
            continue
        scores.pods[node, request] = free.pods[node]
        scores.value[node, request] = _MISFIT
        if fits(free, node, books.requests, request):
            scores.value[node, request] = score(rule, books, node, request)


@leaf
def _fitting(free: Free, node: int, request: int, memory_mib: int, scores: _Scores) -> bool:
    roomy = free.room.memory_mib[node] >= memory_mib and free.pods[node] < MOST_PODS
    return bool(roomy and scores.value[node, request] != _MISFIT)


@leaf
def _best(free: Free, request: int, memory_mib: int, scores: _Scores) -> int:
    """Return the first of the nodes with the highest score, -1 if the pod fits on none."""
    best, highest = -1, _MISFIT
    for node in range(len(free.room.gpus)):
        if scores.value[node, request] > highest and _fitting(free, node, request, memory_mib, scores):
            best, highest = node, scores.value[node, request]
    return best


@leaf
def _drawn(free: Free, request: int, memory_mib: int, scores: _Scores, draw: float) -> int:
    """Return one of the nodes that a pod fits on, -1 if it fits on none."""
    fitting = 0
    for node in range(len(free.room.gpus)):
        fitting += _fitting(free, node, request, memory_mib, scores)
    left = int(draw * fitting)
    for node in range(len(free.room.gpus)):
        if _fitting(free, node, request, memory_mib, scores):
            if left == 0:
                return node
            left -= 1
    return -1


@jit
def _place_all(
    rule: int, arrivals: Ints, draws: Floats, requests: Ints, memory_mib: Ints, books: Books, scores: _Scores
) -> Ints:
    free = books.free
    chosen = np.full(len(arrivals), -1, dtype=np.int64)
    for i in range(len(arrivals)):
        request, memory = requests[arrivals[i]], memory_mib[arrivals[i]]
        _rescore(rule, request, books, scores)
        node = (
            _drawn(free, request, memory, scores, draws[i, 0])
            if rule == RANDOM
            else _best(free, request, memory, scores)
        )
        chosen[i] = node
        if node >= 0:
            choose_gpus(rule, books, node, request, draws[i, 1])
            take(free, node, books.requests, request, memory, books.used)
            if rule == FGD:
                count(free, node, books.target, books.fragments)
    return chosen


#: The digits to which the published runs rounded the share of GPUs allocated (0.01 %).
_DIGITS = 4


@dataclass(frozen=True)
class Filling:
    """How a rule has filled a cluster.

    `allocated` is the share of all GPUs allocated, averaged over the pods that arrive at that `demand`, rounded to a
    whole per cent; both are shares of the cluster's GPUs, and demand counts refused pods too. `refused` counts pods
    that found no room; `unusable` is the share of the GPUs free at the end that the pods of the target cannot use.
    """

    demand: Floats
    allocated: Floats
    refused: int
    unusable: float


def inflated(pods: Sequence[Pod], gpu_milli: int, demand: float, rng: np.random.Generator) -> list[int]:
    """Return which pods arrive, in order: all in random order, with pods left out or repeated to ask for `demand`.

    `demand` is a share of `gpu_milli` thousandths of GPUs. If pods ask for more, random ones are left out until it is
    met. If they ask for less, random pods repeat until the next would exceed it, counting one of its GPUs (as
    published, not all of them). Raises `ValueError` if no pod asks for a GPU.
    """
    if not any(pod.total_milli for pod in pods):
        raise ValueError("no pod asks for a GPU")
    by_name = sorted(range(len(pods)), key=lambda i: pods[i].name)
    chosen = [by_name[i] for i in rng.permutation(len(pods))]
    asked, most = sum(pod.total_milli for pod in pods), demand * gpu_milli
    while asked > most:
        asked -= pods[chosen.pop(int(rng.integers(len(chosen))))].total_milli
    while True:
        more = by_name[int(rng.integers(len(pods)))]
        if asked + pods[more].gpu_milli > most:
            return chosen
        chosen.append(more)
        asked += pods[more].total_milli


def fill(
    nodes: Sequence[Node],
    pods: Sequence[Pod],
    rule: str,
    seed: int,
    demand: float = 1.3,
    *,
    order_seed: int | None = None,
    node_order: NodeOrder = "shuffled",
) -> Filling:
    """Fill an empty cluster under a rule until pods have asked for `demand` times its GPUs.

    A pod that fits nowhere is dropped. The pods themselves are the target of FGD and of `unusable`. `seed` decides
    which pods arrive and when; `order_seed` (default `seed`) the order of the nodes, which breaks ties, and the draws
    of `random`; with `node_order` "names" the nodes are sorted by name.
    """
    capacity = sum(node.gpus for node in nodes) * GPU_MILLI
    arrivals = inflated(pods, capacity, demand, _stream(seed, 0))
    rng = _stream(seed if order_seed is None else order_seed, 1)
    ordered = sorted(nodes, key=lambda node: node.name)
    if node_order == "shuffled":
        ordered = [ordered[i] for i in rng.permutation(len(nodes))]
    packer = Packer(ordered, pods, rule)
    placed = packer.place(arrivals, rng.random((len(arrivals), 2))) >= 0
    totals = np.array([pods[i].total_milli for i in arrivals]) / capacity
    steps = round(demand * 100)
    allocated = _by_demand(np.cumsum(totals), np.cumsum(totals * placed), steps)
    return Filling(np.arange(steps + 1) / 100, allocated, int((~placed).sum()), packer.unusable())


def _stream(seed: int, use: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(use,)))


def _by_demand(demand: Floats, allocated: Floats, steps: int) -> Floats:
    """Average the allocation over each whole per cent of demand; a per cent without a pod keeps the last value."""
    step = np.minimum(np.rint(demand * 100), steps).astype(np.int64)
    pods = np.bincount(step, minlength=steps + 1)
    sums = np.bincount(step, np.round(allocated, _DIGITS), minlength=steps + 1)
    means = np.zeros(steps + 1)
    np.divide(sums, pods, out=means, where=pods > 0)
    last = np.append(0, np.round(allocated, _DIGITS))[np.searchsorted(step, np.arange(steps + 1), side="right")]
    return np.where(pods > 0, means, last)
