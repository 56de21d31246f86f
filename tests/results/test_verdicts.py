"""Ratios of policies, when they match the published ones, and pages filled from results."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from docs.filled_page import METRIC, runs_on
from docs.verdicts import DIFFERS, EXCLUDED, MATCHES, SAME_DIRECTION, UNDECIDED, judge, ranks, verdict
from simsched.results.reader import Run, read_run
from simsched.results.statistics import Estimate, ratio, ratio_of_means
from tests.pages import verdicts


@pytest.mark.parametrize(
    ("low", "high", "published", "expected"),
    [
        (1.44, 1.50, 1.46, MATCHES),
        (1.44, 1.50, 1.44, MATCHES),
        (1.44, 1.50, 1.50, MATCHES),
        (1.00, 1.05, 1.46, DIFFERS),
        (0.95, 1.00, 1.46, DIFFERS),
        (1.44, 1.50, 1.52, EXCLUDED),
        (1.44, 1.70, 1.72, EXCLUDED),
        (0.60, 0.70, 0.50, EXCLUDED),
        (1.35, 1.60, 1.46, SAME_DIRECTION),  # contains it, and too much else to match
        (1.30, 1.60, 1.46, UNDECIDED),  # wider than a fifth of the ratio
        (1.30, 1.60, 1.70, UNDECIDED),
        (1.30, 1.60, 0.90, DIFFERS),  # too wide for a ratio, and yet on the wrong side of 1
        (1.30, 1.60, 1.00, DIFFERS),
        (0.95, 1.10, 1.05, UNDECIDED),  # contains 1 and the published ratio, and is wider than a tenth
        (0.95, 1.10, 1.46, DIFFERS),
        (1.44, 1.50, 0.90, DIFFERS),
        (0.60, 0.70, 1.46, DIFFERS),
        (0.60, 0.70, 1.00, DIFFERS),
        (0.98, 1.03, 1.00, MATCHES),
        (0.98, 1.03, 1.46, DIFFERS),
        (0.70, 1.30, 1.46, UNDECIDED),
        (-0.50, 3.50, 1.46, UNDECIDED),
        (2.40, 2.68, 2.50, SAME_DIRECTION),  # 0.28 is 11 % of the ratio
        (2.40, 2.64, 2.50, MATCHES),  # 0.24 is less than a tenth of it
        (2.40, 2.94, 2.50, UNDECIDED),  # 0.54 is 20.2 %
        (0.25, 0.29, 0.27, SAME_DIRECTION),  # 0.04 is 15 %
    ],
)
def test_a_verdict_can_be_any_of_five(low: float, high: float, published: float, expected: str) -> None:
    found = Estimate((low + high) / 2, 8, low, high)
    assert verdict(found, published, simulated=True) == expected
    assert verdict(found, published, simulated=False) != MATCHES


def test_one_seed_and_no_ratio_are_undecided() -> None:
    assert verdict(Estimate(1.46, 1), 1.46, simulated=True) == UNDECIDED
    assert verdict(None, 1.46, simulated=True) == UNDECIDED


def test_the_ratio_of_seeds_is_their_geometric_mean_with_the_interval_of_the_logarithms() -> None:
    found = ratio({1: 2.0, 2: 24.0, 3: 9.0}, {2: 3.0, 1: 1.0, 4: 1.0})
    assert found is not None
    # Ratios 2 and 8: logarithms ln 2 and 3 ln 2, mean 2 ln 2, s = sqrt(2) ln 2, half = t(1) s / sqrt(2) = 12.706 ln 2.
    assert (found.mean, found.n) == (pytest.approx(4), 2)
    assert found.high == pytest.approx(4 * 2**12.7062, rel=1e-4)
    assert found.low == pytest.approx(4 / 2**12.7062, rel=1e-4)
    assert ratio({1: 3.0}, {1: 2.0}) == Estimate(pytest.approx(1.5), 1)
    assert ratio({1: 2.0}, {2: 2.0}) is None


def test_the_ratio_turned_round_is_one_over_it() -> None:
    above, below = {1: 2.0, 2: 24.0, 3: 7.0}, {1: 1.0, 2: 3.0, 3: 9.0}
    found, turned = ratio(above, below), ratio(below, above)
    assert found is not None
    assert turned is not None
    assert (turned.mean, turned.low, turned.high) == pytest.approx((1 / found.mean, 1 / found.high, 1 / found.low))


def test_where_a_value_is_zero_the_ratio_is_that_of_the_means() -> None:
    values, reference = {1: 2.0, 2: 6.0}, {1: 0.0, 2: 5.0}
    assert ratio(values, reference) == ratio_of_means(values, reference)
    assert ratio({1: 2.0, 2: 1.0}, {1: 0.0, 2: 0.0}) is None


def test_the_ratio_of_means_is_that_of_the_means_over_the_seeds_that_both_have() -> None:
    found = ratio_of_means({1: 2.0, 2: 6.0, 3: 9.0}, {2: 3.0, 1: 2.0, 4: 1.0})
    assert found is not None
    assert (found.mean, found.n) == (8 / 5, 2)
    # e = 2 - 1.6 * 2 = -1.2 and 6 - 1.6 * 3 = 1.2; s = 1.2 sqrt(2); t(1) = 12.706.
    assert found.half_width == pytest.approx(12.7062 * 1.2 / 2.5, rel=1e-4)
    assert ratio_of_means({1: 2.0}, {2: 2.0}) is None
    assert ratio_of_means({1: 2.0}, {1: 0.0}) is None


@given(st.lists(st.floats(0.1, 50), min_size=2, max_size=9), st.floats(0.1, 10))
def test_what_the_jobs_of_a_seed_have_in_common_does_not_widen_the_interval(levels: list[float], factor: float) -> None:
    for estimator in (ratio, ratio_of_means):
        found = estimator({i: factor * v for i, v in enumerate(levels)}, dict(enumerate(levels)))
        assert found is not None
        assert found.mean == pytest.approx(factor)
        assert found.half_width == pytest.approx(0, abs=1e-6)


def test_the_interval_covers_the_ratio_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    hits = {ratio: 0, ratio_of_means: 0}
    for _ in range(400):
        level = rng.gamma(4, 1, 12)
        factors = rng.lognormal(np.log(1.5), 0.2, 12)
        noisy = 1.5 * level + rng.normal(0, 0.3, 12)
        for estimator, above in ((ratio, factors * level), (ratio_of_means, noisy)):
            found = estimator(dict(enumerate(above)), dict(enumerate(level)))
            assert found is not None
            hits[estimator] += found.low <= 1.5 <= found.high
    assert all(0.92 * 400 <= count <= 0.98 * 400 for count in hits.values())


def test_heavy_tails_cost_the_ratio_of_means_its_coverage_and_the_logarithms_none() -> None:
    rng = np.random.default_rng(5)
    hits = {ratio: 0, ratio_of_means: 0}
    for _ in range(400):
        level = rng.lognormal(0, 1, 5)
        factors = rng.lognormal(np.log(3), 0.8, 5)  # their median is 3, their mean 3 exp(0.32)
        for estimator, true in ((ratio, 3.0), (ratio_of_means, 3 * np.exp(0.32))):
            found = estimator(dict(enumerate(factors * level)), dict(enumerate(level)))
            assert found is not None
            hits[estimator] += found.low <= true <= found.high
    assert hits[ratio] >= 0.93 * 400
    assert hits[ratio_of_means] <= 0.90 * 400


def write_run(
    folder: Path, values: dict[str, list[float]], published: dict[str, float], rate: float | None = None
) -> Run:
    """Write and read a run of these mean JCTs by seed, at a point of a sweep if there is a `rate`."""
    cells = []
    point, at = ({}, "") if rate is None else ({"workload.jobs_per_hour": rate}, f" [jobs_per_hour={rate}]")
    for policy, means in values.items():
        for seed, mean in enumerate(means, start=1):
            cell = folder / "cells" / f"{policy}-{seed}"
            cell.mkdir(parents=True)
            (cell / "manifest.json").write_text("{}")
            (cell / "summary.json").write_text(json.dumps({"jct_mean_s": mean}))
            entry = {"cell": cell.name, "folder": f"cells/{cell.name}", "policy": policy, "policy_name": policy}
            cells.append(entry | {"seed": seed, "point": point})
    content = {
        "name": folder.name,
        "cells": cells,
        "published": {f"{policy}{at}": {"jct_mean_s": value} for policy, value in published.items()},
        "experiment": {"report": {"reference": "a"}, "published_by": "simulator"},
    }
    (folder / "run.json").write_text(json.dumps(content))
    return read_run(folder)


def test_a_ratio_that_was_published_as_such_is_judged(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    write_run(folder, {"a": [10.0, 20.0, 30.0], "b": [20.1, 39.8, 60.1]}, {})
    content = json.loads((folder / "run.json").read_text())
    content["published"] = {"b": {"jct_mean_ratio": 1.46}}
    (folder / "run.json").write_text(json.dumps(content))
    (found,) = judge(read_run(folder), "jct_mean_h")
    assert (found.row, found.over, found.published, found.verdict) == ("b", "a", 1.46, EXCLUDED)
    assert (found.published_levels, found.doubt) == (None, "")
    assert judge(read_run(folder), "makespan_h") == judge(read_run(folder), "jct_mean_h", over="b") == []


PAGE = """Before.

