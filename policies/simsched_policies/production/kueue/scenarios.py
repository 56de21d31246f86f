"""Scenarios of quota as files: the input, the expected outcome, and whether this package agrees.

`python -m simsched_policies.production.kueue.scenarios FILE_OR_FOLDER...` prints, for each file, how many cases the
model covers and how many of those agree; which are skipped, and by which rule; and the differences. A file has our
format (`*.json`) or is one of Kueue's own test tables in Go (any other name; `go_tables` lists the tables). The format
is documented in `tests/data/kueue/README.md`. `--words FILE` adds what the cases leave undefined.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from simsched.errors import InputError, input_error
from simsched.reading import read_json
from simsched.words import counted as in_words
from simsched_policies.production.case_reports import Report, Verdict, described
from simsched_policies.production.kueue import balanced_scenarios
from simsched_policies.production.kueue.candidates import in_order
from simsched_policies.production.kueue.classical import classical_victims
from simsched_policies.production.kueue.coverage import gates_of, left_out, plain
from simsched_policies.production.kueue.cycle_scenarios import cycle, reasons_of, strategies_of
from simsched_policies.production.kueue.fair import Tournament, fair_victims
from simsched_policies.production.kueue.flavour_scenarios import assigned, borrowing, counted, preference
from simsched_policies.production.kueue.forms import amounts_of, tree_of, workload_of
from simsched_policies.production.kueue.go_tables import cases_of
from simsched_policies.production.kueue.model import FlavourResource, Incoming
from simsched_policies.production.kueue.share import dominant_share
from simsched_policies.production.kueue.topology_scenarios import compared

Json = Mapping[str, Any]
#: Keys that a file may set once for all its cases.
_SHARED = ("fair_sharing", "preemptor_queue", "flavours", "namespaces", "gates")


def check_file(path: Path, words: Json | None = None) -> Report:
    """Run every case of a file, with `words` added; raises `InputError` if the file has another format."""
    content = read_json(path) if path.suffix == ".json" else {"cases": cases_of(path)}
    try:
        cases = [worded(expanded(content, case), words or {}) for case in content["cases"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        remedy = "see the form in tests/data/kueue/README.md"
        raise input_error(str(path), f"is no file of scenarios ({type(error).__name__}: {error})", remedy) from error
    open_cases = sum(map(plain, cases))
    remark = f"{in_words(open_cases, 'case')} without 'flavours', which then have neither labels nor taints"
    return Report(path, tuple(check(case) for case in cases), remark if open_cases else "")


def expanded(content: Json, case: Json) -> Json:
    """Return a case with its file's defaults: queues, rules, the preemptor's queue."""
    shared = {key: content[key] for key in _SHARED if key in content}
    queues = {"queues": content.get("queues", [])} if case.get("queues") == "default" else {}
    return {**shared, **case, **queues}


def worded(case: Json, words: Json) -> Json:
    """Return a case merged with the `words` for all cases and for this one, by name; null removes a key.

    Lists of named objects (or objects with an id) are matched by name.
    """
    for more in (
        {key: words[key] for key in words if key != "cases"},
        words.get("cases", {}).get(case.get("name"), {}),
    ):
        case = _merged(case, more)
    return case


def _merged(old: Any, more: Any) -> Any:
    if isinstance(old, list) and isinstance(more, dict):
        return [_merged(one, more.get(one.get("name", one.get("id")), {})) for one in old]
    if not (isinstance(old, dict) and isinstance(more, dict)):
        return more
    changed = {key: _merged(old.get(key), value) for key, value in more.items() if value is not None}
    return {key: value for key, value in {**old, **changed}.items() if more.get(key, value) is not None}


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
        "potentially_available": {key: tree.potentially_available(*key) for key in asked["potentially_available"]},
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
        got[key] = (share.reported, share.resource, share.borrowing)
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
    "balanced": balanced_scenarios.compared,
}


def files_in(places: Iterable[Path]) -> list[Path]:
    """Return the given files, and the JSON files in the given folders, sorted."""
    return [file for place in places for file in (sorted(place.glob("*.json")) if place.is_dir() else [place])]


def main(arguments: Sequence[str] | None = None) -> int:
    """Check files and print the reports; return 1 if the least share is not reached, 2 for files of another format."""
    parser = argparse.ArgumentParser(prog="python -m simsched_policies.production.kueue.scenarios", description=__doc__)
    parser.add_argument("places", nargs="+", type=Path, metavar="FILE_OR_FOLDER")
    parser.add_argument("--words", type=Path, metavar="FILE", help="what to add to cases, by their names")
    parser.add_argument("--least", type=float, default=0.9, help="share of equal cases that every file must reach")
    asked = parser.parse_args(arguments)
    try:
        words = None if asked.words is None else read_json(asked.words)
        reports = [check_file(path, words) for path in files_in(asked.places)]
    except InputError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(f"{described(reports)}\n")
    return int(any(report.share_equal < asked.least for report in reports))


if __name__ == "__main__":
    sys.exit(main())
