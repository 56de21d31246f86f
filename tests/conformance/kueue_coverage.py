"""Which scenarios of quota the model covers: rules for the parts of a case, never for a case by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from simsched_policies.kubernetes.kueue.gates import gates
from simsched_policies.kubernetes.kueue.model import Preference, Stop

from simsched.errors import InputError

Json = Mapping[str, Any]

#: Keys that determine the kind of a case.
KINDS = ("available", "shares", "candidates", "actions", "victims", "outcome", "placement", "assignment", "compared",
         "balanced", "counted", "borrows")  # fmt: skip

_CASE = {
    *("name", "queues", "cohorts", "admitted", "usage", "usage_of", "available", "potentially_available", "shares"),
    *("added", "candidates", "order", "actions", "preemptor_queue", "candidate_queues", "incoming", "victims"),
    *("fair_sharing", "strategies", "admission_fair_sharing", "pending", "outcome", "gates", "flavours"),
    *("namespaces", "limit_ranges", "admission_error", "levels", "flavour_labels", "flavour_tolerations", "nodes"),
    *("pods", "used", "used_by_others", "pod_sets", "assigned", "unhealthy_nodes", "owners", "is_pod_group"),
    *("placement", "asking", "topologies", "foreseen", "replaced", "assignment", "compared", "preference"),
    *("first_preferred", "checks", "balanced", "domains", "wanted_slices", "slice_size", "leader", "threshold"),
    "entropy",
    *("nominated", "later", "held", "now", "counted", "borrowing_level", "borrows"),
}
_QUEUE = {
    *("name", "cohort", "quotas", "weight", "within_queue", "reclaim", "borrow_preempts_lower_priority"),
    *("borrow_max_priority", "strict_fifo", "borrow_before_next_flavour", "preempt_before_next_flavour"),
    *("preference", "groups", "namespaces", "stop", "checks"),
}
_WORKLOAD = {
    *("id", "queue", "usage", "priority", "created_s", "admitted_s", "evicted", "local_queue_usage", "request"),
    *("assigned", "pod_sets", "local_queue", "namespace", "admission_checks", "replaces", "preemption_gated"),
    *("flavours", "holds", "second_pass", "unhealthy_nodes", "elastic", "owners"),
    "is_pod_group",
}
_POD_SET = {
    *("name", "count", "min_count", "request", "limits", "selector", "affinity", "tolerations", "group"),
    *("topology", "preferred_affinity", "previous"),
}
#: The keys that each part of a case may have.
_KNOWN: Mapping[str, set[str]] = {
    "case": _CASE,
    "queue": _QUEUE,
    "cohort": {"name", "parent", "quotas", "weight"},
    "workload": _WORKLOAD,
    "quota": {"flavour", "resource", "nominal", "borrowing_limit", "lending_limit"},
    "holds": {"name", "count", "request", "flavours", "places"},
    "outcome": {"admitted", "preempted", "waiting", "counts", "places", "victims"},
    "pod set": _POD_SET,
    "flavour": {"name", "labels", "taints", "tolerations", "topology"},
    "topology": {"required", "preferred", "unconstrained", "slices"},
    "domain": {"id", "pods", "slices", "pods_led", "slices_led", "leaders", "values", "children"},
    "balanced": {"fits", "needed", "chosen", "dealt", "leader_in", "threshold"},
    "node": {"name", "labels", "allocatable", "taints", "ready", "schedulable"},
}
_VALUES: Mapping[str, set[str]] = {
    "within_queue": {"never", "lower-priority", "lower-or-newer-equal-priority"},
    "reclaim": {"never", "lower-priority", "any"},
    "preference": {one.value for one in Preference},
    "stop": {one.value for one in Stop},
}
_NOT_MODELLED: Mapping[str, str] = {
    "topology": "a case of quota has no places below a flavour",
    "devices": "devices that are claimed one by one are no amounts",
    "partial_admission": "the case does not say how many pods each set has and needs",
    "concurrent_changes": "nothing changes while a cycle runs",
    "multi_cluster": "there is one cluster",
    "stopped": "the case does not say which queue is stopped",
    "node_labels": "the case does not say which flavours have which labels",
    "x_objects": "the case does not say which further objects there are",
    "x_Limit": "the case does not say which limits the pods have",
}
#: Words in the name of a case, or of a flavour that its pending workloads could get, with the key that must then be
#: given, and what is unknown without it.
_SPOKEN_OF: Mapping[str, tuple[str, str]] = {
    "taint": ("flavours", "which flavours have which taints"),
    "tolerat": ("flavours", "which flavours have which taints"),
    "affinity": ("flavours", "which flavours have which labels"),
    "nonexistent flavor": ("flavours", "which flavours exist"),
    "selector": ("namespaces", "which labels namespaces have, and which of them queues take"),
}


def left_out(case: Json) -> str:
    """Return the rule that excludes a case, empty if the case is covered."""
    return next(_reasons(case), "")


def _reasons(case: Json) -> Iterator[str]:
    if not any(kind in case for kind in KINDS):
        yield f"the case expects none of what the model answers: {', '.join(KINDS)}"
    for part, entry in _parts(case):
        for key in sorted(set(entry) - _KNOWN[part]):
            why = f": {_NOT_MODELLED[key]}" if key in _NOT_MODELLED else ""
            yield f"the model has no '{key}' of a {part}{why}"
        for key, values in _VALUES.items():
            if key in entry and part == "queue" and entry[key] not in values:
                yield f"the model has no '{key}' of '{entry[key]}'"
        if part == "workload" and "usage" not in entry and isinstance(n := entry.get("pod_sets", 1), int) and n != 1:
            yield "the case does not say what each set of pods requests"
    yield from _of_gates(case)
    yield from _unsaid(case)


def _unsaid(case: Json) -> Iterator[str]:
    """Yield what a case of a cycle mentions only by name."""
    if "outcome" not in case:
        return
    asked = {workload.get("queue") for workload in case.get("pending", [])}
    quotas = (quota for queue in case.get("queues", []) if queue["name"] in asked for quota in queue.get("quotas", []))
    names = {str(case.get("name", "")), *(str(quota["flavour"]) for quota in quotas)}
    spoken = " ".join(sorted(names)).lower().replace("-", " ")
    for word, (key, what) in _SPOKEN_OF.items():
        if word in spoken and key not in case:
            yield f"the case does not say {what} ('{key}')"


def _of_gates(case: Json) -> Iterator[str]:
    try:
        switched = gates_of(case)
    except InputError as error:
        yield str(error)
        return
    held = {one["id"] for one in case.get("admitted", []) if any("places" in part for part in one.get("holds", ()))}
    if switched["ElasticJobsViaWorkloadSlicesWithTAS"] and held & {w.get("replaces") for w in case.get("pending", ())}:
        yield "another slice of a workload that has places is not placed in a cycle"
    gated = any("preemption_gated" in workload for workload in case.get("pending", []))
    if switched["MultiKueueOrchestratedPreemption"] and not gated:
        yield "the case does not say which workload has a closed gate of preemption"


#: Fixed gates that may have either state in a single cycle: the gate of shared hosts is modelled there, and the others
#: matter only before or after a cycle.
_OF_RUNS = frozenset(
    {
        *("FlavorFungibilityPreserveScanProgress", "TASHandleOverlappingFlavors", "WorkloadPriorityClassDefaulting"),
        *("TASReplaceNodeDueToNotReadyOverFixedTime", "TASReplaceNodeOnNodeTaints", "TASReplaceNodeOnPodTermination"),
    }
)


def gates_of(case: Json) -> Mapping[str, bool]:
    """Return the gates of a case; raises `InputError` for those that are not modelled."""
    given = {name.removeprefix("features."): on for name, on in case.get("gates", {}).items()}
    return {**gates({name: on for name, on in given.items() if name not in _OF_RUNS}, "gates"), **given}


def _parts(case: Json) -> Iterator[tuple[str, Json]]:
    """Yield every described object of a case, with the name of its kind."""
    yield "case", case
    for queue in case.get("queues", []):
        yield "queue", queue
        yield from (("quota", quota) for quota in queue.get("quotas", []))
    for cohort in case.get("cohorts", []):
        yield "cohort", cohort
        yield from (("quota", quota) for quota in cohort.get("quotas", []))
    for key in ("admitted", "candidates", "pending"):
        yield from (("workload", workload) for workload in case.get(key, []))
        yield from (("pod set", pods) for workload in case.get(key, []) for pods in _sets(workload))
        yield from (("holds", one) for workload in case.get(key, []) for one in workload.get("holds", []))
    yield from (("holds", one) for key in ("held", "now") for one in case.get(key, []))
    yield from (("flavour", flavour) for flavour in case.get("flavours", []))
    yield from (("node", node) for node in case.get("nodes", []))
    for pods in case.get("pod_sets", []):
        yield "pod set", pods
        yield "topology", pods.get("topology") or {}
    for key in ("incoming", "asking"):
        if key in case:
            yield "workload", case[key]
            yield from (("pod set", pods) for pods in _sets(case[key]))
    yield from (("domain", one) for one in case.get("domains", []))
    yield from ((part, case[part]) for part in ("outcome", "balanced") if part in case)


def _sets(workload: Json) -> list[Json]:
    sets = workload.get("pod_sets")
    return sets if isinstance(sets, list) else []
