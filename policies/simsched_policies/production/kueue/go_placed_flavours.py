"""Reads the tables of Kueue's tests of flavours with a topology as cases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from simsched_policies.production.go_values import Call, Composite
from simsched_policies.production.kueue.go_objects import Json, assignment, quantity, word
from simsched_policies.production.kueue.go_queues import amounts, cluster_queue, fungibility, pod_set
from simsched_policies.production.kueue.go_topology import usage
from simsched_policies.production.kueue.go_workloads import workload as built_workload
from simsched_policies.production.kueue.reasons import Unfit, Why
from simsched_policies.production.kueue.topology import HOSTNAME

#: More than any case asks for.
_PLENTY = 10**15
_MODES = {"NoFit": "no-fit", "Fit": "fit", "Preempt": "preempt"}
_GRADES = {"NoCandidates": "nobody", "Preempt": "own", "Reclaim": "borrowers"}
#: Reasons by the names that the tests use.
_ERRORS: Mapping[str, Why] = {
    "ErrNoTASCacheInformation": Why(Unfit.NO_TOPOLOGY, "cache information"),
    "ErrNoTASFlavorAssigned": Why(Unfit.NO_TOPOLOGY, "flavor assigned"),
    "ErrElasticRequiredTopologyNotSupported": Why(Unfit.ELASTIC, "required"),
    "ErrElasticPreferredTopologyNotSupported": Why(Unfit.ELASTIC, "preferred"),
}


def foreseen(case: Composite) -> list[Json]:
    """Return the victims of each flavour and resource."""
    given: Mapping[Any, Composite] = case.get("simulationResult") or {}
    return [
        {
            "flavour": word(key.get("Flavor")),
            "resource": word(key.get("Resource")),
            "whom": _GRADES[word(_item(one, 0, "preemptionPossiblity"))],
            "level": _item(one, 1, "borrowingAfterSimulation") or 0,
        }
        for key, one in given.items()
    ]


def _item(value: Composite, place: int, name: str) -> Any:
    return value.items[place] if value.items else value.get(name)


def entries(value: Any) -> Mapping[Any, Any]:
    """Return the entries of a map, which may be a literal of a named type or missing."""
    return value.fields if isinstance(value, Composite) else value or {}


def wanted_flavours(given: Any) -> Json:
    """Return the expected flavour of each resource, its mode, and where the search stopped."""
    return {
        word(r): {
            "flavour": word(of.get("Name")),
            "mode": _MODES[word(of.get("Mode", "NoFit"))],
            "tried": of.get("TriedFlavorIdx", 0),
        }
        for r, of in entries(given).items()
    }


def error_of(value: Any) -> list[str]:
    """Return the reasons that an error stands for."""
    if isinstance(value, Composite):
        return [Why(Unfit.SEVERAL_TOPOLOGIES, ", ".join(value.get("Flavors"))).text("")]
    return [] if value is None else [_ERRORS[word(value)].text("")]


# Workloads whose flavours the test gives: a queue with exactly these


def _given(name: str, sets: list[Json], given: Iterable[Composite], flavours: Mapping[Any, Any]) -> Json:
    """Return a case whose queue has ample quota of the given flavours; those in `flavours` have a topology."""
    chosen = {word(r): word(of.get("Name")) for one in given for r, of in entries(one.get("Flavors")).items()}
    topologies = {word(of): word(of) for of in flavours}
    return {
        "name": name,
        "asking": {"id": "wl", "queue": "", "pod_sets": sets},
        "queues": [
            {
                "name": "cq",
                "quotas": [{"flavour": of, "resource": r, "nominal": _PLENTY} for r, of in chosen.items()],
                "groups": [[resource] for resource in chosen],
            }
        ],
        "flavours": [{"name": of, "topology": topologies.get(of)} for of in sorted(set(chosen.values()))],
        "topologies": {word(of): [HOSTNAME] for of, known in flavours.items() if known is not None},
        "nodes": [_host("node", dict.fromkeys(chosen, _PLENTY))],
    }


def _host(name: str, allocatable: Mapping[str, int], labels: Mapping[str, str] | None = None) -> Json:
    return {"name": name, "labels": {HOSTNAME: name, **(labels or {})}, "allocatable": dict(allocatable)}


def _workload(value: Any) -> tuple[list[Json], bool]:
    """Return the pod sets of a workload, written with a builder or as a struct, and whether it is elastic."""
    value = value.args[0] if isinstance(value, Call) and value.name == "NewInfo" else value
    if isinstance(value, Composite):
        meta = value.get("ObjectMeta")
        notes = {} if meta is None else meta.get("Annotations")
        return [pod_set(one) for one in value.get("Spec").get("PodSets")], "kueue.x-k8s.io/elastic-job" in notes
    return built_workload(value, {})["pod_sets"], False


def _error_branch(name: str, case: Composite, _: Mapping[str, Any]) -> Json:
    """Return a case of what flavours can place; if the search never picks the given ones, only the mode counts."""
    given = case.get("assignment").get("PodSets")
    flavours = entries(case.get("cq").get("TASFlavors"))
    sets, elastic = _workload(case.get("workload"))
    made = _given(name, sets, given, flavours)
    made["asking"]["elastic"] = elastic
    error = case.get("wantErr")
    made["assignment"] = {"mode": "fit" if error is None else "no-fit"}
    if all(flavours.get(one["name"]) is not None for one in made["flavours"]):
        made["assignment"]["pod_sets"] = {word(given[0].get("Name")): {"reasons": error_of(error)}}
    return made


def _elastic(name: str, case: Composite, values: Mapping[str, Any]) -> Json:
    return _error_branch(name, case, values) | {"gates": {"ElasticJobsViaWorkloadSlicesWithTAS": True}}


def _zero_count(name: str, case: Composite, _: Mapping[str, Any]) -> Json:
    given = case.get("podSets")
    sets = [pod_set(one) | {"count": of.get("Count")} for one, of in zip(case.get("wlPodSets"), given, strict=True)]
    placed = case.get("wantTASPodSets") or ()
    wanted = {one["name"]: {"placed": one["name"] in placed, "reasons": []} for one in sets}
    return _given(name, sets, given, {"tas": "topology"}) | {"assignment": {"mode": "fit", "pod_sets": wanted}}


def _total_requests(name: str, case: Composite, _: Mapping[str, Any]) -> Json:
    """Return a case of a workload's usage: of all its pods if it replaces another, otherwise of the assigned ones."""
    fields = case.get("fields")
    given, old = fields.get("PodSets"), fields.get("replaceWorkloadSlice")
    sets = _workload(case.get("args").get("wl"))[0]
    if old is None:
        sets = [one | {"count": of.get("Count")} for one, of in zip(sets, given, strict=True)]
    made = _given(name, sets, given, {})
    if old is not None:
        made["replaced"] = [
            {
                "name": one["name"],
                "requests": {r: one["count"] * amount for r, amount in one["request"].items()},
                "flavours": {word(r): word(of.get("Name")) for r, of in entries(part.get("Flavors")).items()},
            }
            for one, part in zip(_workload(old)[0], given, strict=True)
        ]
    return made | {"assignment": {"mode": "fit", "usage": [one for one in amounts(case.get("want")) if one["amount"]]}}


