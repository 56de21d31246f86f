"""Cases of flavour assignment in our format: the expected and the found flavours of a workload."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from simsched_policies.kubernetes.kueue.assign import Assignment, Attempt, Found, Grade, assign, preferred
from simsched_policies.kubernetes.kueue.cycle import Entry
from simsched_policies.kubernetes.kueue.cycle_places import domains_by_flavour, settled
from simsched_policies.kubernetes.kueue.model import (
    Asking,
    Assigned,
    FlavourResource,
    Mode,
    Preference,
    ResourceFlavor,
    Rules,
    Topology,
    Workload,
)
from simsched_policies.kubernetes.kueue.reasons import Unfit
from simsched_policies.kubernetes.kueue.topology import PODS, Domains
from simsched_policies.kubernetes.kueue.tree import QuotaTree

from tests.conformance.kueue_coverage import gates_of
from tests.conformance.kueue_forms import amounts_of, asking_of, assigned_of, flavour_of, nodes_of, tree_of

Json = Mapping[str, Any]
#: Grades by the words for their victims.
GRADES = {
    "no-fit": Grade.NO_FIT,
    "nobody": Grade.NO_CANDIDATES,
    "own": Grade.OWN,
    "borrowers": Grade.BORROWERS,
    "fits": Grade.FIT,
}


def assigned(case: Json) -> tuple[object, object]:
    """Return the expected and the found assignment of a workload; only expected values are compared.

    With `later`, the assignment is `nominated` first, then searched again for its flavours after the later changes.
    """
    tree, _ = tree_of(case)
    flavours = {one["name"]: flavour_of(one) for one in case["flavours"]} if "flavours" in case else None
    tree.use(_domains(case, flavours or {}))
    first = _found(case, tree, flavours, case)
    if "later" not in case:
        return _compared(case["assignment"], first)
    pairs = [
        _compared(case["nominated"], first),
        _compared(case["assignment"], _found(case, tree, flavours, case["later"], within=first)),
    ]
    return [wanted for wanted, _ in pairs], [got for _, got in pairs]


def _domains(case: Json, flavours: Mapping[str, ResourceFlavor]) -> dict[str, Domains]:
    topologies = {name: Topology(name, tuple(levels)) for name, levels in case.get("topologies", {}).items()}
    return domains_by_flavour(flavours, topologies, nodes_of(case))


def _found(
    case: Json,
    tree: QuotaTree,
    flavours: Mapping[str, ResourceFlavor] | None,
    state: Json,
    within: Assignment | None = None,
) -> Assignment:
    """Return the assignment and places of a case's workload, after the tree counts what `state` adds."""
    for name, entries in state.get("usage", {}).items():
        tree.add(name, amounts_of(entries))
    for one in state.get("used", ()):
        places = ((tuple(one["values"]), one["count"]),)
        tree.place(Assigned("used", one["count"], {}, {"": one["flavour"]}, places, one["request"]))
    node = tree.queues[case["asking"].get("queue") or case["queues"][0]["name"]]
    foreseen = {(e["flavour"], e["resource"]): (GRADES[e["whom"]], e["level"]) for e in state.get("foreseen", ())}

    def oracle(key: FlavourResource, _: int) -> tuple[Grade, int]:
        return foreseen.get(key, (Grade.OWN, 0))

    gates, fair = gates_of(case), case.get("fair_sharing", False)
    topologies = {name: Topology(name, tuple(levels)) for name, levels in case.get("topologies", {}).items()}
    rules = Rules(fair, flavours=flavours, gates=gates, topologies=topologies)
    old = tuple(Assigned(one["name"], 1, one["requests"], one["flavours"]) for one in case.get("replaced", ()))
    replaced = Workload("old", node.name, assigned=old) if old else None
    asking = asking_of({**case["asking"], "queue": node.name}, case)
    found = assign(node, asking, rules, oracle, within=within, replaced=replaced)
    if found.grade.mode is not Mode.NO_FIT:
        found, _ = settled(found, tree.topologies, gates, flavours)
    return found


def _compared(expected: Json, found: Assignment) -> tuple[object, object]:
    usage = [{"flavour": f, "resource": r, "amount": n} for (f, r), n in found.usage.items() if n]
    sets = {one.pods.name: _written(one, found.grade) for one in found.found}
    kinds = {name: one["kind"] for part in sets.values() for name, one in part["attempts"].items()}
    got: dict[str, object] = {
        "mode": found.grade.mode.value,
        "level": found.level,
        "reason": "" if found.grade.mode is not Mode.NO_FIT else _worst(_kinds(found.found)),
        "usage": sorted(usage, key=str),
    }
    wanted = {**expected, **({"usage": sorted(expected["usage"], key=str)} if "usage" in expected else {})}
    if "kinds" in wanted:
        both = kinds.keys() & wanted["kinds"].keys()
        got["kinds"] = {name: kinds[name] for name in both}
        wanted["kinds"] = {name: wanted["kinds"][name] for name in both}
    if "pod_sets" in wanted:
        got["pod_sets"] = {name: _cut(part, wanted["pod_sets"].get(name)) for name, part in sets.items()}
        wanted["pod_sets"] = {name: _flexible(part, sets.get(name)) for name, part in wanted["pod_sets"].items()}
    return wanted, {key: got[key] for key in wanted}


