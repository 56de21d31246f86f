"""Cases of one admission cycle: which workloads are admitted, where, which are preempted and which wait."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from simsched_policies.kubernetes.kueue.cycle import Entry, Outcome, Pending, queue_order, run_cycle
from simsched_policies.kubernetes.kueue.cycle_places import domains_by_flavour
from simsched_policies.kubernetes.kueue.model import BOTH, AdmissionCheck, Asking, Rule, Rules, Topology, Victim
from simsched_policies.kubernetes.kueue.tree import QuotaTree

from tests.conformance.kueue_coverage import gates_of
from tests.conformance.kueue_forms import asking_of, flavour_of, nodes_of, tree_of
from tests.conformance.kueue_topologies import keeps_places, written

Json = Mapping[str, Any]


def reasons_of(victims: Iterable[Victim]) -> dict[str, str]:
    """Return the reasons of victims, in Kueue's words."""
    return {victim.workload.id: victim.reason.value for victim in victims}


def strategies_of(case: Json) -> Sequence[Rule]:
    """Return the fair-sharing rules of a case."""
    return tuple(Rule(name) for name in case.get("strategies", [rule.value for rule in BOTH]))


def cycle(case: Json) -> tuple[object, object]:
    """Run one cycle for the heads of the queues and the workloads due for a second pass."""
    tree, _ = tree_of(case)
    rules = _rules(case)
    _place(case, tree, rules)
    pending = [asking_of(entry, case) for entry in case["pending"]]
    second = [
        _second_pass(entry, case, tree, rules.gates)
        for entry in case.get("admitted", ())
        if entry.get("second_pass", False)
        and (not entry.get("unhealthy_nodes") or rules.gates["TASFailedNodeReplacement"])
    ]
    heads: dict[str, Asking] = {}
    for one in sorted(pending, key=queue_order(rules)):
        heads.setdefault(one.queue, one)
    out = run_cycle(tree, [*(heads[name] for name in sorted(heads) if name in tree.queues), *second], rules)
    got = _outcome(out, pending, failed=case.get("admission_error", False))
    return case["outcome"], {key: got[key] for key in case["outcome"]}


def _rules(case: Json) -> Rules:
    used = {entry["id"]: entry.get("local_queue_usage", 0.0) for entry in case["pending"]}
    by_usage = (lambda asking: used[asking.id]) if case.get("admission_fair_sharing", False) else None
    return Rules(
        case.get("fair_sharing", False),
        strategies_of(case),
        by_usage,
        {one["name"]: flavour_of(one) for one in case["flavours"]} if "flavours" in case else None,
        case.get("namespaces"),
        gates=gates_of(case),
        topologies={name: Topology(name, tuple(levels)) for name, levels in case.get("topologies", {}).items()},
        checks={one["name"]: AdmissionCheck(**one) for one in case.get("checks", ())},
    )


def _place(case: Json, tree: QuotaTree, rules: Rules) -> None:
    """Give the tree the topologies of its flavours, with existing pods."""
    nodes = nodes_of(case)
    on = rules.gates["TopologyAwareScheduling"]
    topologies = domains_by_flavour(rules.flavours or {}, rules.topologies, nodes) if on else {}
    tree.use(topologies, shares_hosts=rules.gates["TASHandleOverlappingFlavors"])


def _second_pass(entry: Json, case: Json, tree: QuotaTree, gates: Mapping[str, bool]) -> Pending:
    held = tree.queues[entry["queue"]].held[entry["id"]]
    failed, keeps = tuple(entry.get("unhealthy_nodes", ())), keeps_places(entry, gates)
    return Pending(asking_of(entry, case), holds=held, failed=failed, keeps=keeps)


def _is_new(entry: Entry) -> bool:
    """Return whether an entry got quota, or places other than it had."""
    held = () if entry.holds is None else entry.holds.assigned
    return [one.places for one in entry.assignment.found] != [one.places for one in held]


def _outcome(out: Outcome, pending: Iterable[Asking], *, failed: bool) -> dict[str, object]:
    admitted = [] if failed else [entry for entry in out.admitted if _is_new(entry)]
    evicted = {entry.asking.id: "NodeFailures" for entry in out.evicted}
    fresh = [victim for entry in out.preempting for victim in entry.victims if not victim.workload.evicted]
    preempted = reasons_of(fresh)
    return {
        "admitted": {
            e.asking.id: sorted({c.flavour for f in e.assignment.found for c in f.flavours.values()}) for e in admitted
        },
        "counts": {e.asking.id: {one.pods.name: one.pods.count for one in e.assignment.found} for e in admitted},
        "places": {
            e.asking.id: {f.pods.name: written(f.places) for f in e.assignment.found if f.places is not None}
            for e in admitted
        },
        "preempted": preempted | evicted,
        "victims": sorted(preempted | evicted),
        "waiting": sorted({one.id for one in pending} - {entry.asking.id for entry in admitted}),
    }
