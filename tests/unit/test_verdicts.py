"""Ratios of policies, when they match the published ones, and pages filled from results."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from simsched.cli.main import cli
from simsched.report.filled_page import METRIC
from simsched.results.reader import read_run
from simsched.results.statistics import Estimate
from simsched.results.verdicts import DIFFERS, MATCHES, NO_VERDICT, SAME_DIRECTION, judge, ratio_of_means, verdict


@pytest.mark.parametrize(
    ("low", "high", "published", "expected"),
    [
        (1.44, 1.50, 1.46, MATCHES),
        (1.44, 1.50, 1.44, MATCHES),
        (1.44, 1.50, 1.50, MATCHES),
        (1.00, 1.05, 1.46, DIFFERS),
        (0.95, 1.00, 1.46, DIFFERS),
        (1.44, 1.50, 1.52, SAME_DIRECTION),  # narrow enough to tell that it is another ratio
        (1.30, 1.60, 1.46, SAME_DIRECTION),  # contains it, and far too much else
        (1.44, 1.50, 0.90, DIFFERS),
        (0.60, 0.70, 1.46, DIFFERS),
        (0.60, 0.70, 1.00, DIFFERS),
        (0.98, 1.03, 1.00, MATCHES),
        (0.98, 1.03, 1.46, DIFFERS),
        (0.70, 1.30, 1.46, NO_VERDICT),
    ],
)
def test_a_verdict_can_be_any_of_four(low: float, high: float, published: float, expected: str) -> None:
    ratio = Estimate((low + high) / 2, 8, low, high)
    assert verdict(ratio, published, simulated=True) == expected
    assert verdict(ratio, published, simulated=False) != MATCHES


def test_one_seed_has_no_verdict() -> None:
    assert verdict(Estimate(1.46, 1), 1.46, simulated=True) == NO_VERDICT


def test_the_ratio_is_that_of_the_means_over_the_seeds_that_both_have() -> None:
    found = ratio_of_means({1: 2.0, 2: 6.0, 3: 9.0}, {2: 3.0, 1: 2.0, 4: 1.0})
    assert found is not None
    assert (found.mean, found.n) == (8 / 5, 2)
    # e = 2 - 1.6 * 2 = -1.2 and 6 - 1.6 * 3 = 1.2; s = 1.2 sqrt(2); t(1) = 12.706.
    assert found.half_width == pytest.approx(12.7062 * 1.2 / 2.5, rel=1e-4)
    assert ratio_of_means({1: 2.0}, {2: 2.0}) is None
    assert ratio_of_means({1: 2.0}, {1: 0.0}) is None


@given(st.lists(st.floats(0.1, 50), min_size=2, max_size=9), st.floats(0.1, 10))
def test_what_the_jobs_of_a_seed_have_in_common_does_not_widen_the_interval(levels: list[float], ratio: float) -> None:
    found = ratio_of_means({i: ratio * v for i, v in enumerate(levels)}, dict(enumerate(levels)))
    assert found is not None
    assert found.mean == pytest.approx(ratio)
    assert found.half_width == pytest.approx(0, abs=1e-6)


def test_the_interval_covers_the_ratio_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    hits = 0
    for _ in range(400):
        level = rng.gamma(4, 1, 12)
        found = ratio_of_means(dict(enumerate(1.5 * level + rng.normal(0, 0.3, 12))), dict(enumerate(level)))
        assert found is not None
        hits += found.low <= 1.5 <= found.high
    assert 0.92 * 400 <= hits <= 0.98 * 400


def write_run(folder: Path, values: dict[str, list[float]], published: dict[str, float]) -> None:
    cells = []
    for policy, means in values.items():
        for seed, mean in enumerate(means, start=1):
            cell = folder / "cells" / f"{policy}-{seed}"
            cell.mkdir(parents=True)
            (cell / "manifest.json").write_text("{}")
            (cell / "summary.json").write_text(json.dumps({"jct_mean_s": mean}))
            entry = {"cell": cell.name, "folder": f"cells/{cell.name}", "policy": policy, "policy_name": policy}
            cells.append(entry | {"seed": seed, "point": {}})
    content = {
        "name": folder.name,
        "cells": cells,
        "published": {policy: {"jct_mean_s": value} for policy, value in published.items()},
        "experiment": {"report": {"reference": "a"}, "published_by": "simulator"},
    }
    (folder / "run.json").write_text(json.dumps(content))


def test_a_ratio_that_was_published_as_such_is_judged(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    write_run(folder, {"a": [10.0, 20.0, 30.0], "b": [20.1, 39.8, 60.1]}, {})
    content = json.loads((folder / "run.json").read_text())
    content["published"] = {"b": {"jct_mean_ratio": 1.46}}
    (folder / "run.json").write_text(json.dumps(content))
    (found,) = judge(read_run(folder), "jct_mean_h")
    assert (found.row, found.over, found.published, found.verdict) == ("b", "a", 1.46, SAME_DIRECTION)
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
    command = ["verdicts", str(tmp_path), "--page", str(page)]
    assert CliRunner().invoke(cli, [*command, "--check"]).exit_code == 1
    assert CliRunner().invoke(cli, command).exit_code == 0
    assert CliRunner().invoke(cli, [*command, "--check"]).exit_code == 0
    text = page.read_text()
    assert "| b | a | matches | 2 | 1.50 | 1.48 to 1.53 | 1.50 |" in text
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
    assert CliRunner().invoke(cli, ["verdicts", str(tmp_path), "--page", str(page)]).exit_code == 0
    text = page.read_text()
    assert "| a | every digit | 100.0 | 100.0 |" in text
    assert "| b | 0.17% off | 150.25 | 150.50 |" in text
    assert "| c | - | - | 7.0 |" in text


def test_what_cannot_be_filled_or_judged_is_said(tmp_path: Path) -> None:
    write_run(tmp_path / "one", {"a": [100], "b": [150]}, {"a": 10, "b": 15})
    bare = tmp_path / "bare.md"
    bare.write_text("No marks.")
    found = CliRunner().invoke(cli, ["verdicts", str(tmp_path), "--page", str(bare)])
    assert (found.exit_code, "has no table to fill" in found.output) == (2, True)
    assert CliRunner().invoke(cli, ["verdicts", str(tmp_path), "--check"]).exit_code == 2
    shown = CliRunner().invoke(cli, ["verdicts", str(tmp_path), "--metric", "jct_mean_s"])
    assert "no verdict" in shown.output


def test_metrics_on_a_page_may_hold_blanks_in_brackets() -> None:
    said = "rho_above_1 rho_above_1[all but ncf] jct_mean_h[cifar10]  rho_max"
    assert METRIC.findall(said) == ["rho_above_1", "rho_above_1[all but ncf]", "jct_mean_h[cifar10]", "rho_max"]
