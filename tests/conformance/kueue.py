"""Scenarios of quota: `python -m tests.conformance.kueue FILE_OR_FOLDER...`.

The form is documented in `tests/data/kueue/README.md`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from math import ceil, isinf
from pathlib import Path
from typing import Any

from simsched_policies.kubernetes.kueue.candidates import in_order
from simsched_policies.kubernetes.kueue.classical import classical_victims
from simsched_policies.kubernetes.kueue.fair import Tournament, dominant_share, fair_victims
from simsched_policies.kubernetes.kueue.model import FlavourResource, Incoming

from simsched.errors import InputError, input_error
from simsched.reading import read_json
from tests.conformance import kueue_balanced
from tests.conformance.case_reports import Report, Verdict, run
from tests.conformance.kueue_coverage import gates_of, left_out
from tests.conformance.kueue_cycles import cycle, reasons_of, strategies_of
from tests.conformance.kueue_flavours import assigned, borrowing, counted, preference
from tests.conformance.kueue_forms import amounts_of, tree_of, workload_of
from tests.conformance.kueue_topologies import compared

Json = Mapping[str, Any]
#: Keys that a file may set once for all its cases.
_SHARED = ("fair_sharing", "preemptor_queue", "flavours", "namespaces", "gates")


def check_file(path: Path) -> Report:
    """Run every case of a file; raises `InputError` if the file has another format."""
    content = read_json(path)
    try:
        cases = [expanded(content, case) for case in content["cases"]]
    except (KeyError, TypeError, ValueError) as error:
        remedy = "see the form in tests/data/kueue/README.md"
        raise input_error(str(path), f"is no file of scenarios ({type(error).__name__}: {error})", remedy) from error
    return Report(path, tuple(map(check, cases)))


def expanded(content: Json, case: Json) -> Json:
    """Return a case with its file's defaults: queues, rules, the preemptor's queue."""
    shared = {key: content[key] for key in _SHARED if key in content}
    queues = {"queues": content.get("queues", [])} if case.get("queues") == "default" else {}
    return {**shared, **case, **queues}


def check(case: Json) -> Verdict:
    """Run one case, unless a rule skips it."""
    name = str(case.get("name", "(no name)"))
    if reason := left_out(case):
        return Verdict(name, "left out", reason)
    found = next(run for key, run in _KINDS.items() if key in case)
    try:
        expected, got = found(case)
    except InputError as error:
        return Verdict(name, "different", f"refused: {error}")
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        return Verdict(name, "different", f"failed: {type(error).__name__}: {error}")
    return Verdict(name, "equal") if expected == got else Verdict(name, "different", f"expected {expected}, got {got}")


def _available(case: Json) -> tuple[object, object]:
    tree, _ = tree_of(case)
    for name, entries in case["usage"].items():
        tree.add(name, amounts_of(entries))
    asked = {which: _flat(case[which]) for which in ("available", "potentially_available")}
    got = {
        "available": {key: tree.available(*key) for key in asked["available"]},
        "potentially_available": {
            (name, key): tree.queues[name].most.get(key, 0) for name, key in asked["potentially_available"]
        },
    }
    return asked, got


def _flat(by_queue: Mapping[str, Iterable[Json]]) -> dict[tuple[str, FlavourResource], int]:
    return {(name, key): n for name, entries in by_queue.items() for key, n in amounts_of(entries).items()}


def _shares(case: Json) -> tuple[object, object]:
    tree, _ = tree_of(case)
    tree.add(case.get("usage_of", "cq"), amounts_of(case["usage"]))
    expected, got = {}, {}
    for node in tree.nodes():
        share = dominant_share(node, amounts_of(case.get("added", [])))
        key = ("queue" if node.queue else "cohort", node.name)
        got[key] = (share.weighted if isinf(share.weighted) else ceil(share.weighted), share.resource, share.borrowing)
    for want in case["shares"]:
        share_of = float("inf") if want["share"] is None else want["share"]
        expected[want["kind"], want["name"]] = (share_of, want["resource"], want["borrowing"])
    return expected, got


def _candidates(case: Json) -> tuple[object, object]:
    by_usage = case.get("admission_fair_sharing", False)
    got = in_order(map(workload_of, case["candidates"]), case["preemptor_queue"], by_usage=by_usage)
    return case["order"], [workload.id for workload in got]


def _queue_order(case: Json) -> tuple[object, object]:
    tree, admitted = tree_of(case)
    order = Tournament(tree, case["preemptor_queue"], [w for w in admitted if w.queue in case["candidate_queues"]])
    got, actions = [], iter(case["actions"])
    while (name := order.next_queue()) is not None:
        got.append(name)
        if next(actions, "pop") == "drop":
            order.drop(name)
        else:
            order.pop(name)
    return case["order"], got


def _victims(case: Json) -> tuple[object, object]:
    tree, _ = tree_of(case)
    asked = case["incoming"]["assigned"]
    contested = frozenset((e["flavour"], e["resource"]) for e in asked if e["mode"] == "preempt")
    incoming = Incoming(workload_of(case["incoming"], "assigned"), contested)
    by_usage = case.get("admission_fair_sharing", False)
    if case.get("fair_sharing", False):
        within_nominal = gates_of(case)["FairSharingPreemptWithinNominal"]
        got = fair_victims(tree, incoming, rules=strategies_of(case), by_usage=by_usage, within_nominal=within_nominal)
    else:
        got = classical_victims(tree, incoming, by_usage=by_usage)
    return case["victims"], reasons_of(got)


#: Functions that run a case, by the key that determines its kind.
_KINDS: Mapping[str, Callable[[Json], tuple[object, object]]] = {
    "available": _available,
    "shares": _shares,
    "candidates": _candidates,
    "actions": _queue_order,
    "victims": _victims,
    "outcome": cycle,
    "placement": compared,
    "assignment": assigned,
    "counted": counted,
    "borrows": borrowing,
    "first_preferred": preference,
    "balanced": kueue_balanced.compared,
}


if __name__ == "__main__":
    sys.exit(run("tests.conformance.kueue", check_file))
