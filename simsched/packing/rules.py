"""Rules that choose a node, and the GPUs on it, for a pod: random, best fit, dot product, and FGD.

A rule gives each node that a pod fits on a whole-numbered score; the pod goes to the best one, on a tie to the one
whose name comes first. A pod that wants a part of a GPU gets the GPU with the least room that suffices (FGD: the one
with the best score), others get the first GPUs with room. Sources: `simsched.packing.fragmentation`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

import numpy as np
from scipy.special import expit

from simsched.model.pod import GPU_MILLI, Pod, PodNode
from simsched.packing.fragmentation import Bools, Floats, Ints, Target, fragmentation

#: By these, the cores and GPUs of the largest nodes of the published cluster, scores make requests comparable.
CPU_SCALE_MILLI, GPU_SCALE_MILLI = 128_000, 8_000


@dataclass(frozen=True)
class Requests:
    """Different requests of pods, as arrays of shape (requests,)."""

    cpu_milli: Ints
    memory_mib: Ints
    num_gpus: Ints
    gpu_milli: Ints
    gpu_models: tuple[frozenset[str], ...]

    @classmethod
    def of(cls, pods: Sequence[Pod]) -> Requests:
        """Take the requests of pods, in their order."""
        names = ("cpu_milli", "memory_mib", "num_gpus", "gpu_milli")
        cpu, memory, gpus, milli = (np.array([getattr(pod, name) for pod in pods], dtype=np.int64) for name in names)
        return cls(cpu, memory, gpus, milli, tuple(pod.gpu_models for pod in pods))


@dataclass
class NodeState:
    """What is free of a node: thousandths of cores, MiB, and thousandths of each GPU (shape (GPUs,))."""

    node: PodNode
    cpu_milli: int
    memory_mib: int
    gpu_milli: Ints

    @classmethod
    def empty(cls, node: PodNode) -> NodeState:
        """Return a node on which nothing runs."""
        return cls(node, node.cpu_milli, node.memory_mib, np.full(node.gpus, GPU_MILLI, dtype=np.int64))

    def fitting(self, requests: Requests) -> Bools:
        """Return which requests fit, shape (requests,)."""
        enough = (self.gpu_milli[None, :] >= requests.gpu_milli[:, None]).sum(axis=1) >= requests.num_gpus
        models = np.array([not m or self.node.gpu_model in m for m in requests.gpu_models], dtype=np.bool_)
        small = (requests.cpu_milli <= self.cpu_milli) & (requests.memory_mib <= self.memory_mib)
        return np.asarray(small & enough & models, dtype=np.bool_)

    def gpus_for(self, pod: Pod) -> list[int]:
        """Return the GPUs that a pod that fits gets by the common rule."""
        room = [int(gpu) for gpu in np.flatnonzero(self.gpu_milli >= pod.gpu_milli)]
        if pod.shares and pod.num_gpus == 1:
            return [min(room, key=lambda gpu: (int(self.gpu_milli[gpu]), gpu))]
        return room[: pod.num_gpus]

    def take(self, pod: Pod, gpus: Sequence[int]) -> None:
        """Give a pod its share of the node."""
        self.cpu_milli -= pod.cpu_milli
        self.memory_mib -= pod.memory_mib
        self.gpu_milli[list(gpus)] -= pod.gpu_milli


class Rule(Protocol):
    """Scores one node for all requests at once."""

    #: Whether the node and the GPU are drawn at random among those that fit.
    random: bool

    def scores(self, state: NodeState, requests: Requests, fits: Bools) -> Ints:
        """Return the scores of a node, shape (requests,); those of requests that do not fit mean nothing."""

    def gpus(self, state: NodeState, pod: Pod) -> list[int]:
        """Return the GPUs that a pod gets on the node that was chosen."""


class _Rule:
    random = False

    def gpus(self, state: NodeState, pod: Pod) -> list[int]:
        """Return the GPUs that a pod gets by the common rule."""
        return state.gpus_for(pod)


class Random(_Rule):
    """Any node that the pod fits on, and any GPU."""

    random = True

    def scores(self, state: NodeState, requests: Requests, fits: Bools) -> Ints:
        """Return 0 for every request."""
        return np.zeros(len(fits), dtype=np.int64)


class BestFit(_Rule):
    """The node of which least is left, cores and GPUs weighing the same."""

    def scores(self, state: NodeState, requests: Requests, fits: Bools) -> Ints:
        """Return 100 (1 - half of what is left of cores - half of what is left of GPUs)."""
        cpu = (state.cpu_milli - requests.cpu_milli) / CPU_SCALE_MILLI
        gpu = (int(state.gpu_milli.sum()) - requests.num_gpus * requests.gpu_milli) / GPU_SCALE_MILLI
        return _floored(100 * (1 - (cpu + gpu) / 2))


class DotProduct(_Rule):
    """The node whose free cores and GPUs are least alike to what the pod wants, as a dot product."""

    def scores(self, state: NodeState, requests: Requests, fits: Bools) -> Ints:
        """Return 100 (1 - half of the dot product of request and what is free)."""
        cpu = requests.cpu_milli / CPU_SCALE_MILLI * (state.cpu_milli / CPU_SCALE_MILLI)
        asked = requests.num_gpus * requests.gpu_milli / GPU_SCALE_MILLI
        gpu = asked * (int(state.gpu_milli.sum()) / GPU_SCALE_MILLI)
        return _floored(100 * (1 - (cpu + gpu) / 2))


@dataclass
class Fgd(_Rule):
    """Fragmentation gradient descent: the node, and the GPU on it, whose fragmentation grows least."""

    target: Target

    def scores(self, state: NodeState, requests: Requests, fits: Bools) -> Ints:
        """Return 100 times the sigmoid of by how many GPUs the fragmentation falls, for the best GPU."""
        options = [
            (request, gpus)
            for request in np.flatnonzero(fits)
            for gpus in _options(state, int(requests.num_gpus[request]), int(requests.gpu_milli[request]))
        ]
        scores = np.zeros(len(fits), dtype=np.int64)
        if not options:
            return scores
        asked = np.array([request for request, _ in options])
        found = self._after(state, requests.cpu_milli[asked], requests.gpu_milli[asked], [gpus for _, gpus in options])
        np.maximum.at(scores, asked, found)
        return scores

    def gpus(self, state: NodeState, pod: Pod) -> list[int]:
        """Return the GPU with the best score, the first of equal ones, for a pod that shares; else the common rule."""
        options = _options(state, pod.num_gpus, pod.gpu_milli)
        cpu, gpu = (np.full(len(options), amount, dtype=np.int64) for amount in (pod.cpu_milli, pod.gpu_milli))
        return options[int(np.argmax(self._after(state, cpu, gpu, options)))]

    def _after(self, state: NodeState, cpu_milli: Ints, gpu_milli: Ints, options: Sequence[list[int]]) -> Ints:
        """Return the score of giving each option (a list of GPUs) to a pod that takes so much of each."""
        accepts = self.target.accepts(state.node)
        free = np.repeat(state.gpu_milli[None, :], len(options), axis=0)
        for row, gpus in enumerate(options):
            free[row, gpus] -= gpu_milli[row]
        before = fragmentation(self.target, accepts, np.array([state.cpu_milli]), state.gpu_milli[None, :])
        after = fragmentation(self.target, accepts, state.cpu_milli - cpu_milli, free)
        return _floored(100 * expit((before - after) / GPU_MILLI))


def _options(state: NodeState, num_gpus: int, gpu_milli: int) -> list[list[int]]:
    """Return the GPUs that a request may get: one of those with different room, or the first with room."""
    room = [int(gpu) for gpu in np.flatnonzero(state.gpu_milli >= gpu_milli)]
    if num_gpus == 1 and gpu_milli < GPU_MILLI:
        first: dict[int, int] = {}
        for gpu in room:
            first.setdefault(int(state.gpu_milli[gpu]), gpu)
        return [[gpu] for gpu in first.values()]
    return [room[:num_gpus]]


def _floored(scores: Floats) -> Ints:
    return np.floor(scores).astype(np.int64)


def make_rule(name: str, target: Target) -> Rule:
    """Make a rule of `RULES` by its name; FGD looks at the pods of `target`."""
    return Fgd(target) if name == "fgd" else _PLAIN[name]()


_PLAIN: Mapping[str, type[Random] | type[BestFit] | type[DotProduct]] = MappingProxyType(
    {"random": Random, "dot-product": DotProduct, "best-fit": BestFit}
)
#: The rules by name.
RULES = (*_PLAIN, "fgd")
