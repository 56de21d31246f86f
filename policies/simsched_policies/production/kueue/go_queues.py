"""Converts queues, cohorts, flavours and pod sets from the builders of Kueue's tests to the format of our scenarios."""

from __future__ import annotations

from typing import Any

from simsched_policies.production.go_values import Call, Composite
from simsched_policies.production.kueue.go_builders import calls, unread
from simsched_policies.production.kueue.go_objects import (
    Json,
    affinity,
    preferred_terms,
    quantity,
    requests,
    taint,
    terms,
    toleration,
    topology_request,
    word,
    words,
)

#: Kueue's words of rules, and ours.
_RULES = {"Never": "never", "LowerPriority": "lower-priority", "Any": "any",
          "LowerOrNewerEqualPriority": "lower-or-newer-equal-priority"}  # fmt: skip


def cluster_queue(value: Any) -> Json:
    """Return a cluster queue from a builder; it accepts any namespace."""
    made: Json = {"name": "", "quotas": []}
    groups: list[list[str]] = []
    for call in calls(value, "cluster queue"):
        match call.name, call.args:
            case "MakeClusterQueue" | "Name", (name,):
                made["name"] = name
            case "Cohort", (name,):
                made["cohort"] = word(name) or None
            case "ResourceGroup", flavours:
                quotas = [quota for one in flavours for quota in flavour_quotas(one)]
                made["quotas"] += quotas
                groups += [list(dict.fromkeys(quota["resource"] for quota in quotas))] if quotas else []
            case "Preemption", (rules,):
                made |= _preemption(rules)
            case "FlavorFungibility", (rules,):
                made |= fungibility(rules)
            case "FairWeight", (weight,):
                made["weight"] = _weight(weight)
            case "QueueingStrategy", (strategy,):
                made["strict_fifo"] = word(strategy) == "StrictFIFO"
            case "NamespaceSelector", (selector,):
                made["namespaces"] = None if selector is None else _selector(selector)
            case "StopPolicy", (policy,):
                made["stop"] = word(policy).removeprefix("StopPolicy")
            case "AdmissionChecks", names:
                made["checks"] = {word(one): [] for one in names}
            case (("AdmissionCheckStrategy" | "AdmissionChecksStrategy"), rules):
                made["checks"] = dict(map(_check, rules))
            case _:
                raise unread(call)
    return made | ({"groups": groups} if groups else {})


def _check(rule: Any) -> tuple[str, list[str]]:
    """Return an admission check and the flavours that it is for, none for all."""
    if isinstance(rule, Composite):
        return word(rule.get("Name")), [word(one) for one in rule.get("OnFlavors") or ()]
    name, *flavours = (word(given) for call in calls(rule, "check rule") for given in call.args)
    return name, flavours


def fungibility(rules: Composite) -> Json:
    """Return when a flavour search continues, and what it prefers; missing fields have their defaults."""
    made: Json = {
        "borrow_before_next_flavour": word(rules.get("WhenCanBorrow", "MayStopSearch")) != "TryNextFlavor",
        "preempt_before_next_flavour": word(rules.get("WhenCanPreempt", "TryNextFlavor")) != "TryNextFlavor",
    }
    return made | ({"preference": word(rules.get("Preference"))} if rules.get("Preference") is not None else {})


def _preemption(rules: Composite) -> Json:
    def rule(name: str) -> str:
        given = word(rules.get(name, "Never"))
        return _RULES[given.removeprefix("PreemptionPolicy")]

    made: Json = {"within_queue": rule("WithinClusterQueue"), "reclaim": rule("ReclaimWithinCohort")}
    if (borrow := rules.get("BorrowWithinCohort")) is not None:
        made["borrow_preempts_lower_priority"] = word(borrow.get("Policy", "Never")).endswith("LowerPriority")
        if borrow.get("MaxPriorityThreshold") is not None:
            made["borrow_max_priority"] = borrow.get("MaxPriorityThreshold")
    return made


