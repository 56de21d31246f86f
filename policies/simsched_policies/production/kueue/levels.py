"""The levels of a simulated cluster as a topology: jobs as sets of equal pods, and the placement of these."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from simsched.errors import InputError, Problem
from simsched.model import Allocation, Cluster, Node
from simsched.policy import JobView
from simsched_policies.production.kueue.cycle import Entry
from simsched_policies.production.kueue.model import PodSet, ResourceFlavor, Topology, TopologyRequest
from simsched_policies.production.kueue.quotas import RESOURCE
from simsched_policies.production.kueue.topology import HOSTNAME, Domains, Node as Host
from simsched_policies.production.kueue.topology_assignment import assign

_NAME = "cluster"


class Levels:
    """Places jobs on the levels of a cluster as `wish` says: `required LEVEL`, `preferred LEVEL` or `unconstrained`.

    A job is a set of equal pods, of the largest size that fits on a node and divides its GPUs. Raises `ValueError` for
    any other value of `wish`.
    """

    def __init__(self, wish: str) -> None:
        """Parse the wish; its level is resolved with the cluster."""
        kind, _, level = wish.partition(" ")
        if (kind == "unconstrained") == bool(level) or kind not in ("required", "preferred", "unconstrained"):
            raise ValueError(f"topology '{wish}' is none of 'required LEVEL', 'preferred LEVEL' and 'unconstrained'")
        self._wish = wish
        self._request = TopologyRequest(kind, level)  # type: ignore[arg-type]
        self._labels: tuple[str, ...] = ()
        self._most = 0

    def begin(self, cluster: Cluster) -> None:
        """Record the levels; raises `InputError` if the wish names another."""
        names = [level.name for level in cluster.levels]
        self._most = max(node.gpus for node in cluster.nodes)
        self._labels = (*reversed(names), HOSTNAME)
        if self._request.level == "node":
            self._request = TopologyRequest(self._request.kind, HOSTNAME)
        if self._request.kind != "unconstrained" and self._request.level not in self._labels:
            known = ", ".join([*names, "node"])
            raise InputError(
                Problem("policy kueue, topology", f"the cluster has no level of '{self._wish}'", f"one of {known}")
            )

    def check(self, jobs: Sequence[JobView], cluster: Cluster) -> None:
        """Refuse jobs that ask for a number of nodes, or that no domain of an empty cluster could hold."""
        empty = self.domains(cluster.nodes, [True] * len(cluster.nodes))
        told: dict[tuple[int, tuple[str, ...] | None], str] = {}
        for job in jobs:
            shape, types = job.request.shape, job.facts.gpu_types
            if shape is not None and shape.binds:
                why = f"wants {shape.said}, which the topology of the policy does not place"
                raise InputError(Problem(f"job {job.id}", why, "leave out policy.topology, or nodes, cores and memory"))
            key = (job.num_gpus, None if types is None else tuple(types))
            if key not in told:
                trees = [tree for name, tree in empty.items() if types is None or name in types]
                found = [assign(tree, [self.pods(job.num_gpus)], name=_NAME) for tree in trees]
                whys = [why for one in found for why in one.reasons.values()]
                told[key] = whys[0] if len(whys) == len(found) else ""
            if told[key]:
                raise InputError(Problem(f"job {job.id}", told[key], "ask for a higher level, or 'preferred'"))

    def topology(self) -> dict[str, Topology]:
        """Return the topology by its name."""
        return {_NAME: Topology(_NAME, self._labels)}

    def flavours(self, types: Iterable[str]) -> dict[str, ResourceFlavor]:
        """Return a flavour for every GPU type, each with the topology."""
        return {name: ResourceFlavor(name, topology=_NAME) for name in types}

    def domains(self, nodes: Sequence[Node], up: Sequence[bool]) -> dict[str, Domains]:
        """Return the tree of each GPU type, over the nodes that are up."""
        return {
            name: Domains(
                self._labels, [self._host(node, usable=up[node.index]) for node in nodes if node.gpu_type == name]
            )
            for name in dict.fromkeys(node.gpu_type for node in nodes)
        }

    def _host(self, node: Node, *, usable: bool) -> Host:
        at = zip(
            self._labels, (*(f"{domain:06d}" for domain in reversed(node.domains)), f"{node.index:06d}"), strict=True
        )
        return Host(f"{node.index}", dict(at), {RESOURCE: node.gpus}, usable=usable)

    def pods(self, gpus: int) -> PodSet:
        """Return the pods of a job."""
        each = next(size for size in range(min(gpus, self._most), 0, -1) if gpus % size == 0)
        return PodSet(count=gpus // each, requests={RESOURCE: each}, topology=self._request)


def allocation_of(entry: Entry) -> Allocation | None:
    """Return the GPUs by node of an admitted job at its places; None for one that no topology placed."""
    found = entry.assignment.found[0]
    if found.places is None:
        return None
    return tuple(sorted((int(values[-1]), count * found.pods.requests[RESOURCE]) for values, count in found.places))
