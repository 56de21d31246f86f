"""Scenarios of quota: Kueue's own, some worked by hand, and those of any folder named in SIMSCHED_QUOTA_SCENARIOS."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from simsched_policies.production.kueue.scenarios import (
    check,
    check_file,
    expanded,
    files_in,
    main,
    tree_of,
    workload_of,
)

DATA = Path(__file__).resolve().parents[1] / "data"
FURTHER = os.environ.get("SIMSCHED_QUOTA_SCENARIOS", "")
PLACES = [DATA / "kueue", DATA / "quota", *(Path(place) for place in FURTHER.split(os.pathsep) if place)]


def cases() -> list[Any]:
    found = []
    for path in files_in(PLACES):
        content = json.loads(path.read_text(encoding="utf-8"))
        found += [pytest.param(expanded(content, case), id=f"{path.stem}: {case['name']}") for case in content["cases"]]
    return found


@pytest.mark.parametrize("case", cases())
def test_scenario(case: dict[str, Any]) -> None:
    verdict = check(case)
    if verdict.result == "left out":
        pytest.skip(verdict.detail)
    assert verdict.result == "equal", verdict.detail


def test_every_public_case_of_a_cycle_comes_out_as_in_kueue(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases = shared / "kueue" / "schedule-scenarios.json"
    assert main([str(cases), "--words", str(DATA / "kueue" / "words" / cases.name), "--least", "1"]) == 0
    (line,) = capsys.readouterr().out.splitlines()[1:]
    assert line.split() == [cases.name, "62", "62", "0", "0", "100.0", "%"]


def test_every_scenario_that_ships_is_covered() -> None:
    reports = [check_file(path) for path in files_in([DATA / "kueue"])]
    assert sum(report.count("equal") for report in reports) == 111
    assert {report.share_equal for report in reports} == {1.0}
    assert not any(report.count("left out") for report in reports)


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
    assert main([str(tmp_path)]) == 1
    told = capsys.readouterr().out
    assert "50.0 %" in told
    assert "left out, 1: devices" in told
    assert "mine.json: wrong: expected {}, got {'old': 'InClusterQueue'}" in told
    assert main([str(tmp_path), "--least", "0.5"]) == 0
    (tmp_path / "other.json").write_text("[]")
    assert main([str(tmp_path / "other.json")]) == 2
    assert "other.json" in capsys.readouterr().err


def test_flavours_are_assigned_as_in_kueues_own_table(shared: Path) -> None:
    report = check_file(shared / "kueue" / "flavorassigner_test.go.txt")
    assert report.count("equal") == len(report.verdicts) == 145
