from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import special

from simsched.engine.records import JobRecord
from simsched.errors import InputError
from simsched.results.compare import (
    ALIKE,
    HIGHER,
    LOWER,
    OPEN,
    comparison,
    decide,
    kept,
    looks,
    paired_differences,
    plan,
    row_name,
    seeds_needed,
    undecided,
)
from simsched.results.expected_times import compare_expected, read_expected
from simsched.results.metric import Tables
from simsched.results.metrics import find_metric, summarise
from simsched.results.reader import Cell, Run
from simsched.results.writer import TableWriter, write_json


def cell(tmp_path, policy, seed, jct, point=None):
    return Cell(tmp_path, {}, {"jct_mean_s": jct, "makespan_s": 10 * jct}, policy, policy, seed, point or {})


def run(tmp_path, cells, published=None):
    return Run(tmp_path, "tiny", tuple(cells), published or {}, {})


def test_intervals_keep_to_the_range_of_the_metric(tmp_path):
    found = [{"gpu_utilisation": value, "queueing_mean_s": 100 - 99 * value} for value in (0.99, 1.0, 0.9)]
    cells = [Cell(tmp_path, {}, summary, "a", "a", seed, {}) for seed, summary in enumerate(found)]
    (row,) = comparison(run(tmp_path, cells))
    assert row.estimate("gpu_utilisation").high == 1
    assert row.estimate("queueing_mean_s").low == 0


def test_cells_are_gathered_per_policy_over_seeds_in_the_order_of_the_grid(tmp_path):
    cells = [cell(tmp_path, p, s, j) for s, p, j in [(1, "z", 10), (1, "a", 20), (2, "z", 14), (2, "a", 26)]]
    rows = comparison(run(tmp_path, cells))
    assert [row.name for row in rows] == ["z", "a"]
    assert rows[0].values["jct_mean_s"] == {(1,): 10, (2,): 14}
    assert rows[0].estimate("jct_mean_s").mean == 12
    assert rows[1].estimate("jct_mean_s").n == 2
    assert rows[1].estimate("no_such") is None


def test_each_point_of_a_sweep_is_a_row(tmp_path):
    cells = [cell(tmp_path, "p", 1, load, {"workload.load": load}) for load in (0.5, 1.0, 2.0)]
    rows = comparison(run(tmp_path, cells))
    assert [row.name for row in rows] == ["p [load=0.5]", "p [load=1.0]", "p [load=2.0]"]
    assert [row.point for row in rows] == [{"workload.load": load} for load in (0.5, 1.0, 2.0)]


def test_a_swept_key_can_count_as_replication(tmp_path):
    cells = [cell(tmp_path, "p", 1, jct, {"workload.path": name}) for name, jct in (("w1", 10), ("w2", 20))]
    (row,) = comparison(run(tmp_path, cells), replicate_over=["workload.path"])
    assert row.name == "p"
    assert row.estimate("jct_mean_s").mean == 15
    with pytest.raises(InputError, match=r"did you mean 'workload\.path'"):
        comparison(run(tmp_path, cells), replicate_over=["workload.paths"])


def test_keys_that_end_alike_are_written_in_full():
    assert row_name("p", {"a.x": 1, "b.x": 2, "c.y": 3}) == "p [a.x=1, b.x=2, y=3]"


def test_two_policies_under_one_label_are_refused(tmp_path):
    with pytest.raises(InputError, match="'p' has seed 1 twice"):
        comparison(run(tmp_path, [cell(tmp_path, "p", 1, 10), cell(tmp_path, "p", 1, 20)]))


def test_published_values_come_in_the_units_of_the_summaries(tmp_path):
    published = {"p": {"jct_mean_h": 2, "makespan_s": 5}}
    (row,) = comparison(run(tmp_path, [cell(tmp_path, "p", 1, 10)], published))
    assert row.published == {"jct_mean_s": 7200, "makespan_s": 5}


def test_differences_are_paired_by_seed_at_the_same_point(tmp_path):
    cells = [
        cell(tmp_path, policy, seed, jct, {"load": load})
        for load in (1, 2)
        for policy, seed, jct in [
            ("ref", 1, 100 * load),
            ("ref", 2, 300 * load),
            ("p", 1, 90 * load),
            ("p", 2, 270 * load),
        ]
    ]
    found = paired_differences(comparison(run(tmp_path, cells)), "ref", ["jct_mean_s"])
    assert [(one.row.name, one.reference.name) for one in found] == [
        ("p [load=1]", "ref [load=1]"),
        ("p [load=2]", "ref [load=2]"),
    ]
    assert [one.differences["jct_mean_s"].absolute.mean for one in found] == [-20, -40]
    assert found[1].differences["jct_mean_s"].relative.mean == pytest.approx(-0.1)