_NO_MATCH = "NoMatchingFlavor"
#: Kueue's short names of reasons, and all of them from bad to worse.
_KIND = {
    Unfit.ABOVE_MOST: "ExceedsMaxQuota",
    Unfit.WAITS: "WaitingForQuota",
    Unfit.NOT_PROVIDED: "",
    Unfit.NO_PLACE: "TopologyPlacementFailed",
}
_BADNESS = ("", _NO_MATCH, "ExceedsMaxQuota", "TopologyPlacementFailed", "WaitingForQuota")


def _kind(one: Attempt) -> str:
    return _KIND.get(one.why[0].unfit, _NO_MATCH)


def _worst(groups: Iterable[Sequence[str]]) -> str:
    """Return the short name for a workload: the worst, over resource groups, of the mildest reason in each."""
    mildest = [max(kinds, key=_BADNESS.index) for kinds in groups if kinds]
    return min(mildest, key=_BADNESS.index, default="")


def _kinds(found: Iterable[Found]) -> list[tuple[str, ...]]:
    """List, for each pod set and resource group without a flavour, why each of its flavours was rejected."""
    return [
        tuple(
            _KIND.get(attempt.why[0].unfit, _NO_MATCH)
            for attempt in one.attempts
            if attempt.grade is Grade.NO_FIT and attempt.why
        )
        for one in found
        if (one.requests and not one.flavours) or _has_no_place(one)
    ]


def _has_no_place(one: Found) -> bool:
    return any(why.unfit is Unfit.NO_PLACE for attempt in one.attempts for why in attempt.why)


def _written(one: Found, grade: Grade) -> dict[str, Any]:
    flavours = {
        r: {"flavour": c.flavour, "mode": c.grade.mode.value, "tried": c.tried} for r, c in one.flavours.items()
    }
    failed = any(not attempt.flavour for attempt in one.attempts)
    fits = flavours and not failed and all(c.grade is Grade.FIT for c in one.flavours.values())
    attempts = {attempt.flavour: _attempt(attempt) for attempt in one.attempts if attempt.flavour}
    reasons = {why.text(attempt.flavour) for attempt in one.attempts for why in attempt.why}
    return {
        "count": one.pods.count,
        "requests": dict(one.requests),
        "flavours": flavours,
        "reasons": [] if fits else sorted(reasons),
        "attempts": attempts,
        "placed": grade is Grade.FIT and bool(one.places),
    }


def _attempt(one: Attempt) -> dict[str, Any]:
    kind = _kind(one) if one.grade is Grade.NO_FIT and one.why else ""
    reasons = sorted(why.text(one.flavour) for why in one.why)
    return {"mode": one.grade.mode.value, "level": one.level, "reasons": reasons, "kind": kind}


def _cut(found: dict[str, Any], wanted: Json | None) -> dict[str, Any]:
    """Return what was found for a pod set, limited to what is expected."""
    if wanted is None:
        return found
    made = {key: found[key] for key in found if key in wanted and (key != "attempts" or wanted[key])}
    for resource, want in wanted.get("flavours", {}).items():
        if resource in made.get("flavours", {}):
            made["flavours"][resource] = {key: made["flavours"][resource][key] for key in want}
    if "attempts" in made and not _has_fit(found):
        made["attempts"] = {name: one for name, one in made["attempts"].items() if name in wanted["attempts"]}
    return made


def _flexible(wanted: Json, found: Json | None) -> Json:
    """Return what is expected; if a flavour fits, limited to the flavours that were tried."""
    if found is None or not wanted.get("attempts"):
        return {key: wanted[key] for key in wanted if key != "attempts"}
    if not _has_fit(found):
        return wanted
    return {**wanted, "attempts": {name: one for name, one in wanted["attempts"].items() if name in found["attempts"]}}


def _has_fit(found: Json) -> bool:
    return any(one["mode"] == "fit" for one in found["attempts"].values())


def preference(case: Json) -> tuple[object, object]:
    """Return whether the first of two flavours should be preferred, and whether it is."""
    rule = Preference(case["preference"])
    first, second = (preferred(GRADES[one["grade"]], one["level"], rule) for one in case["compared"])
    return case["first_preferred"], first > second


def borrowing(case: Json) -> tuple[object, object]:
    """Return whether a workload that borrows at a level should need quota of others, and whether it does."""
    entry = Entry(Asking("wl", "", ()), Assignment((), {}, Grade.FIT, case["borrowing_level"]))
    return case["borrows"], entry.borrows


def counted(case: Json) -> tuple[object, object]:
    """Return the expected and the found additional usage of pods in their topology, over what they `held`."""
    domains = _domains(case, {one["name"]: flavour_of(one) for one in case["flavours"]})
    tree = QuotaTree([], [])
    tree.use(domains)
    held, now = ([assigned_of(one) for one in case[key]] for key in ("held", "now"))
    for one in held:
        tree.place(one)
    before = _used(domains)
    for one in held:
        tree.place(one, -1)
    for one in now:
        tree.place(one)
    wanted = Counter(
        {
            (one["flavour"], tuple(one["values"]), resource): amount * one["count"]
            for one in case["counted"]
            for resource, amount in {**one["request"], PODS: 1}.items()
        }
    )
    return wanted, _used(domains) - before


def _used(domains: Mapping[str, Domains]) -> Counter[tuple[str, tuple[str, ...], str]]:
    """Return usage by flavour, leaf values and resource."""
    return Counter(
        {
            (name, tree.values(leaf), resource): int(amount)
            for name, tree in domains.items()
            for resource, used in tree.used.items()
            for leaf, amount in enumerate(used)
        }
    )
