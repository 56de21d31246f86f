"""Nodes as manifests declare them: where the pods of an admitted workload go, and what is left beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from simsched.manifests import HOSTNAME, NodeFacts, is_gpu
from simsched.model import Allocation
from simsched_policies.production.kueue import topology_assignment
from simsched_policies.production.kueue.matching import Requirement, Taint
from simsched_policies.production.kueue.model import Assigned, PodSet, ResourceFlavor, Setup
from simsched_policies.production.kueue.topology import Domains, Node, Usage

_ANY = ResourceFlavor("")


class Pods(NamedTuple):
    """Pods of one shape on a node."""

    node: int
    count: int
    requests: Mapping[str, int]


class Machines:
    """What the nodes have free, and where pods go: by topology where their flavour has one, else on the fullest nodes.

    Nodes are known by their index in the cluster, and to each flavour belong those with its labels.
    """

    def __init__(self, nodes: Sequence[NodeFacts], setup: Setup, up: Sequence[bool] | None = None) -> None:
        """Begin with nodes that hold nothing; `up` says which take pods (None: all)."""
        self._setup = setup
        self._nodes = [
            Node(
                node.name,
                node.labels,
                node.allocatable,
                tuple(Taint(*one) for one in node.taints),
                usable=up is None or up[i],
            )
            for i, node in enumerate(nodes)
        ]
        self._index = {node.labels[HOSTNAME]: i for i, node in enumerate(self._nodes)}
        self._domains: dict[tuple[str, bool], Domains] = {}
        #: How many pods of each request are on each node.
        self._there: dict[tuple[int, tuple[tuple[str, int], ...]], int] = {}

    def place(self, pod_sets: Sequence[PodSet], assigned: Sequence[Assigned]) -> tuple[Pods, ...] | str:
        """Return where pods go that got flavours, and take that; where they find no room, say why."""
        found: list[Pods] = []
        for sets in self._by_flavour(pod_sets, assigned):
            why = self._placed(*sets, found)
            if why:
                self._count(found, -1)
                return why
        return tuple(found)

    def give_back(self, pods: Sequence[Pods]) -> None:
        """Free what pods took."""
        self._count(pods, -1)

    def take(self, pods: Sequence[Pods]) -> None:
        """Count pods that are there already."""
        self._count(pods, 1)

    def _placed(self, flavour: str, sets: Sequence[PodSet], found: list[Pods]) -> str:
        """Place the sets of one flavour, and add their pods to `found`; return why not."""
        domains = self._of(flavour, by_host=False)
        result = topology_assignment.assign(domains, sets, self._setup.gates, name=flavour)
        if result.reasons:
            return next(iter(result.reasons.values()))
        for pods in sets:
            for values, count in result.assigned[pods.name]:
                if domains.by_host:
                    self._add(found, values[-1], count, pods)
                    continue
                path = zip(domains.labels, values, strict=True)
                inside = tuple(Requirement(key, "In", (value,)) for key, value in path)
                why = self._inside(flavour, pods, count, inside, found)
                if why:
                    return why
        return ""

    def _inside(
        self, flavour: str, pods: PodSet, count: int, inside: tuple[Requirement, ...], found: list[Pods]
    ) -> str:
        """Place pods on nodes of one domain of a topology whose lowest level is above the nodes."""
        terms = pods.where.affinity or ((),)
        where = replace(pods.where, affinity=tuple((*term, *inside) for term in terms))
        part = replace(pods, count=count, where=where, topology=None)
        result = topology_assignment.assign(self._of(flavour, by_host=True), [part], self._setup.gates, name=flavour)
        for values, number in result.assigned.get(pods.name, ()):
            self._add(found, values[-1], number, pods)
        return next(iter(result.reasons.values()), "")

    def _add(self, found: list[Pods], host: str, count: int, pods: PodSet) -> None:
        one = Pods(self._index[host], count, pods.requests)
        found.append(one)
        self._count([one], 1)

    def _by_flavour(
        self, pod_sets: Sequence[PodSet], assigned: Sequence[Assigned]
    ) -> Iterator[tuple[str, list[PodSet]]]:
        """Yield the sets of pods of each flavour; that of their GPUs counts where they have several."""
        by_name = {one.name: one.flavours for one in assigned}
        groups: dict[str, list[PodSet]] = {}
        for pods in pod_sets:
            flavours = by_name.get(pods.name, {})
            named = [flavour for resource, flavour in sorted(flavours.items(), key=lambda one: not is_gpu(one[0]))]
            groups.setdefault(named[0] if named else "", []).append(pods)
        yield from groups.items()

    def _of(self, name: str, *, by_host: bool) -> Domains:
        """Return the nodes of a flavour, made when they are first asked for."""
        flavour = (self._setup.flavours or {}).get(name, _ANY)
        topology = self._setup.topologies.get(flavour.topology or "")
        by_host = by_host or topology is None
        if (name, by_host) not in self._domains:
            levels = (HOSTNAME,) if by_host or topology is None else topology.levels
            made = Domains(levels, self._nodes, flavour.labels, flavour.tolerations)
            for pods in self._held():
                self._change(made, pods, 1)
            self._domains[name, by_host] = made
        return self._domains[name, by_host]

    def _held(self) -> Iterator[Pods]:
        yield from (Pods(node, count, dict(requests)) for (node, requests), count in self._there.items() if count)

    def _count(self, pods: Sequence[Pods], sign: int) -> None:
        for one in pods:
            key = (one.node, tuple(sorted(one.requests.items())))
            self._there[key] = self._there.get(key, 0) + sign * one.count
            if not self._there[key]:
                del self._there[key]
            for domains in self._domains.values():
                self._change(domains, one, sign)

    def _change(self, domains: Domains, pods: Pods, sign: int) -> None:
        labels = self._nodes[pods.node].labels
        values = tuple(labels.get(label, "") for label in domains.labels)
        domains.change(Usage(values, pods.requests, pods.count), sign)


def allocation_of(pods: Sequence[Pods]) -> Allocation:
    """Return the GPUs of pods by node; nodes of pods without GPUs only where none has any."""
    gpus: dict[int, int] = {}
    for one in pods:
        each = sum(units for name, units in one.requests.items() if is_gpu(name))
        gpus[one.node] = gpus.get(one.node, 0) + each * one.count
    held = {node: count for node, count in gpus.items() if count} or gpus
    return tuple(sorted(held.items()))
