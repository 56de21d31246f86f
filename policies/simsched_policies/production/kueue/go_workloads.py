"""Converts workloads and their admissions from the builders of Kueue's tests to the format of our scenarios."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from simsched_policies.production.go_values import Call, Composite, Name
from simsched_policies.production.kueue.go_builders import calls, known_calls, unread
from simsched_policies.production.kueue.go_objects import Json, assignment, quantity, toleration, word, words
from simsched_policies.production.kueue.go_queues import ask, pod_set_of_spec

#: The default creation time of a workload, in seconds after `now`.
_LONG_AGO = -1e10
#: Suffixes of annotation keys, as constants and as text: the workload that this slice replaces, the failed node, the
#: closed gates of admission, whether there may be other slices, and whether it is a group of pods.
_REPLACES = ("WorkloadSliceReplacementFor", "workload-slice-replacement-for")
_FAILED = ("NodeToReplaceAnnotation", "node-to-replace")
_GATED = ("AdmissionGatedByAnnotation", "AdmissionGatedBy", "admission-gated-by")
_ELASTIC = ("workloadslicing.EnabledAnnotationKey", "elastic-job")
_POD_GROUP = ("IsGroupWorkloadAnnotationKey", "is-group-workload")
#: Evictions that move a workload to the end of its queue. Source: Kueue, queue timestamps.
_MOVING = ("PodsReadyTimeout", "AdmissionCheck")


def seconds(value: Any) -> float:
    """Return a time of a test in seconds after its `now`."""
    if isinstance(value, int | float):
        return value
    if isinstance(value, Call) and value.name in ("Add", "-"):
        base = 0.0 if value.receiver is None else seconds(value.receiver)
        return base + (-1 if value.name == "-" else 1) * seconds(value.args[0])
    if isinstance(value, Call) and value.name in ("NewTime", "Time", "To", "new"):
        return seconds(value.args[0])
    if isinstance(value, Call) and value.name in ("Truncate", "Round", "UTC", "Local") and value.receiver is not None:
        return seconds(value.receiver)
    if isinstance(value, Call) and value.name in ("Now", "Date", "Unix"):
        return 0.0
    if isinstance(value, Name | Composite) or value is None:
        return 0.0
    raise unread(value)


def workload(value: Any, local: Mapping[str, str], *, after: bool = False) -> Json:
    """Return a workload, with what it `holds` if it has an admission. A workload that may not be queued is in no queue.

    `after` a test only part of its state is compared, so unknown words do not matter.
    """
    reader = _Workload(local)
    for call in known_calls(value, "workload") if after else calls(value, "workload"):
        reader.read(call)
    return reader.made_of()


class _Workload:
    """The state of a workload after the calls of a builder so far."""

    def __init__(self, local: Mapping[str, str]) -> None:
        self.local = local
        self.made: Json = {"id": "", "queue": "", "created_s": _LONG_AGO}
        self.pod_sets: list[Json] = [{"name": "main", "count": 1, "request": {}}]
        self.queued, self.finished, self.late = True, False, False
        self.states: list[str] = []
        self.unhealthy: list[str] = []
        self.done: dict[str, int] = {}
        self.updates: list[Composite] = []

    def read(self, call: Call) -> None:
        """Apply one call."""
        made, first = self.made, self.pod_sets[0]
        match call.name, call.args:
            case (("MakeWorkload" | "MakeWorkloadWithGeneratedUID"), (name, namespace, *_)):
                made["id"] = f"{word(namespace)}/{word(name)}"
            case "Name", (name,):
                made["id"] = f"{made['id'].partition('/')[0]}/{word(name)}"
            case "Queue", (name,):
                made["local_queue"] = word(name)
                made["queue"] = self.local.get(f"{made['id'].partition('/')[0]}/{word(name)}", "")
            case "Active", (active,):
                self.queued &= bool(active)
            case "Priority", (priority,):
                made["priority"] = priority
            case "Creation", (time,):
                made["created_s"] = seconds(time)
            case "PodSets", sets:
                self.pod_sets = [pod_set_of_spec(one) for one in sets]
            case (("Request" | "Limit" | "RequestAndLimit"), given):
                ask(first, call.name, *given)
            case (("PreemptionGate" | "PreemptionGates"), _):
                made["preemption_gated"] = True
            case "ReclaimablePods", done:
                self.done |= {word(one.get("Name")): one.get("Count") for one in done}
            case "Toleration", (entry,):
                first.setdefault("tolerations", []).append(toleration(entry))
            case "NodeSelector", (labels,):
                first["selector"] = words(labels)
            case (("Annotation" | "Annotations"), given):
                self._annotated(given[0] if isinstance(given[0], Mapping) else dict([given]))
            case "OwnerReference" | "ControllerReference", (kind, *_):
                owner = kind.args[0] if isinstance(kind, Call) else kind.get("Kind")
                made.setdefault("owners", []).append(word(owner))
            case _:
                self._read_status(call)

    def _read_status(self, call: Call) -> None:
        made = self.made
        match call.name, call.args:
            case (("ReserveQuota" | "ReserveQuotaAt" | "Admission"), (admitted, *times)):
                if admitted is not None:
                    made["queue"], made["holds"], self.late = admission(admitted)
                    made["admitted_s"] = seconds(times[0]) if times else 0.0
            case "SimpleReserveQuota", (queue, flavour_name, time):
                first = self.pod_sets[0]
                held = dict.fromkeys(first["request"], word(flavour_name))
                made["queue"], made["admitted_s"] = word(queue), seconds(time)
                made["holds"] = [{**first, "request": dict(first["request"]), "flavours": held}]
            case "QuotaReservedTime", (time,):
                made["admitted_s"] = seconds(time)
            case "UnhealthyNodes", names:
                self.unhealthy += [word(one.get("Name")) if isinstance(one, Composite) else word(one) for one in names]
            case (("AdmissionCheck" | "AdmissionChecks"), states):
                self.states += [word(one.get("State", "Pending")).removeprefix("CheckState") for one in states]
                self.updates += [update for one in states for update in one.get("PodSetUpdates") or ()]
            case (("Condition" | "Conditions" | "SetOrReplaceCondition"), conditions):
                for one in conditions:
                    self._condition(one)
            case (("Evicted" | "EvictedAt"), _):
                made["evicted"] = True
            case (("Finished" | "FinishedAt"), _):
                self.finished = True
            case "RequeueState", (_, at):
                self.queued &= at is None or seconds(at) <= 0
            case _:
                raise unread(call)

    def _annotated(self, given: Mapping[Any, Any]) -> None:
        for key, of in given.items():
            name = word(key)
            if name.endswith(_FAILED):
                self.unhealthy.append(word(of))
            elif name.endswith(_REPLACES):
                self.made["replaces"] = word(of)
            elif name.endswith(_GATED):
                self.queued &= not word(of)
            elif (key.text if isinstance(key, Name) else name).endswith(_ELASTIC):
                self.made["elastic"] = True
            elif name.endswith(_POD_GROUP):
                self.made["is_pod_group"] = True

    def _condition(self, one: Any) -> None:
        if not isinstance(one, Composite):
            raise unread(one)
        kind, on = word(one.get("Type", "")).removeprefix("Workload"), word(one.get("Status", "")) in _TRUE
        if kind == "Evicted" and on:
            self.made["evicted"] = True
            if word(one.get("Reason", "")).endswith(_MOVING) and one.get("LastTransitionTime") is not None:
                self.made["created_s"] = seconds(one.get("LastTransitionTime"))
        elif kind == "Requeued":
            self.queued &= on
        elif kind == "Finished":
            self.finished |= on

    def made_of(self) -> Json:
        """Return the workload that all calls describe."""
        made = {**self.made, "pod_sets": self.pod_sets}
        for update in self.updates:
            _update(self.pod_sets, update)
        for one in (*self.pod_sets, *made.get("holds", ())):
            if one["name"] in self.done and one.get("places") is not None:
                raise unread(Call("ReclaimablePods", None, (self.done,)))
            one["count"] -= self.done.get(one["name"], 0)
        if self.finished:
            made.pop("holds", None)
        if "holds" not in made:
            if not self.queued or self.finished:
                made["queue"] = ""
            if {"Retry", "Rejected"} & set(self.states):
                made["admission_checks"] = False
        elif self.queued and (self.unhealthy or (self.late and {*self.states} <= {"Ready"})):
            made |= {"second_pass": True, "unhealthy_nodes": self.unhealthy}
        return made


#: Values of the status of a condition.
_TRUE = ("True", "ConditionTrue")


def _update(pod_sets: Iterable[Json], update: Composite) -> None:
    """Add to a pod set the nodes on which an admission check lets it run."""
    for one in pod_sets:
        if one["name"] == word(update.get("Name")):
            labels = words(update.get("NodeSelector") or {})
            tolerations = [toleration(given) for given in update.get("Tolerations") or ()]
            one["selector"] = {**one.get("selector", {}), **labels}
            one["tolerations"] = [*one.get("tolerations", ()), *tolerations]


def admission(value: Any) -> tuple[str, list[Json], bool]:
    """Return the queue of an admission, what each pod set holds, and whether one still lacks its places."""
    queue, sets = "", list[Json]()
    given = _as_calls(value) if isinstance(value, Composite) else calls(value, "admission")
    for call in given:
        match call.name, call.args:
            case "MakeAdmission", (name, *names):
                queue, sets = word(name), [{"name": word(one), "count": 1} for one in names or ("main",)]
            case "PodSets", assignments:
                sets = [_assigned(_steps(one)) for one in assignments]
            case name, (int() as number, *rest) if name.endswith("WithIndex"):
                sets[number] = _assigned([Call(name.removesuffix("WithIndex"), None, tuple(rest))], sets[number])
            case _:
                sets[0] = _assigned([call], sets[0])
    late = [one.pop("late", False) for one in sets]
    for one in sets:
        one.setdefault("flavours", {})
        totals = one.pop("totals", {})
        one["request"] = {resource: amount // max(one["count"], 1) for resource, amount in totals.items()}
    return queue, sets, any(late)


def _as_calls(value: Composite) -> list[Call]:
    """Return the equivalent builder calls for an admission written as a struct."""
    return [
        Call("MakeAdmission", None, (value.get("ClusterQueue", ""),)),
        Call("PodSets", None, tuple(value.get("PodSetAssignments") or ())),
    ]


def _steps(value: Any) -> list[Call]:
    """Return the calls that build what a pod set holds, from a builder or a struct."""
    if not isinstance(value, Composite):
        return calls(value, "assignment of a pod set")
    maps = [("Flavor", value.get("Flavors")), ("ResourceUsage", value.get("ResourceUsage"))]
    return [
        Call("MakePodSetAssignment", None, (value.get("Name", "main"),)),
        *(Call(name, None, (resource, of)) for name, given in maps for resource, of in _entries(given)),
        Call("Count", None, (value.get("Count", 1),)),
        Call("TopologyAssignment", None, (value.get("TopologyAssignment"),)),
        Call("DelayedTopologyRequest", None, (value.get("DelayedTopologyRequest", ""),)),
    ]


def _entries(given: Any) -> Iterable[tuple[Any, Any]]:
    fields = given.fields if isinstance(given, Composite) else given
    return (fields or {}).items()


def _assigned(chain: Iterable[Call], made: Json | None = None) -> Json:
    made = made or {"name": "main", "count": 1}
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
                made["late"] = word(state).endswith("Pending")
            case _:
                raise unread(call)
    return made
