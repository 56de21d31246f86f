"""Nodes as manifests declare them: how many there are, where the pods of a workload go, and what remains free."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from heapq import heappop, heapreplace
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from simsched.manifests import HOSTNAME, Expression, NodeFacts, is_gpu, node_groups
from simsched.manifests.admissions import Granted
from simsched.model import Allocation, Cluster
from simsched_policies.kubernetes.kueue import topology_assignment
from simsched_policies.kubernetes.kueue.cycle_places import domains_by_flavour
from simsched_policies.kubernetes.kueue.matching import Constraints
from simsched_policies.kubernetes.kueue.model import (
    Assigned,
    FlavourResource,
    Places,
    PodSet,
    Quota,
    ResourceFlavor,
    Setup,
)
from simsched_policies.kubernetes.kueue.topology import MANY, PODS, Counts, Domains, Usage


def grown(nodes: Sequence[NodeFacts], cluster: Cluster) -> list[NodeFacts]:
    """Return as many nodes of each make as the cluster has; added nodes cycle through copies of the declared ones.

    Makes are runs of equal nodes, in the order of both. A cluster of other makes gets the declared nodes.
    """
    sizes = [group["nodes"] for group in node_groups(nodes)]
    make_of = attrgetter("gpus", "gpu_type", "cpu_milli", "memory_mib")
    runs = [len(list(same)) for _, same in groupby(cluster.nodes, key=make_of)]
    if len(runs) != len(sizes):
        return list(nodes)
    found: list[NodeFacts] = []
    begin = 0
    for size, wanted in zip(sizes, runs, strict=True):
        make = nodes[begin : begin + size]
        begin += size
        found += [make[i] if i < size else _copy(make[i % size], i // size) for i in range(wanted)]
    return found


def _copy(node: NodeFacts, number: int) -> NodeFacts:
    name = f"{node.name}-copy-{number}"
    return replace(node, name=name, labels={**node.labels, HOSTNAME: name})


def scaled(setup: Setup, before: Sequence[NodeFacts], after: Sequence[NodeFacts]) -> Setup:
    """Return quotas and their limits in proportion to the GPUs that each flavour has after and had before."""
    factors = {
        name: Fraction(_gpus(after, flavour.labels), max(_gpus(before, flavour.labels), 1))
        for name, flavour in (setup.flavours or {}).items()
    }

    def moved(quotas: Mapping[FlavourResource, Quota]) -> dict[FlavourResource, Quota]:
        return {key: _times(quota, factors.get(key[0], Fraction(1))) for key, quota in quotas.items()}

    queues = tuple(replace(one, quotas=moved(one.quotas)) for one in setup.queues)
    return replace(setup, queues=queues, cohorts=tuple(replace(one, quotas=moved(one.quotas)) for one in setup.cohorts))


def _gpus(nodes: Sequence[NodeFacts], labels: Mapping[str, str]) -> int:
    return sum(node.gpus for node in nodes if labels.items() <= node.labels.items())


def _times(quota: Quota, factor: Fraction) -> Quota:
    limits = (quota.borrowing_limit, quota.lending_limit)
    return Quota(int(quota.nominal * factor), *(None if one is None else int(one * factor) for one in limits))


_ANY = ResourceFlavor("")


class Pods(NamedTuple):
    """Pods of one shape on a node; `placed` if the admission cycle chose their place in a topology."""

    node: int
    number: int
    requests: Mapping[str, int]
    placed: bool = False


class Chances:
    """How many more pods must fit on the hosts of a flavour for sets of pods that found no room, by number of the set.

    A node that changes costs one comparison with all these sets, however many workloads wait.
    """

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._of: dict[str, _Shapes] = {}
        #: How many pods fit beyond what the set needs, negative if it has no room.
        self._spare = np.zeros(0, np.int64)

    def watch(self, flavour: str, domains: Domains, pods: PodSet) -> int:
        """Return the number of a set of pods on the hosts of a flavour."""
        key = (flavour, pods.count, tuple(sorted(pods.requests.items())), pods.where)
        if key not in self._numbers:
            self._numbers[key] = len(self._spare)
            self._spare = np.append(self._spare, _room(domains, pods).sum() - pods.count)
            self._of.setdefault(flavour, _Shapes(domains)).add(self._numbers[key], pods)
        return self._numbers[key]

    def change(self, flavour: str, domains: Domains, usage: Usage, sign: int) -> None:
        """Count pods on a host of a flavour, or with sign -1 subtract them."""
        shapes, leaf = self._of.get(flavour), domains.leaf(usage.values)
        before = None if shapes is None or leaf is None else shapes.fitting(leaf)
        domains.change(usage, sign)
        if shapes is not None and leaf is not None and before is not None:
            self._spare[shapes.rows] += shapes.fitting(leaf) - before

    def hopeful(self) -> list[int]:
        """Return the sets of pods that have room now."""
        return np.flatnonzero(self._spare >= 0).tolist()

    def hope(self, numbers: Sequence[int]) -> bool:
        """Return whether any of some sets of pods has room now."""
        return any(self._spare[number] >= 0 for number in numbers)


class _Shapes:
    """The watched shapes of pods of one flavour, and the hosts that suit them."""

    def __init__(self, domains: Domains) -> None:
        self.domains, self.rows, self._resources = domains, np.zeros(0, np.int64), [PODS]
        self._asked = self._divisor = self._unasked = np.zeros((1, 0), np.int64)
        self._suits = np.zeros((0, len(domains.leaves)), np.bool_)
        self._kinds: dict[Constraints, int] = {}
        self._kind = np.zeros(0, np.int64)

    def add(self, row: int, pods: PodSet) -> None:
        self._resources += [name for name in pods.requests if name not in self._resources]
        wider = np.zeros((len(self._resources), len(self.rows) + 1), np.int64)
        wider[: len(self._asked), :-1] = self._asked
        wider[:, -1] = [{**pods.requests, PODS: 1}.get(name, 0) for name in self._resources]
        self._asked, self.rows = wider, np.append(self.rows, row)
        self._divisor, self._unasked = np.maximum(wider, 1), np.where(wider > 0, 0, MANY)
        if pods.where not in self._kinds:
            unsuited = self.domains.suited(pods.where)
            suits = [True] * len(self.domains.leaves) if unsuited is None else [not why for why in unsuited]
            self._kinds[pods.where] = len(self._kinds)
            self._suits = np.vstack([self._suits, suits])
        self._kind = np.append(self._kind, self._kinds[pods.where])

    def fitting(self, leaf: int) -> Counts:
        """Return for each shape how many pods fit on a host."""
        free = np.array([self.domains.free(name, leaf) for name in self._resources], np.int64)
        most = np.maximum((free[:, None] // self._divisor + self._unasked).min(axis=0), 0)
        return np.asarray(most * self._suits[self._kind, leaf], np.int64)


def _room(domains: Domains, pods: PodSet) -> Counts:
    """Return how many pods of a set fit on each host of a flavour."""
    unsuited, room = domains.suited(pods.where), domains.fitting(pods.requests, {})
    return room if unsuited is None else np.where([not why for why in unsuited], room, 0)


class Machines:
    """Free resources of nodes, and the placement of pods: by topology, or without one on the fullest nodes.

    Nodes are identified by their index in the cluster; a flavour has the nodes with its labels. `topologies` belong to
    the tree of quotas, which counts there what its cycles place; other pods are counted here.
    """

    def __init__(self, nodes: Sequence[NodeFacts], setup: Setup, up: Sequence[bool] | None = None) -> None:
        """Start with empty nodes; `up` marks those that take pods (None: all)."""
        self._setup = setup
        self._nodes = [
            replace(node, ready=up is None or up[i], cordoned=False) if up else node for i, node in enumerate(nodes)
        ]
        self._index = {node.labels[HOSTNAME]: i for i, node in enumerate(self._nodes)}
        self._domains: dict[str, Domains] = {}
        on = setup.gates["TopologyAwareScheduling"]
        self.topologies = domains_by_flavour(setup.flavours or {}, setup.topologies, self._nodes) if on else {}
        #: The number of pods of each request on each node.
        self._there: dict[tuple[int, tuple[tuple[str, int], ...]], int] = {}
        self.chances = Chances()

    def lacks(self, pod_sets: Sequence[PodSet], offered: Mapping[str, Sequence[str]]) -> list[int] | None:
        """Return for pods without room which of `chances` would help: of the first set that has none, by flavour.

        `offered` are the flavours of each resource. None if a topology places them, or each set has room.
        """
        for pods in pod_sets:
            names = {name for resource in pods.requests for name in offered.get(resource, ())}
            if names & self.topologies.keys():
                return None
            if names and all(_room(self._of(name), pods).sum() < pods.count for name in names):
                return [self.chances.watch(name, self._of(name), pods) for name in sorted(names)]
        return None

    def place(self, pod_sets: Sequence[PodSet], assigned: Sequence[Assigned]) -> tuple[Pods, ...] | str:
        """Place pods that got flavours and reserve their room; return the places, or why there is no room."""
        found: list[Pods] = []
        places = {one.name: one.places for one in assigned if one.places is not None}
        for flavour, sets in self._by_flavour(pod_sets, assigned):
            why = self._placed(flavour, sets, places, found)
            if why:
                self.count(found, -1)
                return why
        return tuple(found)

    def resume(
        self, pod_sets: Sequence[PodSet], granted: Sequence[Granted]
    ) -> tuple[tuple[Assigned, ...], tuple[Pods, ...]] | str:
        """Put pods where they were; return what they hold and their places, or why they cannot be there."""
        named, found = {pods.name: pods for pods in pod_sets}, list[Pods]()
        unknown = next((one.name for one in granted if one.name not in named), None)
        if unknown is not None:
            return f"its job has no pods called '{unknown}'"
        assigned, free = list[Assigned](), list[PodSet]()
        for one in granted:
            pods = replace(named[one.name], count=one.count)
            by_host = one.levels[-1:] == (HOSTNAME,)
            places = one.places and tuple((path[-1:] if by_host else path, count) for path, count in one.places)
            assigned.append(Assigned(one.name, one.count, one.usage, one.flavours, places, pods.requests))
            on = one.hosts if places is None or not by_host else [path[-1] for path, _ in places]
            strange = [host for host in on if host not in self._index]
            if strange:
                return f"there is no node '{strange[0]}'"
            if places is None and sum(one.hosts.values()) == one.count:
                for host, count in one.hosts.items():
                    self._add(found, host, count, pods, placed=False)
            else:
                free.append(pods)
        placed = self.place(free, assigned)
        if isinstance(placed, str):
            self.count(found, -1)
            return f"its pods are not where it says: {placed}"
        return tuple(assigned), (*found, *placed)

    def _placed(self, flavour: str, sets: Sequence[PodSet], places: Mapping[str, Places], found: list[Pods]) -> str:
        """Place the pod sets of a flavour where the cycle decided, else as they request; return why it fails."""
        free = [pods for pods in sets if pods.name not in places and pods.count]
        domains = self.topologies.get(flavour)
        if domains is None:
            domains, free = self._of(flavour), [replace(pods, topology=None) for pods in free]
            for pods in free:
                if why := self._scheduled(flavour, pods, found, placed=False):
                    return why
            free = []
        result = topology_assignment.assign(domains, free, self._setup.gates, name=flavour)
        if result.reasons:
            return next(iter(result.reasons.values()))
        for pods in sets:
            placed = pods.name in places
            for values, count in (places if placed else result.assigned).get(pods.name, ()):
                why = self._inside(flavour, replace(pods, count=count), values, found, placed=placed)
                if why:
                    return why
        return ""

    def _inside(self, flavour: str, pods: PodSet, values: tuple[str, ...], found: list[Pods], *, placed: bool) -> str:
        """Place pods on a host, or on the hosts of a higher domain; return the reason on failure."""
        topology = self.topologies.get(flavour)
        if topology is None or topology.by_host:
            self._add(found, values[-1], pods.count, pods, placed=placed)
            return ""
        path = zip(topology.labels, values, strict=True)
        inside = tuple(Expression(key, "In", (value,)) for key, value in path)
        where = replace(pods.where, affinity=tuple((*term, *inside) for term in pods.where.affinity or ((),)))
        return self._scheduled(flavour, replace(pods, where=where, topology=None), found, placed=placed)

    def _scheduled(self, flavour: str, pods: PodSet, found: list[Pods], *, placed: bool) -> str:
        """Place pods one by one on hosts as kube-scheduler does; return the reason on failure."""
        domains = self._of(flavour)
        room = _room(domains, pods)
        if room.sum() < pods.count:
            result = topology_assignment.assign(domains, [pods], self._setup.gates, name=flavour)
            return next(iter(result.reasons.values()))
        for leaf, count in sorted(_spread(domains, pods, room).items()):
            self._add(found, domains.leaves[leaf][-1], count, pods, placed=placed)
        return ""

    def _add(self, found: list[Pods], host: str, count: int, pods: PodSet, *, placed: bool) -> None:
        one = Pods(self._index[host], count, pods.requests, placed)
        found.append(one)
        self.count([one], 1)

    def _by_flavour(
        self, pod_sets: Sequence[PodSet], assigned: Sequence[Assigned]
    ) -> Iterator[tuple[str, list[PodSet]]]:
        """Yield the pod sets of each flavour; with several flavours, that of the GPUs counts."""
        by_name = {one.name: one.flavours for one in assigned}
        groups: dict[str, list[PodSet]] = {}
        for pods in pod_sets:
            flavours = by_name.get(pods.name, {})
            named = [flavour for resource, flavour in sorted(flavours.items(), key=lambda one: not is_gpu(one[0]))]
            groups.setdefault(named[0] if named else "", []).append(pods)
        yield from groups.items()

    def _of(self, name: str) -> Domains:
        """Return the hosts of a flavour, created at first use."""
        if name not in self._domains:
            flavour = (self._setup.flavours or {}).get(name, _ANY)
            made = Domains((HOSTNAME,), self._nodes, flavour.labels, flavour.tolerations)
            for pods in self._held():
                made.change(self._usage(made, pods))
            self._domains[name] = made
        return self._domains[name]

    def _held(self) -> Iterator[Pods]:
        yield from (Pods(node, count, dict(requests)) for (node, requests), count in self._there.items() if count)

    def count(self, pods: Sequence[Pods], sign: int) -> None:
        """Count pods on their nodes, with sign -1 as gone."""
        for one in pods:
            key = (one.node, tuple(sorted(one.requests.items())))
            self._there[key] = self._there.get(key, 0) + sign * one.number
            if not self._there[key]:
                del self._there[key]
            for flavour, domains in self._domains.items():
                self.chances.change(flavour, domains, self._usage(domains, one), sign)
            for domains in () if one.placed else self.topologies.values():
                domains.change(self._usage(domains, one), sign)

    def _usage(self, domains: Domains, pods: Pods) -> Usage:
        labels = self._nodes[pods.node].labels
        return Usage(tuple(labels.get(label, "") for label in domains.labels), pods.requests, pods.number)


#: What a pod without requests counts as when nodes are scored (Kubernetes: thousandths of a core, bytes).
_LEAST = {"cpu": 100, "memory": 200 << 20}


def _spread(domains: Domains, pods: PodSet, room: Counts) -> dict[int, int]:
    """Choose a leaf for each pod in turn: the least allocated and most balanced in cores and memory, first by name.

    Source: the default scores of kube-scheduler, `NodeResourcesFit` (LeastAllocated), `NodeResourcesBalancedAllocation`
    and `NodeAffinity`, the last counting twice; without rounding.
    """
    wishes = domains.preference(pods.where)
    liked = np.zeros(len(room)) if wishes is None or not wishes.max() else 2 * wishes / wishes.max()
    (cpu, more_cpu), (memory, more_memory) = (
        domains.shares(name, max(pods.requests.get(name, 0), least)) for name, least in _LEAST.items()
    )

    def score(leaves: Any, count: int) -> Any:
        cores, bytes_ = cpu[leaves] + count * more_cpu[leaves], memory[leaves] + count * more_memory[leaves]
        return -(1 - (cores + bytes_) / 2 + 1 - abs(cores - bytes_) / 2 + liked[leaves])

    leaves = np.flatnonzero(room)
    scores = score(leaves, 1)
    first = np.argsort(scores, kind="stable")[: pods.count]  # no pod goes to another leaf
    heap = list(zip(scores[first].tolist(), leaves[first].tolist(), strict=True))
    taken: Counter[int] = Counter()
    for _ in range(pods.count):
        _, leaf = heap[0]
        taken[leaf] += 1
        if taken[leaf] < room[leaf]:
            heapreplace(heap, (float(score(leaf, taken[leaf] + 1)), leaf))
        else:
            heappop(heap)
    return dict(taken)


def allocation_of(pods: Sequence[Pods], nodes: int) -> Allocation:
    """Return the GPUs of pods by node; a pod without GPUs maps to one of the first nodes, which have some."""
    gpus: dict[int, int] = {}
    for one in pods:
        each = sum(units for name, units in one.requests.items() if is_gpu(name))
        gpus[one.node] = gpus.get(one.node, 0) + each * one.number
    held = tuple(sorted(one for one in gpus.items() if one[1]))
    return held or ((min((node for node in gpus if node < nodes), default=0), 0),)
