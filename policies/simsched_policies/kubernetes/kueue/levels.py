"""Quotas derived from an experiment's tenants, and the levels of its cluster as a topology for their jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from simsched.errors import InputError, Problem
from simsched.manifests import HOSTNAME, NodeFacts
from simsched.model import Allocation, Cluster, Node
from simsched.model.cluster import Tenant
from simsched.policy import JobView
from simsched_policies.kubernetes.kueue.cycle import Entry
from simsched_policies.kubernetes.kueue.model import (
    ClusterQueue,
    Cohort,
    PodSet,
    Quota,
    Reclaim,
    ResourceFlavor,
    Topology,
    TopologyRequest,
)
from simsched_policies.kubernetes.kueue.topology import Domains
from simsched_policies.kubernetes.kueue.topology_assignment import assign
from simsched_policies.kubernetes.kueue.tree import QuotaTree

#: The queue of undeclared tenants; it owns the rest.
OTHERS = "(others)"
#: The only resource that is counted.
RESOURCE = "gpu"
_ROOT = "(cluster)"


def quotas_of(tenants: Mapping[str, Tenant], totals: Mapping[str, int], rules: ClusterQueue) -> QuotaTree:
    """Return the tree of GPU quotas; `totals` are by type, and `rules` the queue of undeclared tenants, without quota.

    A tenant that others name as their parent is a cohort with its own GPUs, and a queue without any. All trees meet in
    one cohort, in which the queue of undeclared tenants owns the rest. All queues have its rules of preemption, but for
    tenants that do not reclaim.
    """
    own = _own_gpus(tenants, totals)
    above = {tenant.parent for tenant in tenants.values() if tenant.parent}
    queues, cohorts = [], [Cohort(name, _ROOT) for name in sorted(above - set(tenants))]
    for name, tenant in sorted(tenants.items()):
        below = sum(sum(own[other].values()) for other in tenants if _is_below(tenants, other, name))
        quotas = {(kind, RESOURCE): _quota(tenant, own[name][kind], below) for kind in totals}
        parent = tenant.parent or _ROOT
        if name in above:
            cohorts.append(Cohort(name, parent, quotas, tenant.weight))
            parent, quotas = name, {key: Quota(0) for key in quotas}
        reclaim = rules.reclaim if tenant.reclaims else Reclaim.NEVER
        queues.append(replace(rules, name=name, cohort=parent, quotas=quotas, weight=tenant.weight, reclaim=reclaim))
    rest = {(kind, RESOURCE): Quota(n - sum(gpus[kind] for gpus in own.values())) for kind, n in totals.items()}
    return QuotaTree([*queues, replace(rules, cohort=_ROOT, quotas=rest)], cohorts)


def _own_gpus(tenants: Mapping[str, Tenant], totals: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Return the own GPUs of tenants by type: a share of each type, or a number, from the first type on."""
    left = dict(totals)
    own: dict[str, dict[str, int]] = {}
    for name, tenant in sorted(tenants.items()):
        wanted = tenant.gpus
        own[name] = {}
        for kind, total in totals.items():
            gpus = own[name][kind] = min(tenant.own_gpus(total) if wanted is None else wanted, left[kind])
            wanted = None if wanted is None else wanted - gpus
            left[kind] -= gpus
    return own


def _is_below(tenants: Mapping[str, Tenant], name: str, above: str) -> bool:
    while name != above and name in tenants:
        name = tenants[name].parent
    return name == above


def _quota(tenant: Tenant, own: int, own_in_all: int) -> Quota:
    """Return the quota of a type; the total that may be borrowed, over all types, is what `own_in_all` leaves."""
    borrowing = None if tenant.max_gpus is None else max(0, tenant.max_gpus - own_in_all)
    return Quota(own, borrowing if tenant.borrows else 0, tenant.lends)


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

    def _host(self, node: Node, *, usable: bool) -> NodeFacts:
        at = zip(
            self._labels, (*(f"{domain:06d}" for domain in reversed(node.domains)), f"{node.index:06d}"), strict=True
        )
        return NodeFacts(f"{node.index}", dict(at), (), {RESOURCE: node.gpus}, ready=usable)

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