<!-- simsched: ratios one jct_mean_s -->
| stale |
<!-- simsched: end -->

Between.

<!-- simsched: figures one jct_mean_s -->
<!-- simsched: end -->
<!-- simsched: ratios other jct_mean_s over a -->
<!-- simsched: end -->
After.
"""


def test_a_page_is_filled_from_results_and_only_between_its_marks(tmp_path: Path) -> None:
    write_run(tmp_path / "one", {"a": [100, 200], "b": [150, 301]}, {"a": 10, "b": 15})
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    command = [str(tmp_path), "--page", str(page)]
    assert verdicts(*command, "--check").exit_code == 1
    assert verdicts(*command).exit_code == 0
    assert verdicts(*command, "--check").exit_code == 0
    text = page.read_text()
    page.write_text(text.replace("Not run: there are no results of `other`.", "| of an earlier run |"))
    assert verdicts(*command).output.rstrip().endswith("left unchanged, without results: other")
    assert "| of an earlier run |" in page.read_text()
    # Ratios 1.5 and 1.505; the means are 150 and 225.5 s, published 10 and 15 s.
    assert "| b | a | matches | 2 | 1.50 | 1.47 to 1.53 | 1.50 | 1.50 |" in text
    assert " | 3.76 over 2.50 | 0.25 over 0.17 |" in text
    assert "stale" not in text
    assert "Not run: there are no results of `other`." in text
    assert [line for line in text.splitlines() if line in {"Before.", "Between.", "After."}] == [
        "Before.",
        "Between.",
        "After.",
    ]


def test_a_page_has_means_to_as_many_decimals_as_were_published(tmp_path: Path) -> None:
    write_run(tmp_path / "one", {"a": [100.04], "b": [150.5], "c": [7]}, {"a": 100.0, "b": 150.25})
    page = tmp_path / "page.md"
    page.write_text("<!-- simsched: digits one jct_mean_s -->\n<!-- simsched: end -->\n")
    assert verdicts(str(tmp_path), "--page", str(page)).exit_code == 0
    text = page.read_text()
    assert "| a | every digit | 100.0 | 100.0 |" in text
    assert "| b | 0.17% off | 150.25 | 150.50 |" in text
    assert "| c | - | - | 7.0 |" in text


@pytest.mark.parametrize("over", ["", " over a"])
def test_a_page_has_differences_from_a_policy_run_by_run(tmp_path: Path, over: str) -> None:
    write_run(tmp_path / "one", {"a": [100, 200], "b": [150, 301]}, {"a": 10, "b": 15})
    page = tmp_path / "page.md"
    page.write_text(f"<!-- simsched: differences one jct_mean_s{over} -->\n<!-- simsched: end -->\n")
    assert verdicts(str(tmp_path), "--page", str(page)).exit_code == 0
    # 50 and 50.5 %, hence a standard error of 0.25 %, of which 12.7 are the half width with one degree of freedom.
    assert "| b | +50.2 ±3.18 \\* |\n" in page.read_text()
    assert "the interval leaves zero out" in page.read_text()


def test_what_cannot_be_filled_or_judged_is_said(tmp_path: Path) -> None:
    write_run(tmp_path / "one", {"a": [100], "b": [150]}, {"a": 10, "b": 15})
    bare = tmp_path / "bare.md"
    bare.write_text("No marks.")
    found = verdicts(str(tmp_path), "--page", str(bare))
    assert (found.exit_code, "has no table to fill" in found.output) == (2, True)
    assert verdicts(str(tmp_path), "--check").exit_code == 2
    shown = verdicts(str(tmp_path), "--metric", "jct_mean_s")
    assert "undecided (no interval)" in shown.output


def test_metrics_on_a_page_may_hold_blanks_in_brackets() -> None:
    said = "rho_above_1 rho_above_1[all but ncf] jct_mean_h[cifar10]  rho_max"
    assert METRIC.findall(said) == ["rho_above_1", "rho_above_1[all but ncf]", "jct_mean_h[cifar10]", "rho_max"]


def test_all_pages_of_a_folder_are_filled_and_checked_in_one_call(tmp_path: Path, monkeypatch) -> None:
    write_run(tmp_path / "runs" / "one", {"a": [100, 200], "b": [150, 301]}, {"a": 10, "b": 15})
    docs = tmp_path / "docs"
    (docs / "deep").mkdir(parents=True)
    (docs / "page.md").write_text(PAGE)
    (docs / "deep" / "other.md").write_text("<!-- simsched: ratios one jct_mean_s -->\n<!-- simsched: end -->\n")
    (docs / "bare.md").write_text("No marks.")
    monkeypatch.chdir(tmp_path)
    assert runs_on(docs / "page.md") == ("one", "other")
    checked = verdicts("runs", "--check")
    assert checked.exit_code == 1
    assert "docs/page.md: 0 of 2 tables up to date; left unchanged, without results: other" in checked.output
    assert "does not match the results: figures one jct_mean_s" in checked.output
    assert verdicts("runs", "--page", "docs").exit_code == 0
    again = verdicts("runs", "--check")
    assert (again.exit_code, "docs/deep/other.md: 1 of 1 table up to date" in again.output) == (0, True)
    (docs / "page.md").write_text((docs / "page.md").read_text().replace("1.50", "1.51"))
    assert verdicts("runs", "--check").exit_code == 1


def test_a_check_without_any_results_is_refused(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text(PAGE)
    monkeypatch.chdir(tmp_path)
    found = verdicts("runs", "--check")
    assert (found.exit_code, "has no results for any table" in found.output) == (2, True)


def test_a_page_marks_who_knows_more_than_a_scheduler_could(tmp_path: Path) -> None:
    write_run(tmp_path / "one", {"a": [100, 200], "b": [150, 301]}, {"a": 10, "b": 15})
    for manifest in (tmp_path / "one" / "cells").glob("b-*/manifest.json"):
        manifest.write_text('{"policy_knows": {"remaining_work": "oracle", "offline_profiles": "profiled"}}')
    page = tmp_path / "page.md"
    page.write_text("<!-- simsched: figures one jct_mean_s -->\n<!-- simsched: end -->\n")
    assert verdicts(str(tmp_path), "--page", str(page)).exit_code == 0
    text = page.read_text()
    assert "| b †‡ | 2 |" in text
    assert "| a | 2 |" in text
    assert "† oracle: reads what no real scheduler knows. ‡ reads profiles measured before" in text


@pytest.mark.parametrize(
    ("b", "c", "verdict", "in_order", "wrong", "undecided"),
    [
        ([20, 22], [30, 33], MATCHES, 3, (), ()),
        ([20, 22], [19, 20.9], DIFFERS, 2, ("b > c",), ()),
        ([20, 30], [31, 18], UNDECIDED, 0, (), ("a < b", "a < c", "b < c")),  # means in order, and nothing known
        ([20, 22], [22, 21], UNDECIDED, 1, (), ("a < c", "b < c")),  # one of three pairs is too few
        ([20, 22], [40, 22.5], UNDECIDED, 1, (), ("a < c", "b < c")),
    ],
)
def test_an_order_can_match_differ_or_stay_open(tmp_path, b, c, verdict, in_order, wrong, undecided):
    run = write_run(tmp_path / "one", {"a": [10, 11], "b": b, "c": c}, {"a": 1, "b": 2, "c": 3}, 1.0)
    (found,) = ranks(run, "jct_mean_s")
    assert (found.verdict, found.pairs, found.in_order, found.reversed_pairs) == (verdict, 3, in_order, wrong)
    assert found.undecided_pairs == undecided
    assert (found.point, found.seeds) == ("jobs_per_hour=1.0", 2)


def test_a_page_has_the_order_at_each_point(tmp_path):
    write_run(tmp_path / "one", {"a": [10, 11], "b": [20, 22], "c": [8, 30]}, {"a": 1, "b": 2, "c": 2.01}, 4.0)
    page = tmp_path / "page.md"
    page.write_text("<!-- simsched: order one jct_mean_s -->\n<!-- simsched: end -->\n")
    assert verdicts(str(tmp_path), "--page", str(page)).exit_code == 0
    said = "| jobs_per_hour=4.0 | matches (1 of 2 pairs separated) | none | 1: a &lt; c | 2 | 2 | 1 | 1 |"
    assert said in page.read_text()
