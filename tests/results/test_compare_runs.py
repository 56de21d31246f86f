"""Two runs beside each other: means over seeds and workloads, largest differences, rankings."""

from pathlib import Path

import pytest

from simsched.errors import InputError
from simsched.results.compare import Pair, compare_runs
from simsched.results.reader import Cell, Run


def cell(policy, workload, jct_s, seed=1, point=None):
    summary = {"jct_mean_s": jct_s, "jct_p99_s": 2 * jct_s, "makespan_s": 3 * jct_s}
    return Cell(Path("cell"), {"workload": {"name": workload}}, summary, policy, policy, seed, point or {})


def run(*cells):
    return Run(Path("run"), "run", cells, {}, {})


ONE = run(
    cell("a", "w1", 3600),
    cell("a", "w1", 10800, seed=2),
    cell("b", "w1", 14400),
    cell("a", "w2", 3600),
    cell("b", "w2", 1800),
)
OTHER = run(
    cell("a", "w1", 3600), cell("b", "w1", 7200), cell("a", "w2", 7200), cell("b", "w2", 14400), cell("c", "w2", 1)
)


def test_values_are_means_over_seeds_then_over_workloads():
    found = compare_runs(ONE, OTHER, ["jct_mean_h"])
    a, b = found.lines
    assert (a.policy, a.mean.one, a.mean.other) == ("a", (2 + 1) / 2, (1 + 2) / 2)
    assert (b.policy, b.mean.one, b.mean.other) == ("b", (4 + 0.5) / 2, (2 + 4) / 2)
    assert b.mean.relative == pytest.approx(-0.25)


def test_the_largest_difference_is_that_of_one_workload_with_its_sign():
    a, b = compare_runs(ONE, OTHER, ["jct_mean_h"]).lines
    assert (a.largest, b.largest) == (1.0, 1.0)
    assert {name: pair.relative for name, pair in b.by_workload.items()} == {"w1": 1.0, "w2": -0.875}


def test_rankings_are_of_the_policies_that_both_runs_have():
    first, second = compare_runs(ONE, OTHER).rankings
    assert (first.workload, first.one, first.other, first.same) == ("w1", ("a", "b"), ("a", "b"), True)
    assert (second.one, second.other, second.same) == (("b", "a"), ("a", "b"), False)


def test_the_default_metrics_are_those_of_the_validation():
    assert [line.metric.key for line in compare_runs(ONE, OTHER).lines[:3]] == ["jct_mean_s", "jct_p99_s", "makespan_s"]


@pytest.mark.parametrize(
    ("other", "metrics", "said"),
    [
        (run(cell("a", "w9", 1)), ["jct_mean_h"], "a, b on w1, w2; run has a on w9"),
        (OTHER, ["jct_men_h"], "there is no metric 'jct_men_h'"),
        (OTHER, ["decisions"], "its summary has no 'decisions'"),
        (run(cell("a", "w1", 1, point={"workload.load": 2})), ["jct_mean_h"], "sweeps 'workload.load'"),
    ],
)
def test_runs_that_cannot_be_compared_are_refused(other, metrics, said):
    with pytest.raises(InputError, match=said):
        compare_runs(ONE, other, metrics)


@pytest.mark.parametrize(("one", "other", "relative"), [(3.0, 2.0, 0.5), (1.0, 2.0, -0.5), (3.0, 0.0, 0.0)])
def test_a_pair_is_the_first_relative_to_the_second(one, other, relative):
    assert Pair(one, other).relative == relative