def test_a_reference_outside_the_sweep_stands_for_all_its_points(tmp_path):
    cells = [cell(tmp_path, "ref", 1, 100), *(cell(tmp_path, "p", 1, x, {"p.x": x}) for x in (50, 80))]
    found = paired_differences(comparison(run(tmp_path, cells)), "ref")
    assert [one.differences["jct_mean_s"].relative.mean for one in found] == [-0.5, -0.2]


def test_an_unknown_reference_is_refused(tmp_path):
    with pytest.raises(InputError, match="did you mean 'pollux'"):
        paired_differences(comparison(run(tmp_path, [cell(tmp_path, "pollux", 1, 1)])), "polux")


def folder_of(tmp_path, name, times):
    folder = tmp_path / name
    with TableWriter(folder, tables=("jobs",)) as writer:
        for job, jct in times.items():
            writer.job(JobRecord(job, "x", "", "", "", 1, 0, 0, 0, jct, jct, jct, 0, 0, jct, 0))
    write_json(folder / "manifest.json", {"workload": {"name": name}})
    write_json(folder / "summary.json", {})
    return folder


def expected_csv(tmp_path, text):
    path = tmp_path / "expected.csv"
    path.write_text("workload,job,jct_s\n" + text)
    return path


def test_jobs_are_counted_equal_and_different(tmp_path):
    folder = folder_of(tmp_path, "w1", {"a": 10, "b": 25, "c": 30})
    (found,) = compare_expected(folder, expected_csv(tmp_path, "w1,a,10\nw1,b,20\nw1,c,37\nw2,a,99\n"))
    assert found.workload == "w1"
    assert found.equal == 1
    assert [(job.job, job.seconds) for job in found.different] == [("b", 5), ("c", -7)]
    assert found.largest_difference_s == 7
    assert (found.expected_mean_s, found.found_mean_s) == (67 / 3, 65 / 3)
    assert not found.exact


def test_a_list_of_other_jobs_is_refused_with_its_lines(tmp_path):
    folder = folder_of(tmp_path, "w1", {"a": 10, "b": 25, "extra": 1})
    csv = expected_csv(tmp_path, "w1,a,10\nw2,gone,5\nw1,gone,5\nw1,b,25\n")
    with pytest.raises(InputError) as caught:
        compare_expected(folder, csv)
    assert [(problem.where, problem.line, problem.message) for problem in caught.value.problems] == [
        (str(csv), 4, "names the job 'gone', which the run of w1 does not have"),
        (str(csv), 0, "does not name the job 'extra', which the run of w1 has"),
    ]


def test_all_cells_of_a_run_are_compared(tmp_path):
    for name in ("w1", "w2", "w3"):
        folder_of(tmp_path / "cells", name, {"a": 10})
    cells = [
        {"cell": name, "policy": "p", "seed": 1, "point": {"workload.path": name}, "folder": f"cells/{name}"}
        for name in ("w1", "w2", "w3")
    ]
    write_json(tmp_path / "run.json", {"name": "replay", "cells": cells})
    found = compare_expected(tmp_path, expected_csv(tmp_path, "w1,a,10\nw2,a,11\n"))
    assert [(one.workload, one.exact) for one in found] == [("w1", True), ("w2", False)]


def test_a_workload_without_expectations_is_refused(tmp_path):
    folder = folder_of(tmp_path, "w9", {"a": 10})
    with pytest.raises(InputError, match="no jobs of the workload w9"):
        compare_expected(folder, expected_csv(tmp_path, "w1,a,10\n"))


def test_every_bad_row_of_the_expectations_is_named(tmp_path):
    path = expected_csv(tmp_path, "w1,a,ten\n\nw1,c,5\nw1,c,6\n")
    with pytest.raises(InputError) as caught:
        read_expected(path)
    assert [(problem.line, problem.message) for problem in caught.value.problems] == [
        (2, "jct_s is 'ten'; give a whole number from 0 up to 9007199254740992"),
        (5, "names the job 'c' of w1 a second time"),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("workload,job,jct_s\nw1,b\n", "has 2 fields"),
        ("job,jct\n", "are missing"),
        (None, "no such"),
    ],
)
def test_expectations_without_the_right_header_width_or_file_are_refused(tmp_path, text, said):
    if text is not None:
        (tmp_path / "x.csv").write_text(text)
    with pytest.raises(InputError, match=said):
        read_expected(tmp_path / "x.csv")


