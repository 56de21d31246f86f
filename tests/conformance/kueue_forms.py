"""Builds the objects of this package (queues, flavours, workloads, nodes) from cases of scenarios."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from simsched_policies.kubernetes.kueue.matching import Constraints, Term
from simsched_policies.kubernetes.kueue.model import (
    Asking,
    Assigned,
    ClusterQueue,
    Cohort,
    FlavourResource,
    Places,
    PodSet,
    Preference,
    Quota,
    Reclaim,
    ResourceFlavor,
    Slice,
    Stop,
    TopologyRequest,
    Within,
    Workload,
)
from simsched_policies.kubernetes.kueue.topology import MANY, PODS
from simsched_policies.kubernetes.kueue.tree import QuotaTree

from simsched.manifests import Expression, NodeFacts, Taint, Toleration

Json = Mapping[str, Any]


def quotas_of(entries: Iterable[Json]) -> dict[FlavourResource, Quota]:
    """Return quotas by flavour and resource."""
    return {
        (q["flavour"], q["resource"]): Quota(q["nominal"], q.get("borrowing_limit"), q.get("lending_limit"))
        for q in entries
    }


def queue_of(entry: Json) -> ClusterQueue:
    """Return a cluster queue; its checks are a list of names, or flavours by name."""
    given = entry.get("checks", {})
    checks = given if isinstance(given, Mapping) else dict.fromkeys(given, ())
    return ClusterQueue(
        entry["name"],
        entry.get("cohort"),
        quotas_of(entry["quotas"]),
        entry.get("weight", 1.0),
        Within(entry.get("within_queue", "never")),
        Reclaim(entry.get("reclaim", "never")),
        entry.get("borrow_preempts_lower_priority", False),
        entry.get("borrow_max_priority"),
        entry.get("strict_fifo", False),
        entry.get("borrow_before_next_flavour", True),
        entry.get("preempt_before_next_flavour", False),
        Preference(entry.get("preference", Preference.BORROWING.value)),
        tuple(tuple(group) for group in entry.get("groups", ())),
        None if (term := entry.get("namespaces", ())) is None else term_of(term),
        checks={name: frozenset(flavours) for name, flavours in checks.items()},
        stop=Stop(entry.get("stop", Stop.NONE.value)),
    )


def term_of(entries: Iterable[Json]) -> Term:
    """Return requirements on labels, all of which must be met."""
    return tuple(Expression(one["key"], one.get("operator", "In"), tuple(one.get("values", ()))) for one in entries)


def flavour_of(entry: Json) -> ResourceFlavor:
    """Return a flavour with its labels, taints and tolerations."""
    taints = tuple(Taint(**one) for one in entry.get("taints", ()))
    return ResourceFlavor(entry["name"], entry.get("labels", {}), taints, tolerations_of(entry), entry.get("topology"))


def tolerations_of(entry: Json) -> tuple[Toleration, ...]:
    """Return the tolerations of a flavour or of pods."""
    return tuple(Toleration(**one) for one in entry.get("tolerations", ()))


def pods_of(entry: Json) -> PodSet:
    """Return a set of pods; its `request` is that of one pod."""
    affinity = entry.get("affinity")
    where = Constraints(
        tuple(sorted(entry.get("selector", {}).items())),
        None if affinity is None else tuple(term_of(term) for term in affinity),
        tolerations_of(entry),
        tuple((one["weight"], term_of(one["term"])) for one in entry.get("preferred_affinity", ())),
    )
    count, least = entry.get("count", 1), entry.get("min_count")
    topology = None if entry.get("topology") is None else topology_request_of(entry["topology"])
    return PodSet(
        entry.get("name", "main"), count, entry.get("request", {}), least, where, topology, entry.get("group", "")
    )


def topology_request_of(entry: Json) -> TopologyRequest:
    """Return the topology request of pods; a slice without a size has size 0."""
    slices = tuple(Slice(one["level"], one.get("size", 0)) for one in entry.get("slices", ()))
    for kind in ("required", "preferred"):
        if kind in entry:
            return TopologyRequest(kind, entry[kind], slices)
    return TopologyRequest("unconstrained", "", slices)


def nodes_of(case: Json) -> list[NodeFacts]:
    """Return the nodes of a case without what its pods outside topologies take."""
    taken: dict[str, Counter[str]] = {}
    for pod in case.get("pods", ()):
        if not pod.get("ended", False):
            taken.setdefault(pod["node"], Counter()).update({**pod.get("request", {}), PODS: 1})
    return [_node(entry, taken.get(entry["name"], Counter())) for entry in case.get("nodes", ())]


def _node(entry: Json, taken: Counter[str]) -> NodeFacts:
    free = Counter({PODS: MANY, **entry.get("allocatable", {})})
    free.subtract(taken)
    taints = tuple(Taint(**one) for one in entry.get("taints", ()))
    states = entry.get("ready", True), not entry.get("schedulable", True)
    return NodeFacts(entry["name"], entry.get("labels", {}), taints, free, *states)


def assignment_of(entry: Json) -> Places:
    """Return a topology assignment."""
    return tuple((tuple(one["values"]), one["count"]) for one in entry["domains"])


def asking_of(entry: Json, case: Json) -> Asking:
    """Return a pending workload of a case."""
    sets = entry.get("pod_sets", 1)
    pod_sets = [{"request": entry["request"], **entry}] if isinstance(sets, int) else sets
    namespace = entry.get("namespace", entry["id"].partition("/")[0])
    return Asking(
        entry["id"],
        entry["queue"],
        tuple(map(pods_of, pod_sets)),
        entry.get("priority", 0),
        entry.get("created_s", 0),
        frozenset(entry["flavours"]) if "flavours" in entry else None,
        namespace=namespace,
        invalid=_beyond_limits(pod_sets, namespace, case) or _checked(entry),
        replaces=entry.get("replaces", ""),
        gated=entry.get("preemption_gated", False),
        elastic=entry.get("elastic", False),
    )


def _checked(entry: Json) -> str:
    return "" if entry.get("admission_checks", True) else "an admission check is to be tried again, or rejected it"


def _beyond_limits(pod_sets: Iterable[Json], namespace: str, case: Json) -> str:
    ranges = [one for one in case.get("limit_ranges", ()) if one["namespace"] == namespace]
    for pods in pod_sets:
        for resource, amount in pods.get("request", {}).items():
            if amount > pods.get("limits", {}).get(resource, amount):
                return f"the request of {resource} exceeds its limit"
            for one in ranges:
                least, most = (one.get(key, {}).get(resource, amount) for key in ("min", "max"))
                if not least <= amount <= most:
                    return f"the request of {resource} is outside the namespace's limit range"
    return ""


def amounts_of(entries: Iterable[Json]) -> dict[FlavourResource, int]:
    """Return amounts by flavour and resource; several of one are added up."""
    total: Counter[FlavourResource] = Counter()
    for entry in entries:
        total[entry["flavour"], entry["resource"]] += entry["amount"]
    return dict(total)


def workload_of(entry: Json, usage: str = "usage") -> Workload:
    """Return a workload that holds what `usage` lists, or what its pod sets in `holds` request."""
    assigned = tuple(map(assigned_of, entry.get("holds", ())))
    amounts: Counter[FlavourResource] = Counter(amounts_of(entry.get(usage, [])))
    if usage not in entry:
        for one in assigned:
            amounts.update({(one.flavours[name], name): amount for name, amount in one.requests.items()})
    return Workload(
        entry["id"],
        entry.get("queue", ""),
        dict(amounts),
        entry.get("priority", 0),
        entry.get("created_s", 0),
        entry.get("admitted_s", 0),
        entry.get("evicted", False),
        entry.get("local_queue_usage", 0.0),
        assigned,
    )


def assigned_of(entry: Json) -> Assigned:
    """Return what a set of pods holds; `request` is that of one pod."""
    count, request, flavours = entry.get("count", 1), entry.get("request", {}), entry.get("flavours", {})
    total = {name: count * amount for name, amount in request.items() if name in flavours}
    places = None if entry.get("places") is None else assignment_of(entry["places"])
    return Assigned(entry.get("name", "main"), count, total, flavours, places, request)


def tree_of(case: Json) -> tuple[QuotaTree, list[Workload]]:
    """Return the tree of a case with the usage of its admitted workloads, and these workloads."""
    cohorts = [
        Cohort(c["name"], c.get("parent"), quotas_of(c.get("quotas", [])), c.get("weight", 1.0))
        for c in case.get("cohorts", [])
    ]
    tree = QuotaTree([queue_of(entry) for entry in case["queues"]], cohorts)
    admitted = [workload_of(entry) for entry in case.get("admitted", [])]
    for holder in admitted:
        tree.admit(holder)
    return tree, admitted
