"""Reads the tables of Kueue's tests of quota, shares, victims and their order as cases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from simsched_policies.production.go_values import Call, Composite
from simsched_policies.production.kueue.go_builders import calls, known_calls, unread
from simsched_policies.production.kueue.go_objects import Json, word
from simsched_policies.production.kueue.go_queues import amounts, cluster_queue, cohort
from simsched_policies.production.kueue.go_schedule import gates_of_case
from simsched_policies.production.kueue.go_workloads import workload

#: The annotation that adds to a workload's priority.
_BOOST = "PriorityBoostAnnotationKey"
#: The largest 64-bit integer, which stands for an infinite share.
_ENDLESS = ("MaxInt", "MaxInt64")


def victims(name: str, case: Composite, values: Mapping[str, Any]) -> Json:
    """Return a case of the victims of one workload whose flavours are given."""
    made = _held(name, case, values)
    asking = workload(case.get("incoming"), {})
    named = [case.get("targetCQ"), asking["queue"], *(one["name"] for one in made["queues"])]
    return made | {
        "gates": gates_of_case(case, values),
        "incoming": {key: asking[key] for key in ("id", "priority", "created_s") if key in asking}
        | {"queue": next(word(one) for one in named if one), "assigned": _assigned(case, asking["pod_sets"])},
        "victims": _victims(case, {one["id"] for one in made["admitted"] if one.get("evicted")}),
    }


def fair_victims(name: str, case: Composite, values: Mapping[str, Any]) -> Json:
    """Return a case of victims under fair sharing, by the rules that it names or by both."""
    rules = {"strategies": [word(one) for one in case.get("strategies")]} if case.get("strategies") else {}
    return victims(name, case, values) | {"fair_sharing": True} | rules


def _held(name: str, case: Composite, values: Mapping[str, Any]) -> Json:
    queues = case.get("clusterQueues") or ([values["cq"]] if "cq" in values else ())
    admitted = [workload(one, {}) for one in case.get("admitted") or case.get("workloads") or ()]
    return {
        "name": name,
        "queues": [cluster_queue(one) for one in queues],
        "cohorts": [cohort(one) for one in case.get("cohorts") or ()],
        "admitted": admitted,
    }


def _assigned(case: Composite, pod_sets: Iterable[Json]) -> list[Json]:
    """Return a workload's request by flavour; a case without an assignment names the flavour of all cores."""
    requests = {one["name"]: one for one in pod_sets}
    if case.get("assignment") is None:
        given = [("main", {"cpu": (word(case.get("assignmentFlavor") or "default"), "preempt")})]
    else:
        given = [(name, flavours) for name, flavours in _flavours(case.get("assignment"))]
    return [
        {
            "flavour": flavour,
            "resource": resource,
            "amount": requests[name]["count"] * requests[name]["request"].get(resource, 0),
            "mode": mode,
        }
        for name, flavours in given
        for resource, (flavour, mode) in flavours.items()
    ]


def _flavours(assignment: Any) -> Iterable[tuple[str, dict[str, tuple[str, str]]]]:
    """Yield the pod sets of an assignment, each with the flavour and mode by resource."""
    if isinstance(assignment, Call) and assignment.name == "singlePodSetAssignment":
        sets: Iterable[tuple[str, Any]] = [("main", assignment.args[0])]
    elif isinstance(assignment, Composite):
        sets = [(word(one.get("Name")), one.get("Flavors")) for one in assignment.get("PodSets")]
    else:
        raise unread(assignment)
    for name, given in sets:
        entries = given.fields if isinstance(given, Composite) else given
        yield (
            name,
            {word(r): (word(of.get("Name")), word(of.get("Mode", "NoFit")).lower()) for r, of in entries.items()},
        )


def _victims(case: Composite, before: set[str]) -> dict[str, str]:
    """Return the reasons of victims, from keys with reasons, or from the expected state of workloads."""
    if (wanted := case.get("wantWorkloads")) is None:
        return dict(_reason_of(one) for one in _members(case.get("wantPreempted")))
    found = {}
    for one in wanted:
        for call in known_calls(one, "workload"):
            if call.name == "Condition" and word(call.args[0].get("Type")).endswith("Preempted"):
                found[workload(one, {})["id"]] = _reason(call.args[0].get("Reason"))
    return {name: reason for name, reason in found.items() if name not in before}


