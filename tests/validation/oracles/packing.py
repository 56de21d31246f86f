"""Fillings of a cluster with pods that ask for parts of GPUs, pod by pod and node by node, slowly.

Written from the description of the published simulator's rules, in plain Python, without a cache and without numpy.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from simsched.model.cluster import Node
from simsched.model.placement import Pod


@dataclass
class OracleNode:
    """A node, what is free of it, and the classes of the pods on it."""

    node: Node
    cpu: int = 0
    memory: int = 0
    gpus: list[int] = field(default_factory=list)
    pods: int = 0
    classes: set[str | int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.cpu, self.memory, self.gpus = self.node.cpu_milli, self.node.memory_mib, [1000] * self.node.gpus

    def accepts(self, pod: Pod) -> bool:
        return not pod.gpu_spec or self.node.gpu_type in pod.gpu_spec.split("|")

    def fits(self, pod: Pod) -> bool:
        if self.cpu < pod.cpu_milli or self.memory < pod.memory_mib or self.pods + 1 > 1001:
            return False
        return not pod.num_gpus or (
            self.accepts(pod) and sum(free >= pod.gpu_milli for free in self.gpus) >= pod.num_gpus
        )

    def least_free(self, pod: Pod) -> list[int]:
        fitting = [gpu for gpu, free in enumerate(self.gpus) if free >= pod.gpu_milli]
        return sorted(sorted(fitting, key=lambda gpu: (self.gpus[gpu], gpu))[: pod.num_gpus])


def pod_class(pod: Pod) -> str | int:
    return "share" if pod.num_gpus == 1 and pod.gpu_milli < 1000 else pod.num_gpus


def usual(pods: Sequence[Pod]) -> list[tuple[float, Pod]]:
    """The classes of the target with their shares."""
    counts = Counter((pod.cpu_milli, pod.gpu_milli, pod.num_gpus, pod.gpu_spec) for pod in pods)
    ordered = sorted(counts.items(), key=lambda item: (item[1], item[0]), reverse=True)
    kept, seen = [], 0
    for key, count in ordered:
        kept.append((key, count))
        seen += count
        if 100 * seen >= 95 * len(pods):
            break
    return [(count / seen, Pod("", cpu, 0, gpus, milli, spec)) for (cpu, milli, gpus, spec), count in kept]


def fragmented(node: OracleNode, cpu: int, gpus: Sequence[int], target: Sequence[tuple[float, Pod]]) -> float:
    cases: dict[str, float] = dict.fromkeys(["both", "gpu", "cpu", "none fits", "none lacks", "no access"], 0.0)
    for share, pod in target:
        enough_cpu, enough_gpus = cpu >= pod.cpu_milli, sum(free >= pod.gpu_milli for free in gpus) >= pod.num_gpus
        lost = sum(gpus)
        if not pod.num_gpus:
            case = "none fits" if enough_cpu else "none lacks"
        elif not node.accepts(pod):
            case = "no access"
        elif not enough_gpus:
            case = "gpu" if enough_cpu else "both"
        elif not enough_cpu:
            case = "cpu"
        else:
            case, lost = "gpu", sum(free for free in gpus if free < pod.gpu_milli)
        cases[case] += share * lost
    total = 0.0
    for value in cases.values():  # not sum(), which corrects rounding from Python 3.12 on
        total += value
    return total


def fgd_score(node: OracleNode, pod: Pod, gpus: Sequence[int], target: Sequence[tuple[float, Pod]]) -> int:
    after = [free - pod.gpu_milli * (gpu in gpus) for gpu, free in enumerate(node.gpus)]
    before = fragmented(node, node.cpu, node.gpus, target)
    gain = before - fragmented(node, node.cpu - pod.cpu_milli, after, target)
    return int(100 / (1 + math.exp(-gain / 1000)))


def options(node: OracleNode, pod: Pod) -> list[list[int]]:
    if pod_class(pod) == "share":
        return [[gpu] for gpu, free in enumerate(node.gpus) if free >= pod.gpu_milli]
    return [node.least_free(pod)]


def score(rule: str, node: OracleNode, pod: Pod, target: Sequence[tuple[float, Pod]]) -> int:
    free, asked = sum(node.gpus), pod.num_gpus * pod.gpu_milli
    if rule == "dot-product":
        return int(100 * (1 - 0.5 * (pod.cpu_milli / 128e3 * (node.cpu / 128e3) + asked / 8e3 * (free / 8e3))))
    if rule == "best-fit":
        return int(100 * (1 - 0.5 * ((node.cpu - pod.cpu_milli) / 128e3) - 0.5 * ((free - asked) / 8e3)))
    if rule == "fgd":
        return max(fgd_score(node, pod, gpus, target) for gpus in options(node, pod))
    if rule == "random" or not pod.num_gpus:
        return 0
    if rule == "gpu-clustering":
        used = int(25 * (8000 - free) / 8000)
        if not node.classes:
            return 25 + used
        if node.classes == {pod_class(pod)}:
            return 75 + used
        return used + (50 if pod_class(pod) in node.classes else 0)
    assert rule == "gpu-packing"
    whole = sum(one == 1000 for one in node.gpus)
    if whole == len(node.gpus):
        return max(33 - whole, whole)
    taken = [node.gpus[gpu] for gpu in node.least_free(pod)]
    opened = sum(one == 1000 for one in taken)
    return max(50 - opened, 33) if opened else max(100 - sum(taken) * 100 // 1000 // 10, 50)


def placements(
    nodes: Sequence[Node], pods: Sequence[Pod], rule: str, draws: Sequence[tuple[float, float]]
) -> tuple[list[int], list[list[int]]]:
    """Return the node of each pod (-1 where it fits nowhere), and what is free of each GPU in the end."""
    cluster, target, chosen = [OracleNode(node) for node in nodes], usual(pods), []
    for pod, (node_draw, gpu_draw) in zip(pods, draws, strict=True):
        fitting = [i for i, node in enumerate(cluster) if node.fits(pod)]
        if not fitting:
            chosen.append(-1)
            continue
        best = max(score(rule, cluster[i], pod, target) for i in fitting)
        place = next(i for i in fitting if score(rule, cluster[i], pod, target) == best)
        if rule == "random":
            place = fitting[int(node_draw * len(fitting))]
        node = cluster[place]
        gpus = node.least_free(pod)
        if rule == "fgd":
            gpus = max(options(node, pod), key=lambda one: fgd_score(node, pod, one, target))
        elif rule == "random" and pod_class(pod) == "share":
            gpus = options(node, pod)[int(gpu_draw * len(options(node, pod)))]
        for gpu in gpus:
            node.gpus[gpu] -= pod.gpu_milli
        node.cpu, node.memory, node.pods = node.cpu - pod.cpu_milli, node.memory - pod.memory_mib, node.pods + 1
        node.classes |= {pod_class(pod)} if pod.num_gpus else set()
        chosen.append(place)
    return chosen, [node.gpus for node in cluster]
