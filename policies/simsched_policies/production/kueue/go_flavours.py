"""Reads the tables of Kueue's tests of flavour assignment as cases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from simsched_policies.production.go_values import Composite
from simsched_policies.production.kueue.go_objects import Json, quantity, word
from simsched_policies.production.kueue.go_placed_flavours import entries, error_of, foreseen, wanted_flavours
from simsched_policies.production.kueue.go_queues import (
    amounts,
    cluster_queue,
    flavour,
    flavour_quotas,
    fungibility,
    number,
    pod_set,
    pod_set_of_spec,
)

_MODES = {"NoFit": "no-fit", "Fit": "fit", "Preempt": "preempt"}
_LEVELS = {"fit": "fits", "preempt": "own", "reclaim": "borrowers", "noPreemptionCandidates": "nobody",
           "noFit": "no-fit"}  # fmt: skip


def _assigned(name: str, case: Composite, values: Mapping[str, Any]) -> Json:
    flavours = values.get("resourceFlavors") or {"flavor": None}
    made = _asking(case.get("wlPods"), case.get("wlReclaimablePods") or (), case)
    made |= _queues([case.get("clusterQueue"), case.get("secondaryClusterQueue")])
    usages = (case.get("clusterQueueUsage"), case.get("secondaryClusterQueueUsage"))
    return made | {
        "name": name,
        "flavours": _flavours(flavours),
        "topologies": _topologies(case),
        "fair_sharing": bool(case.get("enableFairSharing", False)),
        "usage": {q["name"]: amounts(used) for q, used in zip(made["queues"], usages, strict=False)},
        "foreseen": foreseen(case),
        "assignment": {"mode": _MODES[word(case.get("wantRepMode", "NoFit"))], **_wanted(case.get("wantAssignment"))},
    }


def _asking(pod_sets: Iterable[Any], reclaimable: Iterable[Composite], case: Composite) -> Json:
    sets = [pod_set_of_spec(one) for one in pod_sets]
    gates = {word(gate): on for gate, on in (case.get("featureGates") or {}).items()}
    made: Json = {"asking": {"id": "wl", "queue": "", "pod_sets": sets}, "gates": gates, "cohorts": []}
    if gates.get("ReclaimablePods", True):
        done = {word(one.get("Name")): one.get("Count") for one in reclaimable}
        for one in sets:
            one["count"] -= done.get(one["name"], 0)
    if (old := case.get("preemptWorkloadSlice")) is not None:
        made["replaced"] = [
            {
                "name": word(one.get("Name")),
                "requests": {word(r): number(of) for r, of in one.get("Requests").args[0].items()},
                "flavours": {word(r): word(of) for r, of in one.get("Flavors").items()},
            }
            for one in old.get("TotalRequests")
        ]
    return made


def _queues(given: Iterable[Any]) -> Json:
    return {"queues": [cluster_queue(one) for one in given if one is not None]}


def _flavours(given: Mapping[str, Any]) -> list[Json]:
    return [{"name": name} if one is None else {**flavour(one), "name": name} for name, one in given.items()]


def _topologies(case: Composite) -> Json:
    made = {}
    for one in case.get("topologies") or ():
        first, second = (call.args for call in one.chain()[:2])
        made[word(first[0])] = [word(level) for level in second]
    return made


def _wanted(want: Composite) -> Json:
    usage = want.get("Usage")
    made: Json = {
        "level": want.get("Borrowing", 0),
        "reason": want.get("NoFitReason", ""),
        "pod_sets": {word(one.get("Name")): _wanted_set(one) for one in want.get("PodSets") or ()},
    }
    if usage is not None:
        made["usage"] = [a for a in amounts(usage.get("Quota").get("Assigned")) if a["amount"]]
    return made


def _wanted_set(one: Composite) -> Json:
    status = one.get("Status")
    return {
        "count": one.get("Count", 0),
        "requests": {word(r): quantity(of, word(r)) for r, of in entries(one.get("Requests")).items()},
        "flavours": wanted_flavours(one.get("Flavors")),
        "reasons": sorted(set(_reasons(status))),
        "attempts": {word(of.get("Flavor")): _wanted_attempt(of) for of in one.get("FlavorAssignmentAttempts") or ()},
    }


def _reasons(status: Any) -> Iterable[str]:
    if status is None:
        return ()
    if isinstance(status, Composite):
        if (error := status.get("err")) is not None:
            return error_of(error)
        return tuple(status.get("reasons") or ())
    return tuple(status.args)


def _wanted_attempt(one: Composite) -> Json:
    return {
        "mode": _MODES[word(one.get("Mode", "NoFit"))],
        "level": one.get("Borrow", 0),
        "reasons": sorted(one.get("Reasons") or ()),
        "kind": one.get("NoFitReason", ""),
    }


def _reclaim(name: str, case: Composite, _: Mapping[str, Any]) -> Json:
    """The queues that the test makes for `TestReclaimBeforePriorityPreemption`: three flavours of 10 and 10 each."""
    names, resources = ("uno", "due", "tre"), ("compute", "gpu")
    rules = {"within_queue": "lower-priority", "reclaim": "lower-priority", "cohort": "cohort"}
    own = [{"flavour": f, "resource": r, "nominal": 10} for f in names for r in resources]
    other = [{**quota, "nominal": 0} for quota in own]
    given = case.get("flavorFungibility")
    queue = {"name": "test-clusterqueue", "quotas": own, **rules, **({} if given is None else fungibility(given))}
    other_queue = {"name": "other-clusterqueue", "cohort": "cohort", "quotas": other}
    return _small(name, case, queue, other_queue, [], names)


def _hierarchical(name: str, case: Composite, _: Mapping[str, Any]) -> Json:
    """The tree that `TestHierarchical` makes: three cohorts above each other with 4 cores of a flavour each."""
    names = ("one", "two", "three")
    above = {"one": "two", "two": "three"}
    cohorts = [
        {"name": name, "parent": above.get(name), "quotas": [{"flavour": name, "resource": "cpu", "nominal": 4000}]}
        for name in names
    ]
    given = case.get("flavorFungibility")
    quotas = [quota for one in case.get("testClusterQueueFlavors") for quota in flavour_quotas(one)]
    queue = {"name": "test-clusterqueue", "cohort": "one", "quotas": quotas, "within_queue": "lower-priority",
             "reclaim": "lower-priority", **({} if given is None else fungibility(given))}  # fmt: skip
    zero = [{"flavour": name, "resource": "cpu", "nominal": 0} for name in names]
    return _small(name, case, queue, {"name": "other-clusterqueue", "cohort": "two", "quotas": zero}, cohorts, names)


def _small(name: str, case: Composite, queue: Json, other: Json, cohorts: list[Json], flavours: Iterable[str]) -> Json:
    want = case.get("wantAssigment").fields
    return {
        "name": name,
        "asking": {"id": "wl", "queue": "", "pod_sets": [pod_set(case.get("workloadRequests"))]},
        "queues": [queue, other],
        "cohorts": cohorts,
        "flavours": [{"name": name} for name in flavours],
        "usage": {
            queue["name"]: amounts(case.get("testClusterQueueUsage")),
            other["name"]: amounts(case.get("otherClusterQueueUsage")),
        },
        "foreseen": foreseen(case),
        "assignment": {
            "mode": _MODES[word(case.get("wantMode"))],
            "pod_sets": {"main": {"flavours": {word(r): {"flavour": word(of)} for r, of in want.items()}}},
        },
    }


def _preferred(name: str, case: Composite, _: Mapping[str, Any]) -> Json:
    def of(mode: Composite) -> Json:
        return {"grade": _LEVELS[word(mode.get("preemptionMode"))], "level": mode.get("borrowingLevel", 0)}

    config = case.get("config")
    preference = None if config is None else config.get("Preference")
    return {
        "name": name,
        "compared": [of(case.get("a")), of(case.get("b"))],
        "preference": "BorrowingOverPreemption" if preference is None else word(preference),
        "first_preferred": bool(case.get("wantPreferred", False)),
    }


def _allowed(name: str, case: Composite, values: Mapping[str, Any]) -> Json:
    allowed = case.get("allowedFlavors")
    made: Json = {
        "name": name,
        "asking": {"id": "wl", "queue": "", "pod_sets": [{"name": "main", "request": {"cpu": 2000}}]},
        **_queues([values["cq"]]),
        "flavours": _flavours(values["resourceFlavors"]),
    }
    if allowed is not None:
        made["asking"]["flavours"] = [word(one) for one in allowed]
    mode = _MODES[word(case.get("wantRepMode", "NoFit"))]
    flavours = {"cpu": {"flavour": word(case.get("wantFlavor"))}} if mode == "fit" else {}
    return made | {"assignment": {"mode": mode, "pod_sets": {"main": {"flavours": flavours}}}}


def _reasoned(name: str, case: Composite, values: Mapping[str, Any]) -> Json:
    queue = case.get("cq") or values["cq"]
    made = _asking([case.get("podSet")], (), case)
    made["gates"].pop("ConcurrentAdmission", None)
    made |= _queues([queue, *(case.get("siblingCQs") or ())])
    usage = {word(of): amounts(used) for of, used in (case.get("siblingCQUsage") or {}).items()}
    if case.get("allowedFlavors"):
        made["asking"]["flavours"] = [word(one) for one in case.get("allowedFlavors")]
    if case.get("replaceWl") is not None:
        made["replaced"] = [_old_set(case.get("replaceWl"))]
    wanted = case.get("wantFlavorAttempts") or {}
    return made | {
        "name": name,
        "flavours": _flavours(case.get("resourceFlavors") or values["resourceFlavors"]),
        "topologies": _topologies(case),
        "usage": {**usage, made["queues"][0]["name"]: amounts(case.get("cqUsage"))},
        "foreseen": foreseen(case),
        "assignment": {
            "reason": case.get("wantNoFitReason", ""),
            "kinds": {word(of): kind for of, kind in wanted.items()},
        },
    }


def _old_set(value: Any) -> Json:
    """Return the single pod set of a workload that holds quota."""
    made: Json = {"name": "main", "requests": {}, "flavours": {}}
    for call in value.args[0].chain():
        if call.name == "PodSets":
            made["requests"] = pod_set(call.args[0])["request"]
        elif call.name == "Admission":
            for step in call.args[0].chain():
                if step.name == "PodSets":
                    flavours = entries(step.args[0].get("Flavors"))
                    made["flavours"] = {word(r): word(of) for r, of in flavours.items()}
    return made


#: The supported tables with their readers.
TABLES: Mapping[str, Callable[[str, Any, Mapping[str, Any]], Json]] = {
    "TestAssignFlavors": _assigned,
    "TestReclaimBeforePriorityPreemption": _reclaim,
    "TestDeletedFlavors": _assigned,
    "TestHierarchical": _hierarchical,
    "TestIsPreferred": _preferred,
    "TestAssignFlavorsWithAllowedFlavors": _allowed,
    "TestIsNoFitDueToCapacityAndLimits": _reasoned,
}