def _reason_of(key: Any) -> tuple[str, str]:
    if not isinstance(key, Call) or key.name != "targetKeyReason":
        raise unread(key)
    return word(key.args[0]), _reason(key.args[1])


def _reason(value: Any) -> str:
    return word(value).removesuffix("Reason")


def _members(value: Any) -> tuple[Any, ...]:
    return value.args if isinstance(value, Call) else tuple(value or ())


def candidates(name: str, case: Composite, values: Mapping[str, Any]) -> Json:
    """Return a case of the order of candidates; the boost of an annotation is added to the priority."""
    gates = gates_of_case(case, values)
    return {
        "name": name,
        "preemptor_queue": word(values["preemptorCq"]),
        "admission_fair_sharing": gates.get("AdmissionFairSharing", False),
        "candidates": [_candidate(one, boosted=gates.get("PriorityBoost", False)) for one in case.get("candidates")],
        "order": [f"/{word(one)}" for one in case.get("wantCandidates")],
    }


def _candidate(value: Any, *, boosted: bool) -> Json:
    made: Json = {}
    for call in calls(value, "candidate"):
        match call.name, call.args:
            case "NewInfo", (given,):
                made |= workload(given, {})
                boost = [
                    step.args[1]
                    for step in known_calls(given, "workload")
                    if step.name == "Annotation" and _boosts(step)
                ]
                if boosted:
                    made["priority"] = made.get("priority", 0) + sum(int(one) for one in boost if _is_whole(one))
            case "LocalQueueFSUsage=", (usage,):
                made["local_queue_usage"] = usage
            case _:
                raise unread(call)
    return made


def _boosts(annotation: Call) -> bool:
    return word(annotation.args[0]).endswith(_BOOST)


def _is_whole(text: str) -> bool:
    return text.removeprefix("-").isdigit()


def order(name: str, case: Composite, values: Mapping[str, Any]) -> Json:
    """Return a case of the order in which queues with candidates are picked."""
    return _held(name, case, values) | {
        "preemptor_queue": word(case.get("preemptorCQ")),
        "candidate_queues": [word(one) for one in case.get("candidateCQs")],
        "actions": [word(one) for one in case.get("actions") or ()],
        "order": [word(one) for one in case.get("wantOrder") or ()],
    }


def shares(name: str, case: Composite, _: Mapping[str, Any]) -> Json:
    """Return a case of dominant shares; all usage is that of the queue `cq`."""
    queues = [case.get("clusterQueue"), case.get("lendingClusterQueue")]
    return {
        "name": name,
        "queues": [cluster_queue(one) for one in queues if one is not None],
        "cohorts": [cohort(one) for one in case.get("cohorts") or ()],
        "usage": amounts(case.get("usage")),
        "added": amounts(case.get("flvResQ")),
        "shares": [_share(one) for one in case.get("want")],
    }


def _share(one: Composite) -> Json:
    share = one.get("DrValue", 0)
    return {
        "name": word(one.get("Name")),
        "kind": "cohort" if one.get("NodeType") else "queue",
        "share": share if isinstance(share, int) else None if word(share) in _ENDLESS else word(share),
        "resource": word(one.get("DrName", "")),
        "borrowing": bool(one.get("Borrowing", False)),
    }


def available(name: str, case: Composite, _: Mapping[str, Any]) -> Json:
    """Return a case of the amounts that queues can use, now and at most."""

    def by_queue(key: str) -> dict[str, list[Json]]:
        return {word(queue): amounts(given) for queue, given in (case.get(key) or {}).items()}

    return {
        "name": name,
        "queues": [cluster_queue(one) for one in case.get("clusterQueues")],
        "cohorts": [cohort(one) for one in case.get("cohorts") or ()],
        "usage": by_queue("usage"),
        "available": by_queue("wantAvailable"),
        "potentially_available": by_queue("wantPotentiallyAvailable"),
    }


#: The supported tables with their readers.
TABLES = {
    "TestPreemption": victims,
    "TestPreemptionWhenWorkloadModifiedConcurrently": victims,
    "TestHierarchicalPreemptions": victims,
    "TestFairPreemptions": fair_victims,
    "TestCandidatesOrdering": candidates,
    "TestMakeClusterQueueOrdering": order,
    "TestDominantResourceShare": shares,
    "TestAvailable": available,
}
