"""Fills a cluster: pods come one by one until they have asked for more than there is, and none ever leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from simsched.model.pod import GPU_MILLI, Pod, PodNode
from simsched.packing.fragmentation import Floats, Ints, Target, free_share_unusable
from simsched.packing.rules import NodeState, Requests, Rule, make_rule


@dataclass(frozen=True)
class Filling:
    """How a rule has filled a cluster.

    `allocated` is the share of all GPUs given away when the pods that had come had asked for `demand`, both as shares
    of the cluster's GPUs, for each whole per cent of demand. `refused` counts pods that found no room, and
    `unusable` is the share of what is free at the end that the usual pods could not use.
    """

    demand: Floats
    allocated: Floats
    refused: int
    unusable: float


def inflated(pods: Sequence[Pod], gpu_milli: int, demand: float, rng: np.random.Generator) -> list[int]:
    """Return which pods come, in order: all in random order, then random ones, until they ask for enough.

    Enough is `demand` times `gpu_milli` thousandths of GPUs. Raises `ValueError` where no pod asks for a GPU.
    """
    totals = [pod.total_milli for pod in pods]
    if not any(totals):
        message = "no pod asks for a GPU"
        raise ValueError(message)
    chosen = [int(i) for i in rng.permutation(len(pods))]
    asked = sum(totals)
    while asked < demand * gpu_milli:
        more = int(rng.integers(len(pods)))
        chosen.append(more)
        asked += totals[more]
    return chosen


def fill(
    nodes: Sequence[PodNode], pods: Sequence[Pod], rule: str, rng: np.random.Generator, demand: float = 1.3
) -> Filling:
    """Let pods come to an empty cluster under a rule until they have asked for `demand` times its GPUs.

    A pod that fits nowhere is dropped. The target of FGD, and of what counts as unusable, are the pods themselves.
    """
    packer = Packer(nodes, pods, make_rule(rule, Target.of(pods)), rng)
    capacity = sum(node.gpus for node in nodes) * GPU_MILLI
    steps = np.arange(round(demand * 100) + 1) / 100
    allocated = np.zeros(len(steps))
    asked, reached = 0, 0
    for i in inflated(pods, capacity, demand, rng):
        before = packer.allocated_milli
        packer.place(i)
        asked += pods[i].total_milli
        while reached < len(steps) and asked > steps[reached] * capacity:
            allocated[reached] = before / capacity
            reached += 1
        if reached == len(steps):
            break
    allocated[reached:] = packer.allocated_milli / capacity
    return Filling(steps, allocated, packer.refused, packer.unusable())


class Packer:
    """Nodes that fill up, with every request's score on every node kept up to date.

    Requests repeat, and a pod changes one node only, so that after each placement only that node is scored again.
    """

    def __init__(self, nodes: Sequence[PodNode], pods: Sequence[Pod], rule: Rule, rng: np.random.Generator) -> None:
        """Begin with empty `nodes`; `rng` is drawn from by rules that choose at random."""
        self._rule, self._rng, self._pods = rule, rng, pods
        self._states = [NodeState.empty(node) for node in sorted(nodes, key=lambda node: node.name)]
        kinds: dict[Pod, int] = {}
        self._kind = [kinds.setdefault(replace(pod, name=""), len(kinds)) for pod in pods]
        self._requests = Requests.of(list(kinds))
        #: Scores by node and request, -1 where the request does not fit.
        self._scores: Ints = np.zeros((len(self._states), len(kinds)), dtype=np.int64)
        known: dict[PodNode, Ints] = {}
        for i, state in enumerate(self._states):
            make = replace(state.node, name="")
            if make not in known:
                known[make] = self._scored(state)
            self._scores[i] = known[make]
        self.allocated_milli = 0
        self.refused = 0

    def place(self, pod: int) -> str | None:
        """Put the pod of that number on a node and return the node's name, None where it fits nowhere."""
        scores = self._scores[:, self._kind[pod]]
        best = int(np.argmax(scores))
        if scores[best] < 0:
            self.refused += 1
            return None
        if self._rule.random:
            best = int(self._rng.choice(np.flatnonzero(scores >= 0)))
        state, asked = self._states[best], self._pods[pod]
        state.take(asked, self._gpus(state, asked))
        self._scores[best] = self._scored(state)
        self.allocated_milli += asked.total_milli
        return state.node.name

    def unusable(self) -> float:
        """Return the share of the free GPUs that the usual pods could not use."""
        most = max(state.node.gpus for state in self._states)
        free = np.zeros((len(self._states), most), dtype=np.int64)
        for i, state in enumerate(self._states):
            free[i, : state.node.gpus] = state.gpu_milli
        cpu = np.array([state.cpu_milli for state in self._states], dtype=np.int64)
        return free_share_unusable(Target.of(self._pods), [state.node for state in self._states], cpu, free)

    def _gpus(self, state: NodeState, pod: Pod) -> list[int]:
        if self._rule.random and pod.shares and pod.num_gpus == 1:
            return [int(self._rng.choice(np.flatnonzero(state.gpu_milli >= pod.gpu_milli)))]
        return self._rule.gpus(state, pod)

    def _scored(self, state: NodeState) -> Ints:
        fits = state.fitting(self._requests)
        return np.where(fits, self._rule.scores(state, self._requests, fits), -1)
