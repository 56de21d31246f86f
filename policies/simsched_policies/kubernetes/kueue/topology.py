"""Nodes as a tree of domains: free resources of each leaf, and how many pods it holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simsched.manifests import HOSTNAME, NodeFacts, Toleration
from simsched_policies.kubernetes.kueue.matching import Constraints, Labels, Term

#: The resource of which every pod takes one.
PODS = "pods"
#: The number of pods on a node that states none.
MANY = 1 << 40

#: A prime, and a base whose powers modulo the prime are large and distinct.
_PRIME, _BASE = (1 << 61) - 1, 0x5DEECE66D

Counts = NDArray[np.int64]
Amounts = Mapping[str, int]


@dataclass(frozen=True)
class Usage:
    """Pods in one domain: its values, the request of one pod, and their number."""

    values: tuple[str, ...]
    requests: Amounts
    count: int


@dataclass(frozen=True)
class Level:
    """The domains of a level in the order of their values, each with the range of its children one level below.

    `starts` has one entry more than the number of domains; `parents` gives the domain above (-1 at the highest level).
    """

    label: str
    paths: tuple[tuple[str, ...], ...]
    parents: Counts
    starts: Counts = field(repr=False)

    def children(self, domain: int) -> Counts:
        """Return the numbers of a domain's children one level below."""
        return np.arange(self.starts[domain], self.starts[domain + 1])


