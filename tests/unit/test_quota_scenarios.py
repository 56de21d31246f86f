"""Scenarios of quota: Kueue's own, some worked by hand, and those of any folder named in SIMSCHED_QUOTA_SCENARIOS."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from simsched_policies.production.kueue.go_tables import cases_of
from simsched_policies.production.kueue.scenarios import (
    check,
    check_file,
    expanded,
    files_in,
    main,
    tree_of,
    workload_of,
)

from simsched.errors import InputError

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
    line, told = capsys.readouterr().out.splitlines()[1:]
    assert line.split() == [cases.name, "62", "62", "0", "0", "100.0", "%"]
    assert told == "62 of 62 read, of which 62 equal"


def test_without_words_no_public_case_is_answered_wrongly(shared: Path) -> None:
    report = check_file(shared / "kueue" / "schedule-scenarios.json")
    assert (report.count("equal"), report.count("different"), report.count("left out")) == (45, 0, 17)
    assert report.remark.startswith("45 cases without 'flavours'")


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


@pytest.mark.parametrize(
    ("file", "equal", "left_out"),
    [
        ("preemption_test", 46, 12),  # without the calls of an API, messages and the sum of a boost
        ("preemption_fair_test", 35, 2),  # without what is logged
        ("fair_sharing_test", 16, 9),  # without a helper of a share, and how a share is printed
        ("ordering_test", 7, 0),
        ("resource_test", 8, 0),
    ],
)
def test_tables_of_quota_come_out_as_in_kueue(shared: Path, file: str, equal: int, left_out: int) -> None:
    report = check_file(shared / "kueue" / f"{file}.go.txt")
    assert (report.count("equal"), report.count("different"), report.count("left out")) == (equal, 0, left_out)
    assert {v.detail for v in report.verdicts if v.result == "left out"} <= {"the model does not read the case's table"}


@pytest.mark.parametrize(
    ("source", "ours"),
    [
        ("preemption_test", "preemption"),
        ("preemption_fair_test", "fair_preemption"),
        ("ordering_test", "queue_order"),
        ("resource_test", "available"),
    ],
)
def test_a_table_read_from_go_expects_what_our_form_says(shared: Path, source: str, ours: str) -> None:
    content = json.loads((DATA / "kueue" / f"{ours}.json").read_text(encoding="utf-8"))
    read: dict[str, Any] = {}
    for case in cases_of(shared / "kueue" / f"{source}.go.txt"):
        read.setdefault(case["name"], case)
    for case in content["cases"]:
        found = {key: written(read[case["name"]][key]) for key in EXPECTED if key in case}
        assert found == {key: written(case[key]) for key in EXPECTED if key in case}, case["name"]


EXPECTED = ("victims", "order", "actions", "strategies", "available", "potentially_available")


def written(expected: Any) -> Any:
    """Return an expectation without the `/` of an id's empty namespace."""
    return {key.lstrip("/"): of for key, of in expected.items()} if isinstance(expected, dict) else expected


@pytest.mark.parametrize(
    ("table", "equal", "word"),
    [("cycle", 10, "colour"), ("balanced_placement", 9, "domain.colour"), ("builders", 12, "Colour of a workload")],
)
def test_tables_worked_by_hand(table: str, equal: int, word: str) -> None:
    report = check_file(DATA / "quota" / f"{table}_test.go.txt")
    assert (report.count("equal"), report.count("different")) == (equal, 0)
    assert [word in v.detail for v in report.verdicts if v.result == "left out"] == [True]


def test_every_rule_of_topology_in_a_cycle_as_worked_by_hand() -> None:
    report = check_file(DATA / "quota" / "topology_rules_test.go.txt")
    assert [verdict.name for verdict in report.verdicts if verdict.result != "equal"] == []
    assert len(report.verdicts) == 51


def test_gates_that_a_test_switches_hold_for_its_cases_unless_they_say_otherwise(tmp_path: Path) -> None:
    table = tmp_path / "x_test.go.txt"
    table.write_text(
        """package x
        func TestSchedule(t *testing.T) {
            features.SetFeatureGateDuringTest(t, features.One, false)
            gates := map[featuregate.Feature]bool{features.Two: true, features.Three: true}
            features.SetFeatureGatesDuringTest(t, gates)
            cases := map[string]struct{}{"c": {featureGates: map[featuregate.Feature]bool{features.Three: false}}}
        }
        """,
        encoding="utf-8",
    )
    (case,) = cases_of(table)
    assert case["gates"] == {"One": False, "Two": True, "Three": False}


def test_a_case_on_which_the_model_fails_is_a_difference() -> None:
    verdict = check({**CASE, "incoming": {**CASE["incoming"], "queue": "elsewhere"}})
    assert (verdict.result, "failed: KeyError" in verdict.detail) == ("different", True)


def test_a_value_of_another_kind_leaves_its_case_out_and_an_unknown_file_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "x_test.go.txt"
    case = 'package x\nfunc Test%s(t *testing.T) {\ncases := map[string]struct{}{\n"odd": {clusterQueues: 3},\n}\n}\n'
    table.write_text(case % "Available", encoding="utf-8")
    (verdict,) = check_file(table).verdicts
    assert (verdict.result, "a value of another kind" in verdict.detail) == ("left out", True)
    table.write_text(case % "Colours", encoding="utf-8")
    with pytest.raises(InputError, match="no test table that is known"):
        check_file(table)
