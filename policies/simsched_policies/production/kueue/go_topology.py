"""Reads the tables of Kueue's tests of topology assignments as cases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simsched_policies.production.go_values import Call, Composite
from simsched_policies.production.kueue.go_builders import calls, unread
from simsched_policies.production.kueue.go_objects import (
    Json,
    affinity,
    assignment,
    node,
    requests,
    toleration,
    topology_request,
    word,
)
from simsched_policies.production.kueue.go_queues import ask
from simsched_policies.production.kueue.go_workloads import workload as built_workload

#: Suffixes of the labels and annotations that mark a pod as placed by a topology, as constants and as text.
_PLACED = ("TASLabel", "kueue.x-k8s.io/tas", "TopologyAnnotation", "-topology")


def case_of(name: str, case: Composite, values: Mapping[str, Any]) -> Json:
    """Return one case; raises `InputError` for a value that our format cannot express."""
    made: Json = {
        "name": name,
        "levels": list(case.get("levels") or values.get("defaultLevels", ())),
        "flavour_labels": dict(case.get("nodeLabels") or {}),
        "gates": {word(gate): on for gate, on in (case.get("featureGates") or {}).items()},
        "nodes": [node(entry) for entry in case.get("nodes", ())],
        "pods": [found for entry in case.get("pods") or () if (found := pod(entry)) is not None],
        "used": [usage(entry) for entry in case.get("priorOwnUsage") or ()],
        "used_by_others": [usage(entry) for entry in case.get("priorFlavorUsage") or ()],
    }
    if case.get("aggregatedDomainUsages"):
        raise unread(case.get("aggregatedDomainUsages"))
    if "existingTA" in case.fields:
        return made | _replacement(case)
    if case.get("workload") is not None:
        made |= workload(case.get("workload"))
    pod_sets = [(entry.get("podSetName", ""), entry) for entry in case.get("podSets")]
    made["pod_sets"] = [pod_set(entry) for _, entry in pod_sets]
    made["placement"] = {of: outcome(entry) for of, entry in pod_sets}
    return made


def _replacement(case: Composite) -> Json:
    one_core = {"name": "main", "count": case.get("count"), "request": {"cpu": 1000}}
    return {
        "pod_sets": [one_core | {"topology": topology_request(case.get("topologyRequest"))}],
        "unhealthy_nodes": [case.get("unhealthyNode")],
        "assigned": {"main": assignment(case.get("existingTA"))},
        "placement": {"main": outcome(case)},
    }


def outcome(entry: Composite) -> Json | None:
    """Return the expected placement of a pod set, or the reason why there is none."""
    if entry.get("wantReason"):
        return {"reason": entry.get("wantReason")}
    return assignment(entry.get("wantAssignment"))


def pod_set(entry: Composite) -> Json:
    """Return a set of pods with what it asks for."""
    made: Json = {
        "name": entry.get("podSetName", ""),
        "count": entry.get("count"),
        "request": requests(entry.get("requests")),
        "tolerations": [toleration(one) for one in entry.get("tolerations") or ()],
        "selector": dict(entry.get("nodeSelector") or {}),
        "topology": topology_request(entry.get("topologyRequest")),
        **affinity(entry.get("nodeAffinity")),
    }
    if entry.get("podSetGroupName") is not None:
        made["group"] = entry.get("podSetGroupName")
    if entry.get("previousAssignment") is not None:
        made["previous"] = assignment(entry.get("previousAssignment"))
    return made


def usage(entry: Composite) -> Json:
    """Return the usage of pods in one domain."""
    return {
        "values": list(entry.get("Values")),
        "request": requests(entry.get("SinglePodRequests")),
        "count": entry.get("Count"),
    }


def pod(value: Any) -> Json | None:
    """Return a pod placed without topology, on its node; None for one that a topology placed."""
    made: Json = {"node": "", "request": {}, "ended": False}
    for call in calls(value, "pod"):
        match call.name, call.args:
            case "NodeName", (name,):
                made["node"] = name
            case (("Request" | "Limit" | "RequestAndLimit"), given):
                ask(made, call.name, *given)
            case "StatusPhase", (phase,):
                made["ended"] = word(phase) in ("Succeeded", "Failed")
            case (("Label" | "Annotation"), (key, _)) if word(key).endswith(_PLACED):
                return None
            case (("MakePod" | "Label" | "Annotation"), _):
                pass
            case _:
                raise unread(call)
    return {key: made[key] for key in ("node", "request", "ended")}


def workload(value: Call) -> Json:
    """Return the workload whose pods were placed earlier: its placement, the failed nodes, its owner."""
    made = built_workload(value, {})
    return {
        "assigned": {one["name"]: one["places"] for one in made.get("holds", ()) if one.get("places") is not None},
        "unhealthy_nodes": made.get("unhealthy_nodes", []),
        "owners": made.get("owners", []),
        "is_pod_group": made.get("is_pod_group", False),
    }