def _selector(value: Composite) -> list[Json]:
    expressions = terms((value,))[0] if value.get("MatchExpressions") else []
    labels = words(value.get("MatchLabels") or {}).items()
    return [*expressions, *({"key": key, "operator": "In", "values": [of]} for key, of in labels)]


def _weight(value: Any) -> float:
    return quantity(value, "cpu") / 1000


def cohort(value: Any) -> Json:
    """Return a cohort of a builder."""
    made: Json = {"name": "", "quotas": []}
    for call in calls(value, "cohort"):
        match call.name, call.args:
            case "MakeCohort", (name,):
                made["name"] = word(name)
            case "Parent", (name,):
                made["parent"] = word(name)
            case "ResourceGroup", flavours:
                made["quotas"] += [quota for one in flavours for quota in flavour_quotas(one)]
            case "FairWeight", (weight,):
                made["weight"] = _weight(weight)
            case _:
                raise unread(call)
    return made


def flavour_quotas(value: Any) -> list[Json]:
    """Return the quotas of a flavour: nominal, and the borrowing and lending limits if given."""
    made: list[Json] = []
    flavour = ""
    keys = {"NominalQuota": "nominal", "BorrowingLimit": "borrowing_limit", "LendingLimit": "lending_limit"}
    for call in calls(value, "flavor quotas"):
        match call.name, call.args:
            case "MakeFlavorQuotas", (name,):
                flavour = word(name)
            case "Resource", (resource, *amounts):
                named = zip(keys.values(), amounts, strict=False)
                limits = {key: quantity(amount, word(resource)) for key, amount in named if amount not in ("", None)}
                made.append({"flavour": flavour, "resource": word(resource), "nominal": 0, **limits})
            case "ResourceQuotaWrapper", (resource,):
                made.append({"flavour": flavour, "resource": word(resource), "nominal": 0})
            case (("NominalQuota" | "BorrowingLimit" | "LendingLimit"), (amount,)):
                made[-1][keys[call.name]] = quantity(amount, made[-1]["resource"])
            case _:
                raise unread(call)
    return made


def flavour(value: Any) -> Json:
    """Return a resource flavour of a builder."""
    made: Json = {"name": "", "labels": {}, "taints": [], "tolerations": []}
    for call in calls(value, "resource flavor"):
        match call.name, call.args:
            case "MakeResourceFlavor", (name,):
                made["name"] = word(name)
            case "NodeLabel", (key, of):
                made["labels"][word(key)] = word(of)
            case "NodeLabels", (labels,):
                made["labels"] |= words(labels)
            case "Taint", (entry,):
                made["taints"].append(taint(entry))
            case "Toleration", (entry,):
                made["tolerations"].append(toleration(entry))
            case "TopologyName", (name,):
                made["topology"] = word(name)
            case ".Name", _:
                pass
            case _:
                raise unread(call)
    return made


