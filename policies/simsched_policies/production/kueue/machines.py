"""Nodes as manifests declare them: where the pods of an admitted workload go, and what is left beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from simsched.manifests import HOSTNAME, NodeFacts, is_gpu
from simsched.model import Allocation
from simsched_policies.production.kueue import topology_assignment
from simsched_policies.production.kueue.cycle_places import domains_by_flavour
from simsched_policies.production.kueue.matching import Requirement, Taint
from simsched_policies.production.kueue.model import Assigned, PodSet, ResourceFlavor, Setup
from simsched_policies.production.kueue.topology import Domains, Node, Usage

_ANY = ResourceFlavor("")


class Pods(NamedTuple):
    """Pods of one shape on a node; `by_topology` where the topology of their flavour chose it."""

    node: int
    count: int
    requests: Mapping[str, int]
    by_topology: bool = False


class Machines:
    """What the nodes have free, and where pods go: where topology put them, else on the fullest nodes of their flavour.

    Nodes are known by their index in the cluster, and to each flavour belong those with its labels. `topologies` are
    the trees in which a cycle finds places, by flavour; they see the pods that no topology places too.
    """

    def __init__(self, nodes: Sequence[NodeFacts], setup: Setup, up: Sequence[bool] | None = None) -> None:
        """Begin with nodes that hold nothing; `up` says which take pods (None: all)."""
        self._setup = setup
        self._nodes = [
            Node(one.name, one.labels, one.allocatable, tuple(Taint(*mark) for mark in one.taints), up is None or up[i])
            for i, one in enumerate(nodes)
        ]
        self._index = {node.labels[HOSTNAME]: i for i, node in enumerate(self._nodes)}
        self.topologies = domains_by_flavour(setup.flavours or {}, setup.topologies, self._nodes)
        #: The nodes of each flavour, made when they are first asked for, and the pods there.
        self._hosts: dict[str, Domains] = {}
        self._there: dict[tuple[int, tuple[tuple[str, int], ...]], int] = {}

    def place(self, pod_sets: Sequence[PodSet], assigned: Sequence[Assigned]) -> tuple[Pods, ...] | str:
        """Return where pods go that got flavours, and take that; where they find no room, say why."""
        found: list[Pods] = []
        by_name = {one.name: one for one in assigned}
        for pods in pod_sets:
            why = self._placed(pods, by_name[pods.name], found)
            if why:
                self.give_back(found)
                return why
        return tuple(found)

    def give_back(self, pods: Sequence[Pods]) -> None:
        """Free what pods took."""
        self._count(pods, -1)

    def take(self, pods: Sequence[Pods]) -> None:
        """Count pods that are there already."""
        self._count(pods, 1)

    def _placed(self, pods: PodSet, one: Assigned, found: list[Pods]) -> str:
        """Place a set of pods, and add them to `found`; return why not."""
        # A set with flavours of several resources lies on the nodes of that of its GPUs.
        named = sorted(one.flavours.items(), key=lambda part: not is_gpu(part[0]))
        flavour = named[0][1] if named else ""
        if one.places is None:
            return self._on_hosts(flavour, replace(pods, topology=None), found, by_topology=False)
        domains = self.topologies[next(name for name in one.flavours.values() if name in self.topologies)]
        for values, count in one.places:
            path = dict(zip(domains.labels[-len(values) :], values, strict=True))
            inside = tuple(Requirement(key, "In", (value,)) for key, value in path.items())
            terms = tuple((*term, *inside) for term in pods.where.affinity or ((),))
            part = replace(pods, count=count, where=replace(pods.where, affinity=terms), topology=None)
            if domains.by_host:
                self._add(found, values[-1], count, pods, by_topology=True)
            elif why := self._on_hosts(flavour, part, found, by_topology=True):
                return why
        return ""

    def _on_hosts(self, flavour: str, pods: PodSet, found: list[Pods], *, by_topology: bool) -> str:
        """Place pods on the fullest nodes of a flavour that they may go to."""
        result = topology_assignment.assign(self._of(flavour), [pods], self._setup.gates, name=flavour)
        for values, count in result.assigned.get(pods.name, ()):
            self._add(found, values[-1], count, pods, by_topology=by_topology)
        return next(iter(result.reasons.values()), "")

    def _add(self, found: list[Pods], host: str, count: int, pods: PodSet, *, by_topology: bool) -> None:
        found.append(Pods(self._index[host], count, pods.requests, by_topology))
        self._count(found[-1:], 1)

    def _of(self, name: str) -> Domains:
        if name not in self._hosts:
            flavour = (self._setup.flavours or {}).get(name, _ANY)
            made = self._hosts[name] = Domains((HOSTNAME,), self._nodes, flavour.labels, flavour.tolerations)
            for (node, requests), count in self._there.items():
                self._change(made, Pods(node, count, dict(requests)), 1)
        return self._hosts[name]

    def _count(self, pods: Sequence[Pods], sign: int) -> None:
        for one in pods:
            key = (one.node, tuple(sorted(one.requests.items())))
            self._there[key] = self._there.get(key, 0) + sign * one.count
            if not self._there[key]:
                del self._there[key]
            # What a topology placed is counted by the tree of quotas, which knows its victims.
            for domains in (*self._hosts.values(), *(() if one.by_topology else self.topologies.values())):
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