def run_of(tmp_path: Path, published: dict[str, dict[str, float]], reference: str | None) -> Run:
    times = {("a", 1): 10.0, ("a", 2): 30.0, ("b", 1): 5.0, ("b", 2): 10.0}
    cells = tuple(
        Cell(tmp_path, {}, {"jct_mean_s": jct, "jct_mean_s[x]": 2 * jct}, policy, policy, seed, {})
        for (policy, seed), jct in times.items()
    )
    experiment = {} if reference is None else {"report": {"reference": reference}}
    return Run(tmp_path, "tiny", cells, published, experiment)


def test_ratios_are_taken_seed_by_seed_where_they_were_published(tmp_path: Path) -> None:
    published = {"a": {"jct_mean_ratio": 2.4, "jct_mean_ratio[x]": 7}}
    first, second = comparison(run_of(tmp_path, published, "b"))
    assert first.values["jct_mean_ratio"] == {(1,): 2.0, (2,): 3.0}
    assert first.values["jct_mean_ratio[x]"] == {(1,): 2.0, (2,): 3.0}
    assert second.values["jct_mean_ratio"] == {(1,): 1.0, (2,): 1.0}
    assert first.published == {"jct_mean_ratio": 2.4, "jct_mean_ratio[x]": 7}
    assert "jct_mean_ratio" not in comparison(run_of(tmp_path, {}, "b"))[0].values


def test_without_a_reference_the_first_policy_is_the_one_to_divide_by(tmp_path: Path) -> None:
    first, second = comparison(run_of(tmp_path, {"b": {"jct_mean_ratio": 1}}, None))
    assert first.values["jct_mean_ratio"] == {(1,): 1.0, (2,): 1.0}
    assert second.values["jct_mean_ratio"] == {(1,): 0.5, (2,): pytest.approx(1 / 3)}


def test_a_ratio_has_a_name_without_a_unit() -> None:
    assert find_metric("makespan_ratio").key == "makespan_ratio"
    assert find_metric("jct_mean_ratio[x]").title == "mean JCT of x / reference's"
    assert find_metric("gpu_utilisation_ratio").unit == ""
    for wrong in ("gpu_utilisation_ratio[x]", "jct_p95_ratio[x]", "_ratio"):
        with pytest.raises(InputError, match="there is no metric"):
            find_metric(wrong)


def test_means_are_given_for_each_tenant_that_has_a_name() -> None:
    columns = ("jct_s", "application", "tenant", "end_time_s", "attained_gpu_s", "restart_s", "held_s", "restarts")
    rows = [(10, "m", "", 10, 10, 0, 10, 0), (30, "m", "t", 40, 30, 0, 30, 0), (50, "n", "t", 90, 50, 0, 50, 0)]
    table = pd.DataFrame(rows, columns=list(columns)).assign(queueing_s=0)
    summary = summarise(Tables(table, None, None, 1))
    assert summary["jct_mean_s[t]"] == 40
    assert summary["jct_mean_s[m]"] == 20
    assert "jct_mean_s[]" not in summary


def run_of_times(**values):
    """Return a run with the mean JCT of each policy by seed; the first is the reference."""
    cells = [
        Cell(None, {}, {"jct_mean_s": float(value)}, policy, policy, seed)
        for policy, by_seed in values.items()
        for seed, value in enumerate(by_seed, start=1)
    ]
    return Run(None, "x", tuple(cells), {}, {})


def test_looks_double_up_to_the_budget() -> None:
    assert looks(64) == (8, 16, 32, 64)
    assert looks(50) == (8, 16, 32, 50)
    assert looks(8) == (8,)
    assert looks(3) == (3,)


def test_a_comparison_is_decided_by_its_interval() -> None:
    ones = np.ones(8)
    noise = np.exp(np.array([-1, 1, -1, 1, -1, 1, -1, 1]) / 100)
    run = run_of_times(
        a=ones, b=ones * noise * 2, c=ones * noise / 2, d=ones * noise ** (1 / 10), e=np.exp(8 * np.log(noise) * 10)
    )
    assert [one.verdict for one in decide(run, "jct_mean_s", (8,), 0.02)] == [HIGHER, LOWER, ALIKE, OPEN]
    assert [one.reference for one in decide(run, "jct_mean_h", (8,), 0.02)] == ["a"] * 4


def test_intervals_share_the_error_between_comparisons_and_looks() -> None:
    # two comparisons, three looks: confidence 1 - .05 / 6; logs 1, 2, 3 have mean 2 and standard error 1 / sqrt(3)
    run = run_of_times(a=[1, 1, 1], b=np.exp([1, 2, 3]), c=[1, 2, 3])
    found = decide(run, "jct_mean_s", (3, 6, 12), 0.02)[0].ratio
    half = special.stdtrit(2, 1 - 0.05 / 12) / math.sqrt(3)
    assert (found.low, found.high) == pytest.approx((math.exp(2 - half), math.exp(2 + half)))