def _net_usage(name: str, case: Composite, _: Mapping[str, Any]) -> Json:
    """Return a case of the additional usage of pods in a topology."""
    sets = _workload(case.get("wl"))[0]
    given = case.get("assignment").get("PodSets")
    before = case.get("prevAdmission")
    flavours = list(entries(case.get("cq").get("TASFlavors")))
    now = [_held(one, of, of) for one, of in zip(sets, given, strict=True)]
    had = () if before is None else before.get("PodSetAssignments")
    held = [_held(one, of, to) for one, of, to in zip(sets, had, given, strict=False)]
    hosts = {domain["values"][-1] for one in (*now, *held) for domain in one["places"]["domains"]}
    return {
        "name": name,
        "flavours": [{"name": word(of), "topology": "topology"} for of in flavours],
        "topologies": {"topology": now[0]["places"]["levels"]},
        "nodes": [_host(host, {}) for host in sorted(hosts)],
        "held": held,
        "now": now,
        "counted": [
            {"flavour": word(of), **usage(one)} for of, more in entries(case.get("want")).items() for one in more
        ],
    }


def _held(pods: Json, lies: Composite, assigned: Composite) -> Json:
    places = assignment(lies.get("TopologyAssignment"))
    if places is None:
        raise ValueError("the set of pods lies nowhere")
    flavours = {word(r): word(of.get("Name")) for r, of in entries(assigned.get("Flavors")).items()}
    count = sum(domain["count"] for domain in places["domains"])
    return {"name": pods["name"], "count": count, "request": pods["request"], "flavours": flavours, "places": places}


def _borrows(name: str, case: Composite, _: Mapping[str, Any]) -> Json:
    return {"name": name, "borrowing_level": case.get("borrowing"), "borrows": case.get("want")}


