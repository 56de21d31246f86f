"""Workloads and their admissions as builders of Kueue's tests make them, in the form of our scenarios."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from simsched_policies.production.go_values import Call, Composite, Name
from simsched_policies.production.kueue.go_objects import Json, assignment, calls, quantity, toleration, unread, word
from simsched_policies.production.kueue.go_queues import pod_set_of_spec

#: When a workload was made that does not say when, in seconds after `now`.
_LONG_AGO = -1e10
#: The annotation that names the workload of which this is another slice, as a constant and as text.
_REPLACES = ("WorkloadSliceReplacementFor", "workload-slice-replacement-for")
#: What is said about a workload that has no part in a cycle.
_NO_MATTER = {
    *("UID", "JobUID", "ResourceVersion", "Finalizers", "Generation", "Label", "Labels", "MaximumExecutionTimeSeconds"),
    *(
        "OwnerReference",
        "ControllerReference",
        "Active",
        "Admitted",
        "RuntimeClass",
        "AdmittedAt",
        "PastAdmittedTime",
        "ClusterName",
    ),
    *("SchedulingStatsEviction", "RequeueState", "PriorityClass", "PriorityClassRef", "WorkloadPriorityClassRef"),
    *("PodPriorityClassRef", "PriorityClassSource", "Clone", "PodsReady", "NominatedClusterNames"),
}


def seconds(value: Any) -> float:
    """Return a time of a test in seconds after its `now`."""
    if isinstance(value, int | float):
        return value
    if isinstance(value, Call) and value.name in ("Add", "-"):
        base = 0.0 if value.receiver is None else seconds(value.receiver)
        return base + (-1 if value.name == "-" else 1) * seconds(value.args[0])
    if isinstance(value, Call) and value.name in ("NewTime", "Time", "To", "new"):
        return seconds(value.args[0])
    if isinstance(value, Call) and value.name in ("Now", "Truncate", "Date", "Unix"):
        return 0.0
    if isinstance(value, Name | Composite) or value is None:
        return 0.0
    raise unread(value)


def workload(value: Any, local: Mapping[str, str], *, after: bool = False) -> Json:
    """Return a workload; one with an admission says what it `holds`. One that is switched off is in no queue.

    Only part of how it is `after` a test is compared, so that unknown words do not matter.
    """
    made: Json = {"id": "", "queue": "", "pod_sets": [{"name": "main", "count": 1, "request": {}}]}
    made["created_s"] = _LONG_AGO
    ready, unhealthy, pending_places, finished = True, list[str](), False, dict[str, int]()
    updates: list[Composite] = []
    for call in calls(value):
        first = made["pod_sets"][0]
        match call.name, call.args:
            case "MakeWorkload", (name, namespace):
                made["id"] = f"{word(namespace)}/{word(name)}"
            case "MakeWorkloadWithGeneratedUID", (name, namespace, *_):
                made["id"] = f"{word(namespace)}/{word(name)}"
            case "Name", (name,):
                made["id"] = f"{made['id'].partition('/')[0]}/{word(name)}"
            case "Queue", (name,):
                made["local_queue"] = word(name)
                namespace = made["id"].partition("/")[0]
                made["queue"] = local.get(f"{namespace}/{word(name)}", "")
            case "Active", (False,):
                local = {}
                made["queue"] = ""
            case "Priority", (priority,):
                made["priority"] = priority
            case "Creation", (time,):
                made["created_s"] = seconds(time)
            case "PodSets", sets:
                made["pod_sets"] = [pod_set_of_spec(one) for one in sets]
            case "Request", (resource, amount):
                first["request"][word(resource)] = quantity(amount, word(resource))
            case "Limit", (resource, amount):
                first.setdefault("limits", {})[word(resource)] = quantity(amount, word(resource))
            case (("PreemptionGate" | "PreemptionGates"), _):
                made["preemption_gated"] = True
            case "ReclaimablePods", done:
                finished |= {word(one.get("Name")): one.get("Count") for one in done}
            case "Toleration", (entry,):
                first.setdefault("tolerations", []).append(toleration(entry))
            case "NodeSelector", (labels,):
                first["selector"] = {word(key): word(of) for key, of in labels.items()}
            case (("ReserveQuota" | "ReserveQuotaAt" | "Admission"), (admitted, *times)):
                if admitted is not None:
                    made["queue"], made["holds"], pending_places = admission(admitted)
                    made["admitted_s"] = seconds(times[0]) if times else 0.0
            case "SimpleReserveQuota", (queue, flavour_name, time):
                held = dict.fromkeys(first["request"], word(flavour_name))
                made["queue"], made["admitted_s"] = word(queue), seconds(time)
                made["holds"] = [{**first, "request": dict(first["request"]), "flavours": held}]
            case (("Annotation" | "Annotations"), given):
                pairs = given[0].items() if isinstance(given[0], Mapping) else [given]
                unhealthy += [word(node) for key, node in pairs if word(key).endswith("NodeToReplaceAnnotation")]
                old = [word(of) for key, of in pairs if word(key).endswith(_REPLACES)]
                made |= {"replaces": old[0]} if old else {}
            case "UnhealthyNodes", names:
                unhealthy += [word(one.get("Name")) if isinstance(one, Composite) else word(one) for one in names]
            case (("AdmissionCheck" | "AdmissionChecks"), states):
                ready &= all(word(one.get("State")).removeprefix("CheckState") == "Ready" for one in states)
                updates += [update for one in states for update in one.get("PodSetUpdates") or ()]
            case (("Condition" | "Conditions" | "SetOrReplaceCondition"), conditions):
                made["evicted"] = made.get("evicted", False) or any(_is_eviction(one) for one in conditions)
            case (("Evicted" | "EvictedAt"), _):
                made["evicted"] = True
            case _ if after or call.name in _NO_MATTER:
                pass
            case _:
                raise unread(call)
    for update in updates:
        _update(made["pod_sets"], update)
    for one in (*made["pod_sets"], *made.get("holds", ())):
        if one["name"] in finished and one.get("places") is not None:
            raise unread(Call("ReclaimablePods", None, (finished,)))
        one["count"] -= finished.get(one["name"], 0)
    if "holds" in made and (unhealthy or (pending_places and ready)):
        made |= {"second_pass": True, "unhealthy_nodes": unhealthy}
    return made


def _update(pod_sets: Iterable[Json], update: Composite) -> None:
    """Add to a set of pods where an admission check lets it run."""
    for one in pod_sets:
        if one["name"] == word(update.get("Name")):
            labels = {word(key): word(of) for key, of in (update.get("NodeSelector") or {}).items()}
            tolerations = [toleration(given) for given in update.get("Tolerations") or ()]
            one["selector"] = {**one.get("selector", {}), **labels}
            one["tolerations"] = [*one.get("tolerations", ()), *tolerations]


def _is_eviction(condition: Any) -> bool:
    return (
        isinstance(condition, Composite)
        and word(condition.get("Type", "")) in ("WorkloadEvicted", "Evicted")
        and word(condition.get("Status", "")) in ("True", "ConditionTrue")
    )


def admission(value: Any) -> tuple[str, list[Json], bool]:
    """Return the queue of an admission, what each set of pods holds, and whether one still lacks its places."""
    queue, sets, postponed = "", list[Json](), False
    for call in calls(value):
        match call.name, call.args:
            case "MakeAdmission", (name, *names):
                queue, sets = word(name), [{"name": word(one), "count": 1} for one in names]
            case "PodSets", given:
                found = [_assigned(calls(one)) for one in given]
                sets, postponed = [one for one, _ in found], any(late for _, late in found)
            case _:
                one, late = _assigned([call], sets[0] if sets else {"name": "main", "count": 1})
                sets, postponed = [one, *sets[1:]], postponed or late
    for one in sets:
        totals = one.pop("totals", {})
        one["request"] = {resource: amount // max(one["count"], 1) for resource, amount in totals.items()}
    return queue, sets, postponed


def _assigned(chain: Iterable[Call], made: Json | None = None) -> tuple[Json, bool]:
    made, late = made or {"name": "main", "count": 1}, False
    flavours, totals = made.setdefault("flavours", {}), made.setdefault("totals", {})
    for call in chain:
        match call.name, call.args:
            case "MakePodSetAssignment", (name,):
                made["name"] = word(name)
            case "Assignment", (resource, flavour_name, amount):
                flavours[word(resource)] = word(flavour_name)
                totals[word(resource)] = quantity(amount, word(resource))
            case "Flavor", (resource, flavour_name):
                flavours[word(resource)] = word(flavour_name)
            case "ResourceUsage", (resource, amount):
                totals[word(resource)] = quantity(amount, word(resource))
            case (("Count" | "AssignmentPodCount"), (count,)):
                made["count"] = count
            case "TopologyAssignment", (places,):
                made["places"] = None if places is None else assignment(places)
            case "DelayedTopologyRequest", (state,):
                late = word(state).endswith("Pending")
            case _:
                raise unread(call)
    return made, late
