"""Which scenarios of quota the model covers: a rule for every part of a case, none for a case by its name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Json = Mapping[str, Any]

#: Keys that tell the kind of a case.
KINDS = ("available", "shares", "candidates", "actions", "victims", "outcome")

_CASE = {
    *("name", "queues", "cohorts", "admitted", "usage", "usage_of", "available", "potentially_available", "shares"),
    *("added", "candidates", "order", "actions", "preemptor_queue", "candidate_queues", "incoming", "victims"),
    *("fair_sharing", "strategies", "admission_fair_sharing", "pending", "outcome"),
}
_QUEUE = {
    *("name", "cohort", "quotas", "weight", "within_queue", "reclaim", "borrow_preempts_lower_priority"),
    *("borrow_max_priority", "strict_fifo", "borrow_before_next_flavour", "preempt_before_next_flavour"),
}
_WORKLOAD = {
    *("id", "queue", "usage", "priority", "created_s", "admitted_s", "evicted", "local_queue_usage", "request"),
    *("assigned", "pod_sets", "local_queue"),
}
#: What each part of a case may say.
_KNOWN: Mapping[str, set[str]] = {
    "case": _CASE,
    "queue": _QUEUE,
    "cohort": {"name", "parent", "quotas", "weight"},
    "workload": _WORKLOAD,
    "quota": {"flavour", "resource", "nominal", "borrowing_limit", "lending_limit"},
    "outcome": {"admitted", "preempted", "waiting"},
}
_VALUES: Mapping[str, set[str]] = {
    "within_queue": {"never", "lower-priority", "lower-or-newer-equal-priority"},
    "reclaim": {"never", "lower-priority", "any"},
}
_NOT_MODELLED: Mapping[str, str] = {
    "topology": "places below a flavour are chosen by the placer, not by quota",
    "devices": "devices that are claimed one by one are no amounts",
    "admission_checks": "admission has one phase",
    "partial_admission": "a gang is admitted whole",
    "concurrent_changes": "nothing changes while a cycle runs",
    "multi_cluster": "there is one cluster",
    "stopped": "queues are not put on hold",
    "node_labels": "flavours are not bound to labels of nodes",
    "gates": "features are not switched",
}


def left_out(case: Json) -> str:
    """Return the rule by which a case is not covered, empty if it is."""
    return next(_reasons(case), "")


def _reasons(case: Json) -> Iterator[str]:
    if not any(kind in case for kind in KINDS):
        yield f"the case expects none of what the model answers: {', '.join(KINDS)}"
    for part, entry in _parts(case):
        for key in sorted(set(entry) - _KNOWN[part]):
            yield _NOT_MODELLED.get(key, f"the model has no '{key}' of a {part}")
        for key, values in _VALUES.items():
            if key in entry and part == "queue" and entry[key] not in values:
                yield f"the model has no '{key}' of '{entry[key]}'"
        if part == "workload" and entry.get("pod_sets", 1) != 1:
            yield "a workload has one set of pods"


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
    if "incoming" in case:
        yield "workload", case["incoming"]
    if "outcome" in case:
        yield "outcome", case["outcome"]
