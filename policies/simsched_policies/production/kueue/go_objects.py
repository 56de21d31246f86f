"""Converts Kubernetes objects from the builders of Kueue's tests to the format of our scenarios."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from simsched.manifests import quantity as parsed
from simsched_policies.production.go_values import Call, Composite, Name
from simsched_policies.production.kueue.go_builders import calls, unread

Json = dict[str, Any]

#: The values of names in Kubernetes packages, unless they equal the end of the name.
KNOWN: Mapping[str, Any] = {
    "corev1.ResourceCPU": "cpu",
    "corev1.ResourceMemory": "memory",
    "corev1.ResourcePods": "pods",
    "corev1.ResourceEphemeralStorage": "ephemeral-storage",
    "corev1.LabelHostname": "kubernetes.io/hostname",
    "kueue.DefaultPodSetName": "main",
    "tasBlockLabel": "cloud.com/topology-block",
    "tasRackLabel": "cloud.com/topology-rack",
    "tasHostLabel": "kubernetes.io/hostname",
    **{
        f"{package}.Default{of}TopologyLevel": f"cloud.com/topology-{of.lower()}"
        for package in ("utiltesting", "utiltestingapi")
        for of in ("Block", "Rack")
    },
    "time.Second": 1,
    "time.Minute": 60,
    "time.Hour": 3600,
    "time.Millisecond": 0.001,
}
#: Names of variables that hold a test's table.
_TABLE = ("cases", "testCases", "testcases", "tests", "tc")
_EXPRESSION = {"key": "Key", "operator": "Operator", "values": "Values"}
_LAYERS = "PodsetSliceRequiredTopologyConstraints"
_PREFIXES = ("TaintEffect", "TolerationOp", "NodeSelectorOp", "LabelSelectorOp", "Pod", "Condition")


def word(value: Any) -> str:
    """Return the text of a value: a string, a converted string, or a constant by the end of its name."""
    if isinstance(value, str):
        return value
    if isinstance(value, Name):
        end = value.text.rpartition(".")[2]
        return next((end[len(p) :] for p in _PREFIXES if end.startswith(p) and len(end) > len(p)), end)
    if isinstance(value, Call) and len(value.args) == 1:
        return word(value.args[0])
    if isinstance(value, Call) and value.name == "NewReference":
        return "/".join(map(word, value.args))
    if isinstance(value, Call) and value.name == ".Name" and isinstance(value.receiver, Call):
        return word(value.receiver.chain()[0].args[0])
    raise unread(value)


def quantity(text: Any, resource: str) -> int:
    """Return a Kubernetes quantity as an integer: thousandths of a core, bytes, pods, devices."""
    if isinstance(text, Call) and text.name in ("MustParse", "NewQuantity", "NewMilliQuantity"):
        if text.name == "MustParse":
            return quantity(text.args[0], resource)
        return int(text.args[0]) * (1000 if resource == "cpu" and text.name == "NewQuantity" else 1)
    return math.ceil(parsed(str(text)) * (1000 if resource == "cpu" else 1))


def words(value: Mapping[Any, Any]) -> dict[str, str]:
    """Return labels, a selector or annotations with keys and values as text."""
    return {word(key): word(of) for key, of in value.items()}


def requests(value: Any) -> dict[str, int]:
    """Return amounts by resource of a resource list, whose numbers are quantities or in base units."""
    if isinstance(value, Call) and len(value.args) == 1:
        return requests(value.args[0])
    entries = value if isinstance(value, Mapping) else value.fields if isinstance(value, Composite) else {}
    return {
        (name := word(key)): amount if isinstance(amount, int) else quantity(amount, name)
        for key, amount in entries.items()
    }


def table_of(values: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the entries of a test's table with their names; in a list, the name is a field or an index."""
    table = next((values[name] for name in _TABLE if values.get(name)), ())
    if isinstance(table, Mapping):
        return list(table.items())
    given = enumerate(table, start=1) if isinstance(table, tuple) else ()
    return [(str((isinstance(one, Composite) and one.get("name")) or number), one) for number, one in given]


def fields_of(values: Mapping[str, Any]) -> set[str]:
    """Return the fields set by any entry of a test's table; other entries leave them at their default."""
    return {key for _, one in table_of(values) if isinstance(one, Composite) for key in one.fields}


def node(value: Any) -> Json:
    """Return a node; it is marked if it is not ready or closed to new pods."""
    made: Json = {"name": "", "labels": {}, "allocatable": {}, "taints": [], "ready": False}
    for call in calls(value, "node"):
        match call.name, call.args:
            case "MakeNode" | "Name", (name,):
                made["name"] = name
            case "Label", (key, of):
                made["labels"][word(key)] = word(of)
            case "Labels", (labels,):
                made["labels"] |= words(labels)
            case "StatusAllocatable", (amounts,):
                made["allocatable"] |= requests(amounts)
            case "Ready", ():
                made["ready"] = True
            case "NotReady", ():
                made["ready"] = False
            case "StatusConditions", conditions:
                for one in conditions:
                    if word(one.get("Type")) in ("NodeReady", "Ready"):
                        made["ready"] = word(one.get("Status")) == "True"
            case "Unschedulable", ():
                made["schedulable"] = False
            case "Taints", taints:
                made["taints"] += [taint(entry) for entry in taints]
            case _:
                raise unread(call)
    return made


