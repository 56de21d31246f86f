"""Kueue's own scenarios for one resource group: what is available, the shares, the order, and who is preempted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from simsched_policies.kueue.candidates import in_order
from simsched_policies.kueue.classical import classical_victims
from simsched_policies.kueue.fair import BOTH, Rule, Tournament, fair_victims
from simsched_policies.kueue.model import ClusterQueue, Cohort, Incoming, Quota, Reclaim, Within, Workload
from simsched_policies.kueue.share import dominant_share
from simsched_policies.kueue.tree import QuotaTree

FOLDER = Path(__file__).resolve().parents[1] / "data" / "kueue"


def load(name: str) -> dict[str, Any]:
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def each(name: str) -> Any:
    cases = load(name)["cases"]
    return pytest.mark.parametrize("case", cases, ids=[case["name"] for case in cases])


def quotas(entries: list[dict[str, Any]]) -> dict[tuple[str, str], Quota]:
    return {
        (q["flavour"], q["resource"]): Quota(q["nominal"], q.get("borrowing_limit"), q.get("lending_limit"))
        for q in entries
    }


def queue(entry: dict[str, Any]) -> ClusterQueue:
    return ClusterQueue(
        entry["name"],
        entry.get("cohort"),
        quotas(entry["quotas"]),
        entry.get("weight", 1.0),
        Within(entry.get("within_queue", "never")),
        Reclaim(entry.get("reclaim", "never")),
        entry.get("borrow_preempts_lower_priority", False),
        entry.get("borrow_max_priority"),
    )


def amounts(entries: list[dict[str, Any]]) -> dict[tuple[str, str], int]:
    total: dict[tuple[str, str], int] = {}
    for entry in entries:
        key = (entry["flavour"], entry["resource"])
        total[key] = total.get(key, 0) + entry["amount"]
    return total


def workload(entry: dict[str, Any], usage: str = "usage") -> Workload:
    return Workload(
        entry["id"],
        entry.get("queue", ""),
        amounts(entry.get(usage, [])),
        entry.get("priority", 0),
        entry.get("created_s", 0),
        entry.get("admitted_s", 0),
        entry.get("evicted", False),
        entry.get("local_queue_usage", 0.0),
    )


def build(case: dict[str, Any], default: list[dict[str, Any]] | None = None) -> tuple[QuotaTree, list[Workload]]:
    entries = default if case["queues"] == "default" else case["queues"]
    cohorts = [
        Cohort(c["name"], c.get("parent"), quotas(c.get("quotas", [])), c.get("weight", 1.0))
        for c in case.get("cohorts", [])
    ]
    tree = QuotaTree([queue(entry) for entry in entries or []], cohorts)
    admitted = [workload(entry) for entry in case.get("admitted", [])]
    for holder in admitted:
        tree.add(holder.queue, holder.usage)
    return tree, admitted


def incoming(case: dict[str, Any]) -> Incoming:
    entries = case["incoming"]["assigned"]
    contested = frozenset((e["flavour"], e["resource"]) for e in entries if e["mode"] == "preempt")
    return Incoming(workload(case["incoming"], "assigned"), contested)


def usage_of(tree: QuotaTree) -> dict[str, dict[tuple[str, str], int]]:
    return {node.name: {key: amount for key, amount in node.usage.items() if amount} for node in tree.nodes()}


@each("available")
def test_available(case: dict[str, Any]) -> None:
    tree, _ = build(case)
    assert_available(tree, case, "potentially_available")
    for name, entries in case["usage"].items():
        tree.add(name, amounts(entries))
    assert_available(tree, case, "available")
    for name, entries in case["usage"].items():
        tree.remove(name, amounts(entries))
    assert_available(tree, case, "potentially_available")


def assert_available(tree: QuotaTree, case: dict[str, Any], which: str) -> None:
    for name, entries in case[which].items():
        for key, amount in amounts(entries).items():
            assert tree.available(name, key) == amount, (name, key)
            assert tree.potentially_available(name, key) == sum(
                e["amount"] for e in case["potentially_available"][name] if (e["flavour"], e["resource"]) == key
            )


@each("dominant_share")
def test_dominant_share(case: dict[str, Any]) -> None:
    tree, _ = build(case)
    tree.add("cq", amounts(case["usage"]))
    nodes = {("queue" if node.queue else "cohort", node.name): node for node in tree.nodes()}
    for want in case["shares"]:
        got = dominant_share(nodes.pop((want["kind"], want["name"])), amounts(case.get("added", [])))
        share = float("inf") if want["share"] is None else want["share"]
        assert (got.reported, got.resource, got.borrowing) == (share, want["resource"], want["borrowing"]), want["name"]
    assert not nodes


@each("candidates")
def test_order_of_candidates(case: dict[str, Any]) -> None:
    got = in_order(map(workload, case["candidates"]), "preemptor", by_usage=case["admission_fair_sharing"])
    assert [w.id for w in got] == case["order"]


@each("queue_order")
def test_order_of_queues(case: dict[str, Any]) -> None:
    tree, admitted = build(case)
    order = Tournament(tree, case["preemptor_queue"], [w for w in admitted if w.queue in case["candidate_queues"]])
    got, actions = [], iter(case["actions"])
    while (name := order.next_queue()) is not None:
        got.append(name)
        if next(actions, "pop") == "drop":
            order.drop(name)
        else:
            order.pop(name)
    assert got == case["order"]


@each("preemption")
def test_classical_preemption(case: dict[str, Any]) -> None:
    tree, admitted = build(case, load("preemption")["queues"])
    before = usage_of(tree)
    got = classical_victims(tree, incoming(case), admitted)
    assert {victim.workload.id: victim.reason.value for victim in got} == case["victims"]
    assert usage_of(tree) == before


@each("fair_preemption")
def test_fair_preemption(case: dict[str, Any]) -> None:
    tree, admitted = build(case, load("fair_preemption")["queues"])
    before = usage_of(tree)
    rules = tuple(Rule(name) for name in case.get("strategies", [rule.value for rule in BOTH]))
    got = fair_victims(tree, incoming(case), admitted, rules=rules)
    assert {victim.workload.id: victim.reason.value for victim in got} == case["victims"]
    assert usage_of(tree) == before
