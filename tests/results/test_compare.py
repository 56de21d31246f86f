import math

import pytest

from simsched.engine.records import JobRecord
from simsched.errors import InputError
from simsched.results.compare import comparison, paired_differences, row_name
from simsched.results.expected_times import compare_expected, read_expected
from simsched.results.metrics import range_of
from simsched.results.reader import Cell, Run, read_cell
from simsched.results.writer import TableWriter, write_json


def cell(tmp_path, policy, seed, jct, point=None):
    return Cell(tmp_path, {}, {"jct_mean_s": jct, "makespan_s": 10 * jct}, policy, policy, seed, point or {})


def run(tmp_path, cells, published=None):
    return Run(tmp_path, "tiny", tuple(cells), published or {}, {})


def test_intervals_keep_to_the_range_of_the_metric(tmp_path):
    names = {
        "gpu_utilisation[v100]": (0, 1),
        "top5_accuracy": (0, 100),
        "rho_jain": (0, 1),
        "jct_mean_s": (0, math.inf),
    }
    assert {name: range_of(name) for name in names} == names
    assert range_of("jct_mean_ratio") == (-math.inf, math.inf)
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


def test_in_a_sweep_published_values_belong_to_the_row_and_not_to_the_policy(tmp_path):
    cells = [cell(tmp_path, "p", 1, 10, {"a.x": x}) for x in (1, 2)]
    published = {"p [x=2]": {"jct_mean_s": 9}, "p": {"jct_mean_s": 1}}
    rows = comparison(run(tmp_path, cells, published))
    assert [row.published for row in rows] == [{}, {"jct_mean_s": 9}]


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


def test_an_exact_replay_is_exact(tmp_path):
    folder = folder_of(tmp_path, "w1", {"b": 20, "a": 10})
    (found,) = compare_expected(read_cell(folder), expected_csv(tmp_path, "w1,a,10\nw1,b,20\n"))
    assert found.exact
    assert (found.equal, found.largest_difference_s) == (2, 0)


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
    path = expected_csv(tmp_path, "w1,a,ten\nw1,b\n\nw1,c,5\nw1,c,6\n")
    with pytest.raises(InputError) as caught:
        read_expected(path)
    assert [(problem.line, problem.message) for problem in caught.value.problems] == [
        (2, "jct_s 'ten' is not a whole number of seconds"),
        (3, "has 2 fields instead of 3"),
        (6, "names the job 'c' of w1 a second time"),
    ]


def test_expectations_without_the_right_header_or_file_are_refused(tmp_path):
    (tmp_path / "x.csv").write_text("job,jct\n")
    with pytest.raises(InputError, match="does not begin with the columns"):
        read_expected(tmp_path / "x.csv")
    with pytest.raises(InputError, match="cannot be read"):
        read_expected(tmp_path / "none.csv")
