"""Reads the tables of Kueue's tests of a scheduling cycle with topologies as cases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from simsched_policies.production.go_values import Call, Composite, Name
from simsched_policies.production.kueue.go_builders import calls, unread
from simsched_policies.production.kueue.go_objects import Json, fields_of, node, quantity, word
from simsched_policies.production.kueue.go_queues import cluster_queue, cohort, flavour
from simsched_policies.production.kueue.go_topology import pod
from simsched_policies.production.kueue.go_workloads import admission, workload

#: Default levels of the topologies that builders make.
_DEFAULT_LEVELS = {
    "MakeDefaultOneLevelTopology": ["kubernetes.io/hostname"],
    "MakeDefaultTwoLevelTopology": ["cloud.com/topology-block", "cloud.com/topology-rack"],
    "MakeDefaultThreeLevelTopology": ["cloud.com/topology-block", "cloud.com/topology-rack", "kubernetes.io/hostname"],
}
#: Names of the fields that list what exists and what is expected.
_QUEUES = ("clusterQueues", "additionalClusterQueues", "cqs")
#: What a test may create or set outside its table, by name prefixes of builders, functions and types.
BUILT = ("MakeLocalQueue", "MakeNamespace", "SetFeatureGateDuringTest", "SetFeatureGatesDuringTest", "FairSharing")
_LOCAL = ("queues", "localQueues", "additionalLocalQueues", "additionalQueues", "allQueues")
_FLAVOURS = ("resourceFlavors", "additionalResourceFlavors", "flavors")
_LISTED = {
    *(*_QUEUES, *_LOCAL, *_FLAVOURS, "topologies", "workloads", "nodes", "pods", "cohorts", "admissionChecks"),
    *("objects", "featureGates", "enableFeatures", "enableFairSharing", "fairSharing", "admissionError"),
    *("disablePartialAdmission", "name"),
}
_NEW = ("wantNewAssignments", "wantAssignments", "wantScheduled")


def case_of(name: str, case: Composite, values: Mapping[str, Any]) -> Json:
    """Return one case of one cycle; raises `InputError` for a value that our format cannot express."""
    for key, given in case.fields.items():
        if key not in _LISTED and given and not str(key).startswith(("want", "eventCmp", "cmp")):
            raise unread(Call(str(key), None, (given,)))
    structs = (one for key in _LOCAL for one in _items(values.get(key)) if isinstance(one, Composite))
    local = dict(map(local_queue, (*structs, *built(values, "MakeLocalQueue"), *_listed(case.fields, *_LOCAL))))
    queues = _named(cluster_queue(one) for one in _listed(values, *_QUEUES) + _listed(case.fields, *_QUEUES))
    workloads = [workload(one, local) for one in case.get("workloads") or ()]
    made: Json = {
        "name": name,
        "gates": gates_of_case(case, values),
        "nodes": [node(one) for one in case.get("nodes") or ()],
        "pods": [found for one in case.get("pods") or () if (found := pod(one)) is not None],
        "topologies": dict(topology(one) for one in case.get("topologies") or ()),
        "flavours": _named(flavour(one) for one in _listed(values, *_FLAVOURS) + _listed(case.fields, *_FLAVOURS)),
        "queues": queues,
        "cohorts": [cohort(one) for one in case.get("cohorts") or ()],
        "checks": [admission_check(one) for one in case.get("admissionChecks") or ()],
        "admitted": [one for one in workloads if "holds" in one],
        "pending": [one for one in workloads if "holds" not in one and one["queue"] in {q["name"] for q in queues}],
        "limit_ranges": [limit_range(one) for one in case.get("objects") or ()],
    }
    if (namespaces := built(values, "MakeNamespace")) or not any("namespaces" in one for one in queues):
        made["namespaces"] = dict(map(namespace_of, namespaces))
    if case.get("admissionError") is not None:
        made["admission_error"] = True
    if case.get("disablePartialAdmission"):
        made["gates"]["PartialAdmission"] = False
    if (fair := case.get("fairSharing") or _fair_sharing_of_test(case, values)) or case.get("enableFairSharing"):
        made["fair_sharing"] = True
        if isinstance(fair, Composite) and fair.get("PreemptionStrategies"):
            made["strategies"] = [word(one) for one in fair.get("PreemptionStrategies")]
    return made | {"outcome": outcome(case, made, fields_of(values))}


def gates_of_case(case: Composite, values: Mapping[str, Any]) -> dict[str, bool]:
    """Return the gates that a case or its test sets, without those that depend on a loop or a case."""
    switched = [one.args[1:] for one in built(values, "SetFeatureGateDuringTest")]
    told = [given for one in built(values, "SetFeatureGatesDuringTest") for given in one.args[1:]]
    several = [values.get(given.text) if isinstance(given, Name) else given for given in told]
    pairs = [*switched, *(pair for gates in several if isinstance(gates, Mapping) for pair in gates.items())]
    of_test = {word(gate): on for gate, on in pairs if isinstance(gate, Name) and isinstance(on, bool)}
    of_case = {word(gate): on for key in ("featureGates", "enableFeatures") for gate, on in _gates(case.get(key))}
    return of_test | of_case


def built(values: Mapping[str, Any], maker: str) -> list[Call]:
    """Return what the body of a test creates with a builder or a function, by the prefix of its name."""
    made = (one for one in values.get("built", ()) if isinstance(one, Call))
    return [one for one in made if one.chain()[0].name.startswith(maker)]


def _fair_sharing_of_test(case: Composite, values: Mapping[str, Any]) -> Composite | None:
    """Return the fair-sharing configuration in the body of a test, for cases that do not set it."""
    if fields_of(values) & {"enableFairSharing", "fairSharing"}:
        return None
    return next((one for one in values.get("built", ()) if isinstance(one, Composite)), None)


def _listed(fields: Mapping[str, Any], *names: str) -> tuple[Any, ...]:
    return tuple(one for name in names for one in fields.get(name) or ())


def _items(given: Any) -> tuple[Any, ...]:
    return given if isinstance(given, tuple) else ()


def _named(made: Iterable[Json]) -> list[Json]:
    """Return objects, the last of each name."""
    return list({one["name"]: one for one in made}.values())


def _gates(value: Any) -> Iterable[tuple[Any, bool]]:
    if isinstance(value, Mapping):
        return list(value.items())
    return [(gate, True) for gate in value or ()]


def topology(value: Any) -> tuple[str, list[str]]:
    """Return the name and the levels of a topology."""
    name, levels = "", list[str]()
    for call in calls(value, "topology"):
        match call.name, call.args:
            case made, (of,) if made in _DEFAULT_LEVELS:
                name, levels = word(of), _DEFAULT_LEVELS[made]
            case "MakeTopology", (of,):
                name = word(of)
            case "Levels", labels:
                given = (one for label in labels for one in (label if isinstance(label, tuple) else (label,)))
                levels = [word(one.get("NodeLabel") if isinstance(one, Composite) else one) for one in given]
            case _:
                raise unread(call)
    return name, levels


def local_queue(value: Any) -> tuple[str, str]:
    """Return a local queue, by namespace and name, with its cluster queue; none if it is stopped."""
    key, queue, stopped = "", "", False
    for call in calls(value, "local queue"):
        match call.name, call.args:
            case "MakeLocalQueue", (name, namespace):
                key = f"{word(namespace)}/{word(name)}"
            case "ClusterQueue", (name,):
                queue = word(name)
            case "StopPolicy", (policy,):
                stopped = word(policy).removeprefix("StopPolicy") != "None"
            case _:
                raise unread(call)
    return key, "" if stopped else queue


def namespace_of(value: Any) -> tuple[str, Json]:
    """Return the name and the labels of a namespace."""
    name, labels = "", dict[str, str]()
    for call in calls(value, "namespace"):
        match call.name, call.args:
            case (("MakeNamespace" | "MakeNamespaceWrapper"), (of,)):
                name = word(of)
            case "Label", (key, of):
                labels[word(key)] = word(of)
            case _:
                raise unread(call)
    return name, labels


def limit_range(value: Any) -> Json:
    """Return the bounds that a namespace sets on the requests of a container."""
    made: Json = {"namespace": ""}
    for call in calls(value, "limit range"):
        match call.name, call.args:
            case "MakeLimitRange", (_, namespace):
                made["namespace"] = word(namespace)
            case "WithValue", (("Min" | "Max") as bound, resource, amount):
                made.setdefault(bound.lower(), {})[word(resource)] = quantity(amount, word(resource))
            case "WithType", (kind,) if word(kind).endswith("Container"):
                pass
            case _:
                raise unread(call)
    return made


def admission_check(value: Any) -> Json:
    """Return an admission check; one of provisioning requests provisions nodes first."""
    made: Json = {"name": ""}
    for call in calls(value, "admission check"):
        match call.name, call.args:
            case "MakeAdmissionCheck", (name,):
                made["name"] = word(name)
            case "ControllerName", (controller,):
                made["provisions"] = "rovision" in word(controller)
            case "Active", (state,):
                made["active"] = word(state) in ("True", "ConditionTrue")
            case "Condition", (given,) if word(given.get("Type")).removeprefix("AdmissionCheck") == "Active":
                made["active"] = word(given.get("Status")).removeprefix("Condition") == "True"
            case _:
                raise unread(call)
    return made


def outcome(case: Composite, made: Json, fields: set[str]) -> Json:
    """Return what is expected of the cycle: which workloads are newly admitted and where, which leave, which wait.

    `fields` are those that any case of the table has: expectations that this case lacks are empty.
    """
    known = {one["id"]: one for one in (*made["admitted"], *made["pending"])}
    new = next((case.get(key) for key in _NEW if case.get(key) is not None), None)
    expected: Json = {}
    wanted = [workload(one, {}, after=True) for one in case.get("wantWorkloads") or ()]
    if new is not None:
        given = {word(key): admission(value)[1] for key, value in new.items()}
        found = {name: sets for name, sets in given.items() if _changed({"holds": sets}, known.get(name, {}))}
    elif wanted:
        found = {
            one["id"]: one["holds"] for one in wanted if "holds" in one and _changed(one, known.get(one["id"], {}))
        }
    else:
        found = {}
    expected["admitted"] = {
        name: sorted({f for one in sets for f in one["flavours"].values()}) for name, sets in found.items()
    }
    expected["counts"] = {name: {one["name"]: one["count"] for one in sets} for name, sets in found.items()}
    expected["places"] = {
        name: {one["name"]: _places(one["places"]) for one in sets if one.get("places") is not None}
        for name, sets in found.items()
    }
    if "wantPreempted" in fields:
        expected["victims"] = sorted(word(one) for one in _members(case.get("wantPreempted") or ()))
    elif wanted:
        gone = [one["id"] for one in wanted if one.get("evicted") and not known.get(one["id"], {}).get("evicted")]
        expected["victims"] = sorted(gone)
    elif case.get("wantEvents") is not None:
        expected["victims"] = sorted({one for event in case.get("wantEvents") for one in _evicted(event)})
    if fields & {"wantLeft", "wantInadmissibleLeft"}:
        left = (*_left(case.get("wantLeft")), *_left(case.get("wantInadmissibleLeft")))
        pending = {one["id"] for one in made["pending"]}
        expected["waiting"] = sorted(set(left) & pending)
    return expected


def _evicted(event: Any) -> list[str]:
    """Return the workload that an event reports as evicted, if any."""
    for call in event.chain() if isinstance(event, Call) else ():
        if call.name == "MakeEventRecord":
            namespace, name, reason, *_ = map(word, call.args)
            return [f"{namespace}/{name}"] if reason == "Preempted" or reason.startswith("EvictedDueTo") else []
    if isinstance(event, Composite) and isinstance(key := event.get("Key"), Composite):
        evicted = word(event.get("Reason", "")) == "Preempted" or word(event.get("Reason", "")).startswith(
            "EvictedDueTo"
        )
        return [f"{word(key.get('Namespace'))}/{word(key.get('Name'))}"] if evicted else []
    raise unread(event)


def _changed(after: Json, before: Json) -> bool:
    """Return whether a workload got quota or other places; one that waits for places keeps its old ones meanwhile."""
    lies, lay = ([one["places"] and _places(one["places"]) for one in _holds(of)] for of in (after, before))
    return not after.get("evicted") and ("holds" not in before or lies != lay)


def _holds(one: Json) -> list[Json]:
    return [{"places": None, **part} for part in one.get("holds", ())]


def _places(one: Json) -> list[tuple[list[str], int]]:
    return [(part["values"], part["count"]) for part in one["domains"]]


def _left(value: Any) -> list[str]:
    return [word(one) for names in (value or {}).values() for one in _members(names)]


def _members(value: Any) -> tuple[Any, ...]:
    if isinstance(value, Call):
        return value.args
    return value if isinstance(value, tuple) else tuple(value.fields if isinstance(value, Composite) else value)
