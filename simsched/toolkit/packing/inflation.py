"""Fills a cluster: pods arrive one by one until they ask for more than it has, and none ever leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simsched.model import Node
from simsched.model.placement import GPU_MILLI, Pod
from simsched.toolkit.packing.cluster import Floats
from simsched.toolkit.packing.names import NodeOrder
from simsched.toolkit.packing.packer import Packer

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