class Domains:
    """The tree of a flavour's topology, with the capacity and usage of its leaves by resource.

    `levels` are labels, coarsest first. It contains the nodes that take pods, have a label for every level and the
    flavour's labels; `tolerations` are those that the flavour adds to pods. Source: Kueue, topology-aware scheduling.
    """

    def __init__(
        self,
        levels: Sequence[str],
        nodes: Iterable[NodeFacts],
        labels: Labels | None = None,
        tolerations: tuple[Toleration, ...] = (),
    ) -> None:
        self.labels = tuple(levels)
        self._tolerations = tolerations
        wanted = (labels or {}).items()
        members: dict[tuple[str, ...], list[NodeFacts]] = {}
        for node in nodes:
            if node.takes_pods and all(label in node.labels for label in levels) and wanted <= node.labels.items():
                members.setdefault(tuple(node.labels[label] for label in levels), []).append(node)
        self.leaves = sorted(members)
        self.by_host = bool(levels) and levels[-1] == HOSTNAME
        self.levels = _levels(self.labels, self.leaves)
        self._number = {path: number for number, path in enumerate(self.leaves)}
        if self.by_host:
            self._number |= {path[-1:]: number for number, path in enumerate(self.leaves)}
        self._nodes = [members[path] for path in self.leaves]
        self._weights: dict[str, list[int]] = {}
        self._plain = not any(node.taints for group in self._nodes for node in group)
        self._suited: dict[Constraints, list[str]] = {}
        self._preferred: dict[Constraints, Counts] = {}
        #: Earlier results by state of the nodes and query; `state` is 0 if nothing is used.
        self.known: dict[Hashable, Any] = {}
        self.state = 0
        #: The most pods of a request that fit below one domain of a level, each with the state.
        self.most: dict[Hashable, tuple[int, int]] = {}
        self.has: dict[str, Counts] = {}
        self.used: dict[str, Counts] = {}
        for number, group in enumerate(self._nodes):
            for node in group:
                for resource, amount in {PODS: MANY, **node.allocatable}.items():
                    self._of(self.has, resource)[number] += amount

    def _of(self, amounts: dict[str, Counts], resource: str) -> Counts:
        if resource not in amounts:
            amounts[resource] = np.zeros(len(self.leaves), np.int64)
        return amounts[resource]

    def leaf(self, values: Sequence[str]) -> int | None:
        """Return the index of the leaf with these values (of the lowest level alone for hosts); None if not found."""
        return self._number.get(tuple(values))

    def values(self, leaf: int) -> tuple[str, ...]:
        """Return the values of a leaf: the host alone if hosts are the lowest level."""
        return self.leaves[leaf][-1:] if self.by_host else self.leaves[leaf]

    def change(self, usage: Usage, sign: int = 1) -> None:
        """Count pods as placed, or with sign -1 as gone; those outside the tree are ignored."""
        leaf = self.leaf(usage.values)
        if leaf is not None:
            for resource, amount in {**usage.requests, PODS: 1}.items():
                more = sign * amount * usage.count
                self._of(self.used, resource)[leaf] += more
                self.state += more * self._weights_of(resource)[leaf]

    def _weights_of(self, resource: str) -> list[int]:
        """Return a large number per leaf for a resource, so that sums of amounts distinguish states."""
        if resource not in self._weights:
            first = 1 + len(self._weights) * len(self.leaves)
            self._weights[resource] = [pow(_BASE, first + leaf, _PRIME) for leaf in range(len(self.leaves))]
        return self._weights[resource]

    def holds(self, values: Sequence[str]) -> bool:
        """Return whether a leaf exists and its usage is within its capacity."""
        leaf = self.leaf(values)
        return leaf is not None and all(used[leaf] <= self._of(self.has, r)[leaf] for r, used in self.used.items())

    def fitting(
        self, requests: Amounts, taken: Mapping[str, Counts], *, beside: Amounts | None = None, empty: bool = False
    ) -> Counts:
        """Return for each leaf how many pods with this request fit, given usage (unless `empty`) and `taken`.

        `taken` has further amounts by resource and leaf, `beside` the request of one more pod in each leaf.
        """
        most = np.full(len(self.leaves), MANY, np.int64)
        for resource, free in self._free(requests, taken, beside, empty=empty):
            most = np.minimum(most, free // requests.get(resource, 1))
        return np.maximum(most, 0)

    def shares(self, resource: str, amount: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the used share of a resource by leaf, and the share that an amount adds; 1 where there is none."""
        has = self._of(self.has, resource)
        full = np.where(has > 0, has, 1)
        return np.where(has > 0, self._of(self.used, resource) / full, 1.0), np.where(has > 0, amount / full, 1.0)

    def free(self, resource: str, leaf: int) -> int:
        """Return what is free of a resource in a leaf."""
        return int(self._of(self.has, resource)[leaf] - self._of(self.used, resource)[leaf])

    def more_pods(self, leaf: int, requests: Amounts, freed: Amounts) -> int:
        """Return how many more pods fit in a leaf once `freed` is released."""
        now, then = MANY, MANY
        for resource, amount in {**requests, PODS: 1}.items():
            if amount > 0:
                free = self.free(resource, leaf)
                now, then = min(now, free // amount), min(then, (free + freed.get(resource, 0)) // amount)
        return max(then, 0) - max(now, 0)

    def scarce(
        self, requests: Amounts, taken: Mapping[str, Counts], full: NDArray[np.bool_], *, empty: bool = False
    ) -> dict[str, int]:
        """Count for each resource the `full` leaves in which it is the scarcest for pods; ties go by name."""
        most = {
            resource: np.maximum(free // requests.get(resource, 1), 0)
            for resource, free in self._free(requests, taken, None, empty=empty)
        }
        names = sorted(most)
        scarcest = np.argmin([most[name][full] for name in names], axis=0)
        return dict(zip(names, np.bincount(scarcest, minlength=len(names)).tolist(), strict=True))

    def _free(
        self, requests: Amounts, taken: Mapping[str, Counts], beside: Amounts | None, *, empty: bool
    ) -> Iterator[tuple[str, Counts]]:
        """Yield the free amounts by leaf of each resource that a pod takes."""
        for resource, amount in {**requests, PODS: 1}.items():
            if amount > 0:
                free = self._of(self.has, resource)
                if not empty and resource in self.used:
                    free = free - self.used[resource]
                if resource in taken:
                    free = free - taken[resource]
                if beside is not None:
                    free = free - (1 if resource == PODS else beside.get(resource, 0))
                yield resource, free

    def suited(self, where: Constraints) -> list[str] | None:
        """Return why each leaf is unsuitable for pods, empty if suitable; None if all are. Only hosts are checked."""
        if not self.by_host or (self._plain and not where.selector and where.affinity is None):
            return None
        if where not in self._suited:
            self._suited[where] = [self._unsuited(group[0], where) for group in self._nodes]
        return self._suited[where]

    def _unsuited(self, node: NodeFacts, where: Constraints) -> str:
        if (taint := where.repelled(node.taints, self._tolerations)) is not None:
            return f'taint "{taint.key}={taint.value}:{taint.effect}"'
        if any(node.labels.get(key) != value for key, value in where.selector):
            return "nodeSelector"
        return "" if where.matches(node.labels) else "affinity"

    def preference(self, where: Constraints) -> Counts | None:
        """Return the weight of the preferred affinity that each leaf meets; None for pods without preferences."""
        if not where.preferred:
            return None
        if where not in self._preferred:
            met = ([weight for weight, term in where.preferred if _meets(group[0], term)] for group in self._nodes)
            self._preferred[where] = np.array([sum(weights) for weights in met], np.int64)
        return self._preferred[where]


def _meets(node: NodeFacts, term: Term) -> bool:
    return bool(term) and all(one.met(node.labels) for one in term)


def _levels(labels: Sequence[str], leaves: Sequence[tuple[str, ...]]) -> tuple[Level, ...]:
    paths = [sorted({leaf[: depth + 1] for leaf in leaves}) for depth in range(len(labels))]
    made = []
    for depth, (label, own) in enumerate(zip(labels, paths, strict=True)):
        above = {path: number for number, path in enumerate(paths[depth - 1])} if depth else {}
        parents = np.array([above.get(path[:-1], -1) for path in own], np.int64)
        below = (
            Counter(path[:-1] for path in paths[depth + 1]) if depth + 1 < len(labels) else Counter[tuple[str, ...]]()
        )
        starts = np.cumsum([0, *(below[path] for path in own)], dtype=np.int64)
        made.append(Level(label, tuple(own), parents, starts))
    return tuple(made)