def pod_set(value: Any) -> Json:
    """Return a pod set from a builder; requests are per pod."""
    made: Json = {"name": "main", "count": 1, "request": {}}
    for call in calls(value, "pod set"):
        match call.name, call.args:
            case "MakePodSet", (name, count):
                made |= {"name": word(name), "count": count}
            case (("Request" | "Limit" | "RequestAndLimit"), given):
                ask(made, call.name, *given)
            case "PodOverHead", (amounts,):
                _more(made["request"], requests(amounts))
            case "SetMinimumCount", (least,):
                made["min_count"] = least
            case "NodeSelector", (labels,):
                made["selector"] = words(labels)
            case "Affinity", (given,):
                made |= affinity(given)
            case "RequiredDuringSchedulingIgnoredDuringExecution", given:
                made["affinity"] = [term for one in given for term in terms((one,) if _is_term(one) else one)]
            case "PreferredDuringSchedulingIgnoredDuringExecution", (given,):
                made["preferred_affinity"] = preferred_terms(given)
            case "Toleration", (entry,):
                made.setdefault("tolerations", []).append(toleration(entry))
            case "PodSetGroup", (name,):
                made["group"] = word(name)
            case "Containers", containers:
                for one in containers:
                    one = one.args[0] if isinstance(one, Call) and one.name == "..." else one
                    _more(made["request"], requests(_container_requests(one)))
            case (("RequiredTopologyRequest" | "PreferredTopologyRequest"), (level,)):
                kind = call.name.removesuffix("TopologyRequest").lower()
                made["topology"] = {**made.get("topology", {}), kind: word(level)}
            case "UnconstrainedTopologyRequest", ():
                made["topology"] = {**made.get("topology", {}), "unconstrained": True}
            case (("SliceRequiredTopologyRequest" | "PodSetSliceRequiredTopology"), (level,)):
                _slice(made)["level"] = word(level)
            case (("SliceSizeTopologyRequest" | "PodSetSliceSize"), (size,)):
                _slice(made)["size"] = size
            case (("SliceRequiredTopologyConstraints" | "PodsetSliceRequiredTopologyConstraints"), constraints):
                layers = constraints[0] if isinstance(constraints[0], tuple) else constraints
                sizes = [{"level": word(one.get("Topology")), "size": one.get("Size")} for one in layers]
                made["topology"] = {**made.get("topology", {}), "slices": sizes}
            case _:
                raise unread(call)
    return made


def ask(made: Json, method: str, resource: Any, amount: Any) -> None:
    """Add a pod's request of a resource, or its limit, which is the default request."""
    name = word(resource)
    given = quantity(amount, name)
    if method == "Limit":
        made["request"].setdefault(name, given)
    else:
        made["request"][name] = given
    if method != "Request":
        made.setdefault("limits", {})[name] = given


def _more(wanted: dict[str, int], more: dict[str, int]) -> None:
    for resource, amount in more.items():
        wanted[resource] = wanted.get(resource, 0) + amount


def _is_term(value: Any) -> bool:
    return isinstance(value, Composite) and "NodeSelectorTerms" not in value.fields


def _slice(made: Json) -> Json:
    """Return the outermost slice that a pod set asks for, created at first use."""
    asked: Json = made.setdefault("topology", {})
    return asked.setdefault("slices", [{}])[0]  # type: ignore[no-any-return]


def _container_requests(value: Any) -> Any:
    if isinstance(value, Composite):
        return value.get("Resources").get("Requests")
    made: Json = {"request": {}}
    for call in calls(value, "container"):
        match call.name, call.args:
            case "SingleContainerForRequest", (given,):
                return given
            case (("WithResourceReq" | "WithResourceLimit"), given):
                ask(made, call.name.replace("WithResourceReq", "Request").removeprefix("WithResource"), *given)
            case "MakeContainer", _:
                pass
            case _:
                raise unread(call)
    return made["request"]


def pod_set_of_spec(value: Any) -> Json:
    """Return a set of pods, written with a builder or as a struct."""
    if isinstance(value, Call):
        return pod_set(value)
    made: Json = {"name": word(value.get("Name", "main")), "count": value.get("Count", 1), "request": {}}
    if value.get("TopologyRequest") is not None:
        made["topology"] = topology_request(value.get("TopologyRequest"))
    return made


def amounts(value: Any) -> list[Json]:
    """Return amounts by flavour and resource."""
    entries = {} if value is None else value if isinstance(value, dict) else value.fields
    return [
        {"flavour": word(key.get("Flavor")), "resource": word(key.get("Resource")), "amount": number(of)}
        for key, of in entries.items()
    ]


_SIZES: dict[str, int] = {f"{letter}i": 1024**power for power, letter in enumerate("KMGT", start=1)}


def number(value: Any) -> int:
    """Return an integer, written as such, as an amount, or as a product of named sizes."""
    if isinstance(value, int):
        return value
    if isinstance(value, Call) and value.name == "*":
        left, right = value.args
        product: int = number(left) * number(right)
        return product
    if isinstance(value, Call) and value.name == "NewAmount":
        return number(value.args[0])
    if (size := _SIZES.get(word(value))) is not None:
        return size
    raise unread(value)
