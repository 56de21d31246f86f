"""Objects of Kubernetes as the builders of Kueue's tests make them, in the form of our scenarios."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from simsched.errors import input_error
from simsched.manifests import quantity as parsed
from simsched_policies.production.go_values import Call, Composite, Name

Json = dict[str, Any]

#: What names of Kubernetes' packages stand for, where that is not the end of the name.
KNOWN: Mapping[str, Any] = {
    "corev1.ResourceCPU": "cpu",
    "corev1.ResourceMemory": "memory",
    "corev1.ResourcePods": "pods",
    "corev1.ResourceEphemeralStorage": "ephemeral-storage",
    "corev1.LabelHostname": "kubernetes.io/hostname",
    "kueue.DefaultPodSetName": "main",
    "time.Second": 1,
    "time.Minute": 60,
    "time.Hour": 3600,
    "time.Millisecond": 0.001,
}
#: Names of the variable that holds a test's table.
_TABLE = ("cases", "testCases", "testcases", "tests", "tc")
_EXPRESSION = {"key": "Key", "operator": "Operator", "values": "Values"}
_LAYERS = "PodsetSliceRequiredTopologyConstraints"
_PREFIXES = ("TaintEffect", "TolerationOp", "NodeSelectorOp", "LabelSelectorOp", "Pod", "Condition")
#: Steps of a chain that change nothing: an end, a copy, the object inside a builder.
_SAME = {"Obj", "Clone", "DeepCopy", ".Workload", ".Cohort", ".ClusterQueue", ".ResourceFlavor", ".Topology", ".Node"}


def word(value: Any) -> str:
    """Return the text that a value stands for: a string, a converted string, or a constant by the end of its name."""
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


def unread(value: Any) -> Exception:
    """Return the error of a value of Go that has no place in our form."""
    return input_error("Go table", f"{str(value)[:200]} is not understood", "write the case in the JSON form")


def quantity(text: Any, resource: str) -> int:
    """Return a quantity of Kubernetes as a whole number: thousandths of a core, bytes, pods, devices."""
    if isinstance(text, Call) and text.name in ("MustParse", "NewQuantity", "NewMilliQuantity"):
        if text.name == "MustParse":
            return quantity(text.args[0], resource)
        return int(text.args[0]) * (1000 if resource == "cpu" and text.name == "NewQuantity" else 1)
    return math.ceil(parsed(str(text)) * (1000 if resource == "cpu" else 1))


def requests(value: Any) -> dict[str, int]:
    """Return amounts by resource of a list of resources, whose numbers are in base units or quantities."""
    if isinstance(value, Call) and len(value.args) == 1:
        return requests(value.args[0])
    entries = value if isinstance(value, Mapping) else value.fields if isinstance(value, Composite) else {}
    return {
        (name := word(key)): amount if isinstance(amount, int) else quantity(amount, name)
        for key, amount in entries.items()
    }


def calls(value: Any) -> list[Call]:
    """Return the calls of a builder, without those that change nothing."""
    if not isinstance(value, Call):
        raise unread(value)
    return [call for call in value.chain() if call.name not in _SAME]


def table_of(values: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the entries of a test's table with their names; those of a list have theirs in a field, or a number."""
    table = next((values[name] for name in _TABLE if values.get(name)), ())
    if isinstance(table, Mapping):
        return list(table.items())
    given = enumerate(table, start=1) if isinstance(table, tuple) else ()
    return [(str((isinstance(one, Composite) and one.get("name")) or number), one) for number, one in given]


def fields_of(values: Mapping[str, Any]) -> set[str]:
    """Return the fields that any entry of a test's table sets; an entry without one says nothing of it."""
    return {key for _, one in table_of(values) if isinstance(one, Composite) for key in one.fields}


def node(value: Any) -> Json:
    """Return a node; one that is not ready or closed to new pods says so."""
    made: Json = {"name": "", "labels": {}, "allocatable": {}, "taints": [], "ready": False}
    for call in calls(value):
        match call.name, call.args:
            case "MakeNode" | "Name", (name,):
                made["name"] = name
            case "Clone" | "Obj", _:
                pass
            case "Label", (key, of):
                made["labels"][word(key)] = word(of)
            case "StatusAllocatable", (amounts,):
                made["allocatable"] |= requests(amounts)
            case "Ready", ():
                made["ready"] = True
            case "NotReady", ():
                made["ready"] = False
            case "StatusConditions", conditions:
                for one in conditions:
                    healthy = word(one.get("Type")) == "NodeReady"
                    made["ready"] = (made["ready"] or healthy) and (word(one.get("Status")) == "True") is healthy
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


def terms(value: Any) -> list[list[Json]]:
    """Return terms of a node selector, each a list of expressions; they are alternatives."""
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
    """Return what a set of pods asks of the topology; slices are listed from the outermost."""
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
    """Return where pods are placed: the levels, and by domain the count; None for none."""
    if isinstance(value, Call) and value.name in ("V1Beta2From", "InternalFrom"):
        return assignment(value.args[0])
    if isinstance(value, Call) and value.name == ".TopologyAssignment":
        return assignment(value.receiver)
    if value is None:
        return None
    if isinstance(value, Composite):
        return {
            "levels": list(value.get("Levels", ())),
            "domains": [domain(one) for one in value.get("Domains", ())],
        }
    chain = calls(value)
    if chain[0].name != "MakeTopologyAssignment":
        raise unread(value)
    domains = [domain(one) for call in chain[1:] for one in call.args]
    given = chain[0].args[0]
    return {"levels": [] if isinstance(given, Call) else [word(level) for level in given], "domains": domains}


def domain(value: Composite | Call) -> Json:
    """Return one domain of an assignment."""
    if isinstance(value, Call):
        values, count = value.chain()[0].args[:2]
        return {"values": [word(v) for v in values], "count": count}
    return {"values": [word(v) for v in value.get("Values")], "count": value.get("Count")}
