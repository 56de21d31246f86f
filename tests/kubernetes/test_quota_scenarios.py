"""Scenarios of quota: Kueue's own, some worked by hand, and those of any folder named in SIMSCHED_QUOTA_SCENARIOS."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.case_reports import files_in, run
from tests.conformance.kueue import check, check_file, expanded
from tests.conformance.kueue_forms import tree_of, workload_of

DATA = Path(__file__).resolve().parents[1] / "data"
FURTHER = os.environ.get("SIMSCHED_QUOTA_SCENARIOS", "")
PLACES = [DATA / "kueue", DATA / "quota", *(Path(place) for place in FURTHER.split(os.pathsep) if place)]


def cases() -> list[Any]:
    found = []
    for path in files_in(PLACES):
        content = json.loads(path.read_text(encoding="utf-8"))
        found += [pytest.param(expanded(content, case), id=f"{path.stem}: {case['name']}") for case in content["cases"]]
    return found


SPOKEN = {
    "name": "does not match the selector",
    "queues": [{"name": "q", "quotas": [{"flavour": "spot", "resource": "gpu", "nominal": 1}]}],
    "pending": [{"id": "a/one", "queue": "q", "request": {"gpu": 1}}],
    "outcome": {"admitted": {"a/one": ["spot"]}},
}


@pytest.mark.parametrize(
    ("changed", "result"),
    [
        ({}, "left out"),
        ({"namespaces": {"a": {}}}, "equal"),
        ({"name": "plain"}, "equal"),
        ({"name": "spot has a taint"}, "left out"),
        ({"name": "spot has a taint", "flavours": [{"name": "spot"}]}, "equal"),
        ({"name": "to a nonexistent flavor"}, "left out"),
        ({"name": "to a nonexistent queue"}, "equal"),
    ],
)
def test_a_case_that_speaks_of_more_than_it_says_is_left_out(changed: dict[str, Any], result: str) -> None:
    assert check({**SPOKEN, **changed}).result == result


@pytest.mark.parametrize(("folder", "equal"), [("kueue", 465), ("quota", 112)])
def test_every_scenario_that_ships_is_read_and_equal(folder: str, equal: int) -> None:
    reports = [check_file(path) for path in files_in([DATA / folder])]
    assert tuple(map(sum, zip(*(report.counts for report in reports), strict=True))) == (equal, 0, 0)


@pytest.mark.parametrize("case", [case for case in cases() if "available" in case.values[0]])
def test_usage_given_back_leaves_nothing_behind(case: dict[str, Any]) -> None:
    tree, _ = tree_of(case)
    for sign in (tree.add, tree.remove):
        for name, entries in case["usage"].items():
            sign(name, workload_of({"id": name, "usage": entries}).usage)
    assert all(amount == 0 for node in tree.nodes() for amount in node.usage.values())


QUOTA = {"flavour": "a", "resource": "gpu", "nominal": 4}
ASKED = {"flavour": "a", "resource": "gpu", "amount": 2, "mode": "preempt"}
HOLDS = {"id": "old", "queue": "q", "priority": 0, "usage": [{"flavour": "a", "resource": "gpu", "amount": 4}]}
CASE: dict[str, Any] = {
    "name": "one queue",
    "queues": [{"name": "q", "quotas": [QUOTA], "within_queue": "lower-priority"}],
    "admitted": [HOLDS],
    "incoming": {"id": "new", "queue": "q", "priority": 1, "assigned": [ASKED]},
    "victims": {"old": "InClusterQueue"},
}


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"topology": {}}, "no places below a flavour"),
        ({"surprise": 1}, "the model has no 'surprise' of a case"),
        ({"outcome": {}, "pending": [{"id": "a", "queue": "q", "pod_sets": 2}]}, "what each set of pods requests"),
        ({"gates": {"ConcurrentAdmission": True}}, "is modelled only off"),
        ({"gates": {"NoSuchGate": True}}, "is no gate"),
        ({"queues": [{"name": "q", "quotas": [QUOTA], "reclaim": "sometimes"}]}, "no 'reclaim' of 'sometimes'"),
        ({"pending": [], "outcome": {"evicted": []}}, "no 'evicted' of a outcome"),
    ],
)
def test_what_is_left_out_is_told_by_a_rule(changed: dict[str, Any], why: str) -> None:
    verdict = check({**CASE, **changed})
    assert verdict.result == "left out"
    assert why in verdict.detail


def test_a_case_that_expects_nothing_is_left_out() -> None:
    assert "expects none" in check({key: CASE[key] for key in CASE if key != "victims"}).detail


def test_the_command_reports_shares_differences_and_files_of_another_form(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = {**CASE, "name": "wrong", "victims": {}}
    (tmp_path / "mine.json").write_text(json.dumps({"cases": [CASE, wrong, {**CASE, "devices": 1}]}))
    assert run("kueue", check_file, [str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert "mine.json: 2 of 3 read, 1 equal, 1 different, 1 left out" in printed
    assert "left out, 1: the model has no 'devices' of a case" in printed
    assert "mine.json: wrong: expected {}, got {'old': 'InClusterQueue'}" in printed
    (tmp_path / "mine.json").write_text(json.dumps({"cases": [{**CASE, "devices": 1}]}))
    assert run("kueue", check_file, [str(tmp_path)]) == 1
    assert "mine.json: 0 of 1 read" in capsys.readouterr().out
    (tmp_path / "mine.json").write_text(json.dumps({"cases": [CASE]}))
    assert run("kueue", check_file, [str(tmp_path)]) == 0
    (tmp_path / "other.json").write_text("[]")
    assert run("kueue", check_file, [str(tmp_path / "other.json")]) == 2
    assert "other.json" in capsys.readouterr().err


def test_a_case_on_which_the_model_fails_is_a_difference() -> None:
    verdict = check({**CASE, "incoming": {**CASE["incoming"], "queue": "elsewhere"}})
    assert (verdict.result, "failed: KeyError" in verdict.detail) == ("different", True)
