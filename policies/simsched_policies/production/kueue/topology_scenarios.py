"""Cases of topology assignments in our form: what is expected of each set of pods, and what this package finds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from simsched_policies.production.kueue.gates import gates
from simsched_policies.production.kueue.matching import Constraints, Requirement, Taint, Term, Toleration
from simsched_policies.production.kueue.model import PodSet, Slice, TopologyRequest
from simsched_policies.production.kueue.topology import Domains, Node, Usage
from simsched_policies.production.kueue.topology_assignment import Assignment, Earlier, assign

Json = Mapping[str, Any]

CASE = {
    *("name", "levels", "flavour_labels", "flavour_tolerations", "gates", "nodes", "pods", "used", "used_by_others"),
    *("pod_sets", "assigned", "unhealthy_nodes", "owners", "is_pod_group", "placement"),
}
POD_SET = {
    *("name", "count", "requests", "required", "preferred", "unconstrained", "slices", "slice_level", "slice_size"),
    *("group", "tolerations", "node_selector", "required_nodes", "preferred_nodes", "previous"),
}
NODE = {"name", "labels", "allocatable", "taints", "ready", "schedulable"}


def unknown(case: Json) -> str:
    """Return a word of a case that has no meaning here, empty if all have."""
    parts = [(CASE, case), *((POD_SET, one) for one in case["pod_sets"]), *((NODE, one) for one in case["nodes"])]
    return next((key for known, part in parts for key in sorted(set(part) - known)), "")


def compared(case: Json) -> tuple[object, object]:
    """Return what is expected of a case's sets of pods, and what is found."""
    on = gates(case.get("gates", {}), "gates")
    domains = domains_of(case)
    found = assign(domains, [pod_set_of(entry) for entry in case["pod_sets"]], on, _earlier(case, on))
    got = {**{name: _written(one) for name, one in found.assigned.items()}, **found.reasons}
    return {name: _expected(domains, one) for name, one in case["placement"].items()}, got


def domains_of(case: Json) -> Domains:
    """Return the topology of a case with what occupies it."""
    nodes = [node_of(entry) for entry in case["nodes"]]
    tolerations = tuple(Toleration(**one) for one in case.get("flavour_tolerations", []))
    domains = Domains(case["levels"], nodes, case.get("flavour_labels", {}), tolerations)
    for pod in case.get("pods", []):
        if not pod.get("ended", False):
            domains.occupy(pod["node"], pod.get("requests", {}))
    for entry in [*case.get("used", []), *(case.get("used_by_others", []) if domains.by_host else [])]:
        domains.change(Usage(tuple(entry["values"]), entry["requests"], entry["count"]))
    return domains


def node_of(entry: Json) -> Node:
    """Return a node."""
    usable = entry.get("ready", True) and entry.get("schedulable", True)
    taints = tuple(Taint(**one) for one in entry.get("taints", []))
    return Node(entry["name"], entry.get("labels", {}), entry.get("allocatable", {}), taints, usable)


def pod_set_of(entry: Json) -> PodSet:
    """Return a set of pods."""
    where = Constraints(
        tuple(sorted(entry.get("node_selector", {}).items())),
        None if entry.get("required_nodes") is None else tuple(map(_term, entry["required_nodes"])),
        tuple(Toleration(**one) for one in entry.get("tolerations", [])),
        tuple((one["weight"], _term(one["expressions"])) for one in entry.get("preferred_nodes", [])),
    )
    name, count = entry.get("name", "main"), entry.get("count", 1)
    return PodSet(name, count, entry.get("requests", {}), None, where, request_of(entry), entry.get("group", ""))


def request_of(entry: Json) -> TopologyRequest | None:
    """Return what a set of pods asks of the topology; None where it asks nothing."""
    slices = tuple(Slice(one["level"], one["size"]) for one in entry.get("slices", []))
    if "slice_level" in entry:
        slices = (Slice(entry["slice_level"], entry.get("slice_size") or 0), *slices)
    if "required" in entry:
        return TopologyRequest("required", entry["required"], slices)
    if "preferred" in entry:
        return TopologyRequest("preferred", entry["preferred"], slices)
    return TopologyRequest("unconstrained", "", slices) if slices or entry.get("unconstrained") else None


def _term(expressions: Iterable[Json]) -> Term:
    return tuple(Requirement(one["key"], one["operator"], tuple(one.get("values", ()))) for one in expressions)


def _earlier(case: Json, on: Mapping[str, bool]) -> Earlier:
    had = {entry.get("name", "main"): entry["previous"] for entry in case["pod_sets"] if entry.get("previous")}
    assigned = {name: _read(one) for name, one in {**had, **case.get("assigned", {})}.items()}
    single = case.get("owners") == ["Pod"] and not case.get("is_pod_group", False)
    keeps = single and on["SkipReassignmentForPodOwnedWorkloads"]
    return Earlier(assigned, tuple(case.get("unhealthy_nodes", ())), keeps)


def _read(placement: Json) -> Assignment:
    return tuple((tuple(one["values"]), one["count"]) for one in placement["domains"])


def _written(assignment: Assignment) -> list[tuple[list[str], int]]:
    return [(list(values), count) for values, count in assignment]


def _expected(domains: Domains, one: Json) -> object:
    return one["reason"] if "reason" in one else _written(_read(one))