def test_what_is_decided_stays_so() -> None:
    early = decide(run_of_times(a=[1, 1], b=[2.0, 2.0000001]), "jct_mean_s", (2,), 0.02)
    late = decide(run_of_times(a=[1, 1], b=[0.2, 20]), "jct_mean_s", (2,), 0.02)
    assert [one.verdict for one in early] == [HIGHER]
    assert list(undecided(late)) == ["b"]
    assert undecided(kept(early, late)) == {}


def test_looking_again_costs_no_error() -> None:
    """Of 300 comparisons of equals, looked at up to four times, at most 5 % (and chance) are ever told apart."""
    rng = np.random.default_rng(29)
    planned, wrong = looks(64), 0
    for _ in range(300):
        logs = rng.standard_normal(64)
        told = False
        for count in planned:
            part = run_of_times(a=np.ones(count), b=np.exp(logs[:count]))
            told |= decide(part, "jct_mean_s", planned, 0.0)[0].verdict in (LOWER, HIGHER)
        wrong += told
    assert wrong <= 300 * 0.05 + 3 * math.sqrt(300 * 0.05 * 0.95)


def test_the_plan_finds_what_it_promises() -> None:
    """With so many seeds a difference of that size is found with the chance that was asked for."""
    spread, difference, pilot = 0.2, 0.05, 10_000  # so large a pilot knows the spread
    needed = seeds_needed(spread, pilot, difference, 0.05)
    # the power of the t-test, from the noncentral distribution (Lehmann, Testing Statistical Hypotheses)
    shift = math.sqrt(needed) * math.log(1.05) / spread
    missed = special.nctdtr(needed - 1, shift, special.stdtrit(needed - 1, 0.975))
    assert 1 - missed == pytest.approx(0.8, abs=0.015)
    assert seeds_needed(spread, 8, difference, 0.05) > needed, "a small pilot may have been lucky"


def test_the_bound_of_a_pilot_is_that_of_the_chi_square() -> None:
    # of 8 seeds the spread is at most s sqrt(7 / 3.822) in 80 % of all pilots: chi-square with 7 degrees, lower 20 %
    assert seeds_needed(0.1, 8, 0.05, 0.05) == seeds_needed(0.1 * math.sqrt(7 / 3.82232), 10**9, 0.05, 0.05)


def test_a_pilot_says_how_many_seeds_are_needed() -> None:
    run = run_of_times(a=[1, 1, 1, 1], b=np.exp([0.1, 0.3, 0.2, 0.2]), c=[1, 1, 1, 0])
    b, c = plan(run, "jct_mean_s", 0.05)
    assert (b.seeds, b.spread) == (4, pytest.approx(np.std([0.1, 0.3, 0.2, 0.2], ddof=1)))
    assert b.needed == seeds_needed(b.spread, 4, 0.05, 0.025)
    assert (c.spread, c.needed) == (None, None)


@pytest.mark.parametrize("spread", [1e-9, 0.03, 0.09, 0.2, 0.5, 0.8])
def test_no_fewer_seeds_are_planned_than_are_needed(spread: float) -> None:
    # sqrt(n) log(1.1) against the bound of the spread of 5 seeds times the quantiles, for every n in turn
    bound = spread * math.sqrt(4 / special.chdtri(4, 0.8))
    n = np.arange(2, 2000)
    enough = np.sqrt(n) * math.log(1.1) >= bound * (special.stdtrit(n - 1, 1 - 0.03 / 2) + special.stdtrit(n - 1, 0.8))
    assert seeds_needed(spread, 5, 0.1, 0.03) == n[enough][0]


def test_a_spread_beyond_all_plans_needs_no_number() -> None:
    assert seeds_needed(5.0, 5, 0.1, 0.05) is not None
    assert seeds_needed(100.0, 5, 0.01, 0.05) is None


def test_a_pilot_is_of_ratios_to_the_reference_above_zero() -> None:
    run = run_of_times(a=[4, 2, 4], b=[2, 0.5, 2], c=[0.5, 0, 2], d=[4, 2], e=[4])
    b, c, d, e = plan(run, "jct_mean_s", 0.05)
    assert b.spread == pytest.approx(math.log(2) / math.sqrt(3))  # logs of 1/2, 1/4, 1/2
    assert (c.seeds, c.spread, c.needed) == (3, None, None)
    assert (d.seeds, d.spread, d.needed) == (2, 0.0, 2)
    assert (e.seeds, e.spread, e.needed) == (1, None, None)


def test_nothing_is_decided_of_one_policy() -> None:
    with pytest.raises(InputError, match="compares nothing with 'a'"):
        decide(run_of_times(a=[1, 2]), "jct_mean_s", (2,), 0.02)