def taint(value: Composite) -> Json:
    """Return a taint."""
    return {
        "key": word(value.get("Key", "")),
        "value": word(value.get("Value", "")),
        "effect": word(value.get("Effect", "")),
    }


def toleration(value: Composite) -> Json:
    """Return a toleration: key (empty: all), operator, value, effect (empty: all)."""
    given = {"key": "Key", "operator": "Operator", "value": "Value", "effect": "Effect"}
    return {ours: word(value.get(theirs)) for ours, theirs in given.items() if value.get(theirs) is not None}


def affinity(value: Composite | None) -> Json:
    """Return what pods require and prefer of nodes: nothing, or alternative terms and weighted ones."""
    if value is None:
        return {}
    if set(value.fields) & {"PodAffinity", "PodAntiAffinity"}:
        raise unread(value)
    value = value.get("NodeAffinity", value)
    required = value.get("RequiredDuringSchedulingIgnoredDuringExecution")
    preferred = value.get("PreferredDuringSchedulingIgnoredDuringExecution")
    return {"affinity": None if required is None else terms(required), "preferred_affinity": preferred_terms(preferred)}


def terms(value: Any) -> list[list[Json]]:
    """Return the alternative terms of a node selector, each a list of expressions."""
    if isinstance(value, Call):
        return [[_flat(call.args)] for call in value.chain() if call.name == "Term"]
    if isinstance(value, Composite):
        return terms(value.get("NodeSelectorTerms"))
    if isinstance(value, tuple):
        return [_expressions(entry) for entry in value]
    raise unread(value)


def preferred_terms(value: Any) -> list[Json]:
    """Return preferences of nodes, each with its weight and expressions."""
    if isinstance(value, Call):
        chain = [call.args for call in value.chain() if call.name == "Term"]
        return [{"weight": weight, "term": [_flat(rest)]} for weight, *rest in chain]
    return [{"weight": one.get("Weight"), "term": _expressions(one.get("Preference"))} for one in value or ()]


def _expressions(value: Composite) -> list[Json]:
    given = ({ours: one.get(theirs) for ours, theirs in _EXPRESSION.items()} for one in value.get("MatchExpressions"))
    return [_flat((one["key"], one["operator"], *(one["values"] or ()))) for one in given]


def _flat(args: Sequence[Any]) -> Json:
    return {"key": word(args[0]), "operator": word(args[1]), "values": [word(of) for of in args[2:]]}


def topology_request(value: Composite | None) -> Json | None:
    """Return the topology request of a pod set; slices are listed from the outermost."""
    if value is None:
        return None
    asked: Json = {}
    slices = [{"level": one.get("Topology"), "size": one.get("Size")} for one in value.get(_LAYERS) or ()]
    for key, of in value.fields.items():
        match key:
            case "Required" | "Preferred":
                asked[key.lower()] = word(of)
            case "Unconstrained":
                asked["unconstrained"] = bool(of)
            case "PodSetSliceRequiredTopology":
                size = value.get("PodSetSliceSize")
                slices.insert(0, {"level": word(of)} if size is None else {"level": word(of), "size": size})
            case (
                "PodSetSliceSize"
                | "PodIndexLabel"
                | "SubGroupIndexLabel"
                | "SubGroupCount"
                | "PodsetSliceRequiredTopologyConstraints"
            ):
                pass
            case _:
                raise unread(value)
    return asked | ({"slices": slices} if slices else {})


def assignment(value: Any) -> Json | None:
    """Return where pods are placed: the levels, and the count by domain; None for none."""
    if isinstance(value, Call) and value.name in ("V1Beta2From", "InternalFrom"):
        return assignment(value.args[0])
    if isinstance(value, Call) and value.name == ".TopologyAssignment":
        return assignment(value.receiver)
    if value is None:
        return None
    if isinstance(value, Composite):
        return {"levels": list(value.get("Levels", ())), "domains": [domain(one) for one in value.get("Domains", ())]}
    made: Json = {"levels": [], "domains": []}
    for call in calls(value, "topology assignment"):
        match call.name, call.args:
            case "MakeTopologyAssignment" | "Levels", levels:
                given = levels[0] if len(levels) == 1 else levels
                made["levels"] = [word(level) for level in given] if isinstance(given, tuple) else []
            case "Domain" | "Domains", domains:
                made["domains"] += [domain(one) for each in domains for one in _each(each)]
    return made


def _each(value: Any) -> tuple[Any, ...]:
    """Return the items of a list, or a single item as a list."""
    return value if isinstance(value, tuple) else (value,)


def domain(value: Composite | Call) -> Json:
    """Return one domain of an assignment."""
    if isinstance(value, Composite):
        return {"values": [word(v) for v in value.get("Values")], "count": value.get("Count")}
    made: Json = {"values": [], "count": 1}
    for call in calls(value, "domain"):
        match call.name, call.args:
            case "MakeTopologyDomainAssignment", (values, count):
                made |= {"values": [word(v) for v in values], "count": count}
            case "Count", (count,):
                made["count"] = count
            case "Values", values:
                made["values"] = [word(v) for each in values for v in _each(each)]
            case _:
                raise unread(call)
    return made