def _leaders(name: str, case: Composite, _: Mapping[str, Any]) -> Json:
    """The flavours and nodes that the test makes: two topologies over the same two nodes, and a flavour without one."""
    errors = {word(of): error_of(error) for of, error in entries(case.get("wantPodSetErrors")).items()}
    hosts = {"pods": 32, "example.com/gpu-a": 4, "example.com/gpu-b": 4}
    flavours = entries(case.get("wantPodSetFlavors"))
    return {
        "name": name,
        "asking": {"id": "wl", "queue": "", "pod_sets": [pod_set(one) for one in case.get("wlPods")]},
        "queues": [cluster_queue(case.get("clusterQueue"))],
        "flavours": [
            {"name": "tas-a", "topology": "tas-topo-a"},
            {"name": "tas-b", "topology": "tas-topo-b"},
            {"name": "non-tas"},
        ],
        "topologies": {"tas-topo-a": [HOSTNAME], "tas-topo-b": [HOSTNAME]},
        "nodes": [_host(host, hosts) for host in ("tas-node-a", "tas-node-b")],
        "assignment": {
            "mode": "no-fit" if errors else "fit",
            "pod_sets": {
                word(of): {"flavours": wanted_flavours(one), "reasons": errors.get(word(of), [])}
                for of, one in flavours.items()
            },
        },
    }


# Where the next search continues


def _market(name: str, nominal: Any, spare: Any, rules: Composite, request: Any) -> Json:
    """Two flavours with one node of four cores each, a queue and another that lends, and one pod on a host."""

    def quotas(amount: Any) -> list[Json]:
        cores = quantity(amount, "cpu")
        return [{"flavour": of, "resource": "cpu", "nominal": cores} for of in ("flavor-1", "flavor-2")]

    pods = {"name": "main", "request": {"cpu": quantity(request, "cpu")}, "topology": {"required": HOSTNAME}}
    numbers = (("1", "one"), ("2", "two"))
    return {
        "name": name,
        "asking": {"id": "wl", "queue": "cq", "pod_sets": [pods]},
        "queues": [
            {"name": "cq", "cohort": "cohort", "quotas": quotas(nominal), **fungibility(rules)},
            {"name": "sibling", "cohort": "cohort", "quotas": quotas(spare)},
        ],
        "flavours": [
            {"name": f"flavor-{n}", "labels": {"flavor": of}, "topology": f"topology-{n}"} for n, of in numbers
        ],
        "topologies": {f"topology-{n}": [HOSTNAME] for n, _ in numbers},
        "nodes": [_host(f"node-{n}", {"cpu": 4000, "pods": 32}, {"flavor": of}) for n, of in numbers],
    }


def _bookmark(name: str, case: Composite, _: Mapping[str, Any]) -> Json:
    limits = (case.get("nominalPerFlavor"), case.get("cohortSpare"))
    made = _market(name, *limits, case.get("fungibility"), case.get("request"))
    mode, tried = _MODES[word(case.get("wantMode"))], case.get("wantTriedFlavorIdx", 0)
    return made | {
        "usage": {"cq": amounts(case.get("clusterQueueUsage"))},
        "used": _used(case.get("nodeUsage")),
        "foreseen": foreseen(case),
        "assignment": _stopped(mode, tried, placed=bool(case.get("wantPlan", False))),
    }


def _used(value: Any) -> list[Json]:
    return [{"flavour": word(of), **usage(one)} for of, used in entries(value).items() for one in used]


def _stopped(mode: str, tried: int, *, placed: bool) -> Json:
    return {"mode": mode, "pod_sets": {"main": {"flavours": {"cpu": {"tried": tried}}, "placed": placed}}}


def _recompute(name: str, case: Composite, values: Mapping[str, Any]) -> Json:
    """Three cores are nominated on the first node, then another workload takes two of its four."""
    node = {"flavour": "flavor-1", "values": ["node-1"], "request": {"cpu": 2000}, "count": 1}
    later = {"usage": {"cq": amounts(case.get("quotaUsageAtRecompute"))}, "used": [node], "foreseen": foreseen(case)}
    return _market(name, "10", "0", values["fungibility"], "3") | {
        "nominated": _stopped("fit", 0, placed=True),
        "later": later,
        "assignment": _stopped("preempt", case.get("wantRecomputedIdx", 0), placed=False),
    }


#: The supported tables with their readers.
TABLES: Mapping[str, Callable[[str, Any, Mapping[str, Any]], Json]] = {
    "TestWorkloadsTopologyRequests_ErrorBranches": _error_branch,
    "TestWorkloadsTopologyRequests_ElasticJobsValidation": _elastic,
    "TestAssignment_TotalRequestsFor": _total_requests,
    "TestAssignment_ComputeTASNetUsage": _net_usage,
    "TestAssignment_RequiresBorrowing": _borrows,
    "TestWorkloadsTopologyRequests_ZeroCountPodSetSkipped": _zero_count,
    "TestAssignFlavors_LeaderWorkerSetTASFlavor": _leaders,
    "TestFlavorScanRecordsLastTriedFlavorIdx": _bookmark,
    "TestRecomputeRecordsLastTriedFlavorIdx": _recompute,
}
