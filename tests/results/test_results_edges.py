"""Small rules of the results that whole runs seldom meet."""

import gzip
import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from docs.verdicts import MATCHES, UNDECIDED, Ranked, judge
from simsched.engine.records import AllocationRecord, DecisionRecord, JobRecord, ReasonRecord
from simsched.errors import InputError
from simsched.policy.physics import Becomes
from simsched.results.arrow import read_arrow
from simsched.results.compare import (
    ALIKE,
    HIGHER,
    LOWER,
    OPEN,
    _verdict,
    comparison,
    paired_differences,
)
from simsched.results.league import p_value
from simsched.results.metric import Tables, integrals, means_by
from simsched.results.metrics import HEADLINE, METRICS, summarise
from simsched.results.reader import Cell, Run, read_cell, read_run, read_table
from simsched.results.rows import Feature
from simsched.results.statistics import Estimate
from simsched.results.stored import Manifest, read_json
from simsched.results.usage_metrics import _takes_parts
from simsched.results.what_was_run import _gpus
from simsched.results.writer import Part, TableWriter, error_of_cutting, join_tables
from tests.results.test_metrics import ALLOCATIONS, JOBS


def test_groups_that_say_no_numbers_hold_no_gpus():
    assert _gpus([{"gpus_per_node": 4}, {"nodes": 2}, {"nodes": 3, "gpus_per_node": 5}, "odd"]) == 15


@pytest.mark.parametrize(("gpus", "share", "parts"), [(1, 0.5, False), (1, 0.25, True), (2, 0.25, False)])
def test_uneven_shares_of_single_gpus_are_parts(gpus, share, parts):
    intervals = {"gpus": np.array([gpus]), "neighbours": np.array(["b"]), "gpu_share": np.array([share])}
    assert _takes_parts(intervals) is parts


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.75, 1.25, ALIKE),
        (0.75, 1.26, OPEN),
        (0.74, 1.25, OPEN),
        (1.0, 1.5, OPEN),
        (0.5, 1.0, OPEN),
        (1.01, 1.5, HIGHER),
        (0.5, 0.99, LOWER),
        (None, 1.0, OPEN),
        (1.0, None, OPEN),
    ],
)
def test_a_comparison_at_the_edges_of_its_interval(low, high, expected):
    assert _verdict(Estimate(1.0, 5, low, high), 0.25) == expected
    assert _verdict(None, 0.25) == OPEN


def cell(policy, seed, jct_s, **manifest):
    return Cell(Path("cell"), manifest, {"jct_mean_s": jct_s}, policy, policy, seed)


def test_copies_of_one_run_are_one_comparison():
    cells = [cell(policy, seed, jct_s, jobs_hash="x") for policy, jct_s in (("a", 10), ("b", 15)) for seed in (1, 2, 3)]
    (row,) = paired_differences(comparison(Run(Path("run"), "x", tuple(cells), {}, {})), "a")
    assert (row.differences["jct_mean_s"].absolute.n, row.differences["jct_mean_s"].absolute.mean) == (1, 5)
    other = [cell("b", 1, 15, jobs_hash="y"), *cells[4:]]
    (row,) = paired_differences(comparison(Run(Path("run"), "x", (*cells[:3], *other), {}, {})), "a")
    assert row.differences["jct_mean_s"].absolute.n == 3


def test_json_is_read_packed_too(tmp_path):
    (tmp_path / "one.json.gz").write_bytes(gzip.compress(b'{"a": 1}'))
    assert read_json(tmp_path / "one.json.gz") == {"a": 1}


def test_reasons_are_written_and_absent_columns_hold_their_defaults(tmp_path):
    with TableWriter(tmp_path / "plain", row_group_rows=2) as writer:
        for number in range(5):
            writer.job(JobRecord(f"j{number}", "ncf", "t", "u", "Pass", 1, 0, 0, 60, 160, 160, 100, 60, 30, 100, 0))
    with TableWriter(tmp_path, features=frozenset({Feature.FAILURES}), row_group_rows=2) as writer:
        writer.reason(ReasonRecord(5, "a", 0, 1, "2", "no room", "1 GPU free"))
        writer.extend("jobs", read_arrow(tmp_path / "plain", "jobs"))
        writer.extend("jobs", read_arrow(tmp_path / "plain", "jobs").slice(0, 2))
    assert read_table(tmp_path, "reasons").to_numpy().tolist() == [[5, "a", 0, 1, "2", "no room", "1 GPU free"]]
    jobs = read_table(tmp_path, "jobs")
    assert jobs["job_id"].tolist() == ["j0", "j1", "j2", "j3", "j4", "j0", "j1"]
    assert jobs[["attempts", "failures", "lost_s"]].to_numpy().tolist() == [[1, 0, 0]] * 7
    for folder, expected in ((tmp_path / "plain", [2, 2, 1]), (tmp_path, [2, 2, 2, 1])):
        found = pq.ParquetFile(folder / "jobs.parquet").metadata
        assert [found.row_group(place).num_rows for place in range(found.num_row_groups)] == expected


def test_differences_that_are_all_but_alike_are_certain_only_by_rounding():
    assert p_value(np.array([1e-6, 1e-6 + 1e-13])) > 0
    assert p_value(np.array([1e3, 1e3 + 1e-10])) == 0


def test_the_best_trials_have_a_spread_from_two_on():
    found = {
        count: summarise(Tables(JOBS, ALLOCATIONS, None, 4, accuracies=[90.0, 92.0][:count])) for count in (0, 1, 2)
    }
    assert [found[count].get("top5_accuracy") for count in (0, 1, 2)] == [None, 90, 91]
    assert [found[count].get("top5_accuracy_sd") for count in (0, 1, 2)] == [None, None, pytest.approx(np.sqrt(2))]


def test_work_of_jobs_that_held_gpus_for_less_than_a_second_counts():
    one = {"start_time_s": [0.0], "end_time_s": [1.0], "held_s": [0.5], "restart_s": [0.25], "checkpoint_s": [0.0],
           "lost_s": [0.0], "lost_gpu_s": [0.0], "attained_gpu_s": [1.0], "failures": [0], "attempts": [1]}  # fmt: skip
    # Two GPUs for half a second, of which half restarts: half a GPU-second in a second.
    assert METRICS["productive_gpus"].compute(Tables(pd.DataFrame(one), None, None, 3)) == 0.5


def test_text_may_be_of_any_script_but_no_half_of_a_pair(tmp_path):
    path = tmp_path / "one.json"
    path.write_text(json.dumps({"policy": {"name": "größe", "label": "調度"}}))
    assert read_json(path, Manifest)["policy"]["label"] == "調度"
    path.write_text('{"policy": {"name": "fifo", "label": "\\ud800"}}')
    with pytest.raises(InputError, match="invalid JSON"):
        read_json(path, Manifest)


def test_files_of_workloads_are_replications_and_other_sweeps_are_not():
    points = [{"workload": "a.csv", "load": 1}, {"workload": "b.csv", "load": 1}]
    cells = tuple(Cell(Path("cell"), {}, {"jct_mean_s": 1.0}, "a", "a", 1, point) for point in points)
    run = Run(Path("run"), "x", cells, {}, {})
    assert (run.swept, run.replicated_over) == (("workload", "load"), ("workload",))


def test_ratios_are_over_the_policy_that_the_experiment_names():
    cells = (cell("a", 1, 10), cell("b", 1, 20), cell("c", 1, 40))
    published = {name: {"jct_mean_s": value} for name, value in {"a": 1, "b": 2, "c": 4}.items()}
    for reference, expected in (("b", {"a": 0.5, "c": 2.0}), (None, {"b": 2.0, "c": 4.0})):
        experiment = {"report": {"reference": reference}} if reference else {}
        run = Run(Path("run"), "x", cells, published, experiment)
        found = {one.row: one.ratio.mean for one in judge(run, "jct_mean_s") if one.ratio is not None}
        assert found == expected, reference


def test_a_policy_counts_on_nothing_that_its_parameters_switch_off():
    packing = Becomes("shares no GPU", params={"packing": False, "most": 1})
    off, half, on = (SimpleNamespace(packing=one, most=other) for one, other in ((False, 1), (False, 2), (True, 2)))
    assert [packing.switched_off(policy) for policy in (off, half, on)] == [True, False, False]
    assert not Becomes("is as fifo", same_as="fifo", params={"packing": False}).switched_off(off)
    assert not Becomes("is as it is").switched_off(off)


def test_comparisons_show_first_what_is_always_shown():
    shown = [METRICS[name].shown for name in HEADLINE]
    assert shown == sorted(shown)  # "always" before "if there"
    assert {name for name, metric in METRICS.items() if not metric.shown}.isdisjoint(HEADLINE)
    assert {"jct_mean_s", "makespan_s", "gpu_utilisation", "deadlines_met"} <= set(HEADLINE)


def test_means_keep_what_additions_of_small_numbers_lose():
    # A plain sum of these is 1: each 1e-16 is lost by itself.
    values = np.array([1.0, *[1e-16] * 10_000, 5.0])
    names = np.array(["a"] * 10_001 + ["b"])
    assert means_by(names, values) == {"a": pytest.approx((1 + 1e-12) / 10_001, rel=1e-15), "b": 5}
    assert means_by(np.array(["b", "a", "b"]), np.array([1, 2, 4])) == {"a": 2, "b": 2.5}


def intervals_of(folder, rows):
    """Write intervals, given as job, start and end, in the order of their ends, and a decision at each second."""
    with TableWriter(folder) as writer:
        for job_id, start_s, end_s in rows:
            nothing = (0, 0, 0, 0, 0.0, 1.0, 0.0, 0.0)
            writer.allocation(AllocationRecord(job_id, start_s, end_s, 1, 1, "0:1", False, *nothing))
            times = (start_s, start_s, end_s, end_s - start_s)
            writer.job(JobRecord(job_id, "", "", "", "", 1, 0, *times, 0, 0, 0, 0, 0))
        for second in range(0, 41, 10):
            writer.decision(DecisionRecord(second, 1, 1, 1, 1, 1, 0, 0, 0, {}))
    return folder


def test_parts_that_follow_each_other_are_joined_by_the_ends_of_their_jobs(tmp_path):
    one = intervals_of(tmp_path / "one", [("a", 0, 10), ("b", 5, 25), ("warm", 25, 30)])
    other = intervals_of(tmp_path / "other", [("warm", 0, 19), ("c", 20, 24), ("d", 20, 25), ("e", 21, 39)])
    with TableWriter(tmp_path / "whole") as writer:
        join_tables([Part(one, ["a", "b"], 0, 20), Part(other, ["c", "d", "e"], 20)], writer)
    assert read_table(tmp_path / "whole", "jobs")["job_id"].tolist() == ["a", "c", "b", "d", "e"]
    held = read_table(tmp_path / "whole", "allocations")
    assert held["end_s"].tolist() == [10, 24, 25, 25, 39]
    assert read_table(tmp_path / "whole", "rounds")["time_s"].tolist() == [0, 10, 20, 30, 40]
    with TableWriter(tmp_path / "again") as writer:
        join_tables([Part(one)], writer)
    assert read_table(tmp_path / "again", "jobs")["job_id"].tolist() == ["a", "b", "warm"]
    assert not (tmp_path / "again" / "reasons.parquet").exists()
    with TableWriter(tmp_path / "told") as writer:
        writer.reason(ReasonRecord(5, "a", 0, 1, "2", "no room", "1 GPU free"))
    with TableWriter(tmp_path / "of one part") as writer:
        join_tables([Part(one), Part(tmp_path / "told")], writer)
    assert read_table(tmp_path / "of one part", "reasons")["job_id"].tolist() == ["a"]


def test_what_cutting_costs_is_told_of_the_same_jobs(tmp_path):
    cut = intervals_of(tmp_path / "cut", [("a", 0, 10), ("b", 5, 25), ("c", 0, 3), ("d", 0, 3), ("x", 0, 99)])
    uncut = intervals_of(tmp_path / "uncut", [("y", 0, 5), ("a", 0, 10), ("b", 5, 31), ("c", 0, 3), ("d", 0, 3)])
    assert error_of_cutting(Part(cut, ["a", "b", "c", "d"]), Part(uncut)) == {
        "jobs": 4, "same_end": 0.75, "largest_difference_s": 6, "jct_mean_s": 9, "uncut_jct_mean_s": 10.5,
        "queueing_mean_s": 0, "uncut_queueing_mean_s": 0,
    }  # fmt: skip


def test_the_largest_job_in_a_domain_is_a_mean_over_time():
    rounds = pd.DataFrame({"time_s": [10, 40], "fits_in_domain_gpus": [8, 3]})
    jobs = JOBS.assign(end_time_s=100)
    # The first value holds from second 0 on: (40 x 8 + 60 x 3) / 100.
    assert METRICS["room_in_domain"].compute(Tables(jobs, None, rounds, 8)) == 5
    for absent in (None, rounds.drop(columns="fits_in_domain_gpus")):
        assert METRICS["room_in_domain"].compute(Tables(jobs, None, absent, 8)) is None


def test_why_jobs_waited_is_told_with_how_often_and_their_places_in_line(tmp_path):
    with TableWriter(tmp_path, row_group_rows=9) as writer:
        for time, job, gpus, rank, why in (
            (0, "a", 0, 1, "no room"), (5, "a", 0, 3, "no room"), (9, "a", 0, 2, "another comes first"),
            (12, "a", 2, 1, ""), (0, "b", 0, 0, "no room"), (0, "c", 0, 2, "no room"), (5, "c", 0, 2, "no room"),
        ):  # fmt: skip
            writer.reason(ReasonRecord(time, job, gpus, rank, "", why, ""))
    for name in ("manifest", "summary"):
        (tmp_path / f"{name}.json").write_text("{}")
    assert read_cell(tmp_path).waits == {
        "a": "another comes first at 1 decision, place 2 in line; no room at 2 decisions, place 1 to 3 in line",
        "b": "no room at 1 decision",
        "c": "no room at 2 decisions, place 2 in line",
    }


def test_a_policy_without_any_result_is_lost():
    cells = tuple(Cell(Path(), {}, {}, policy) for policy in ("a", "b", "a"))
    failed = {"a, seed 1": "x", "c, seed 1": "x", "c, seed 2": "x", "d [load=1, seed=2], seed 1": "x"}
    run = Run(Path(), "r", cells, {}, {}, failed=failed)
    assert (run.policies, run.lost) == (("a", "b"), ("c", "d [load=1, seed=2]"))


def test_pairs_of_either_order_are_separated():
    assert Ranked("", 3, 4, 1, ("x",), ("y", "z")).separated == 2
    assert Ranked("", 3, 4, 2, (), ("y", "z")).verdict == MATCHES
    assert Ranked("", 3, 5, 2, (), ("x", "y", "z")).verdict == UNDECIDED


def test_integrals_of_nothing_are_nothing_in_each_bin():
    none = np.zeros(0)
    assert integrals(none, none, none, np.array([0.0, 1.0, 5.0])).tolist() == [0, 0]
    # Two from 0 to 4 and one from 2 to 3: by halves of 2.5 s 5 + 0.5 and 3 + 0.5.
    found = integrals(np.array([0.0, 2.0]), np.array([4.0, 3.0]), np.array([2.0, 1.0]), np.array([0.0, 2.5, 5.0]))
    assert found.tolist() == [5.5, 3.5]


def test_a_run_is_read_with_all_that_its_index_may_say(tmp_path):
    said = {
        "name": "r", "experiment": {"name": "e"}, "published": {"p": {"jct_mean_s": 1.0}}, "published_source": "s",
        "published_curves": [["f", "", "p", 1, 2]], "failed": {"q, seed 1": "crashed"}, "missing": ["c2"],
        "fairness": {"folder": "fairness", "definition": "gavel", "rounding": "floor", "batch": "best"},
        "cells": [{"cell": "c", "folder": "cells/c", "policy": "p *", "policy_name": "p", "seed": 3, "point": {"k": 1},
                   "own": {"o": 2}}],
    }  # fmt: skip
    (tmp_path / "cells" / "c").mkdir(parents=True)
    for name in ("manifest", "summary"):
        (tmp_path / "cells" / "c" / f"{name}.json").write_text("{}")
    (tmp_path / "run.json").write_text(json.dumps(said))
    run = read_run(tmp_path)
    (cell,) = run.cells
    assert (cell.policy, cell.policy_name, cell.seed, cell.point, cell.own) == ("p *", "p", 3, {"k": 1}, {"o": 2})
    assert (run.name, run.experiment, run.fairness["batch"], run.missing) == ("r", {"name": "e"}, "best", ("c2",))
    assert (run.published, run.published_source, run.failed) == (said["published"], "s", said["failed"])
    assert [tuple(one) for one in run.published_curves] == [("f", "", "p", 1, 2)]
    assert (run.changed, run.published_left_out) == ((), False)
    for change, holds in (("report.reference=p", True), ("cluster.nodes=3", False)):
        (tmp_path / "run.json").write_text(json.dumps({**said, "changed": [change]}))
        run = read_run(tmp_path)
        assert (run.changed, run.published_left_out, bool(run.published)) == ((change,), not holds, holds)
        assert (bool(run.published_source), bool(run.published_curves)) == (holds, holds)


@pytest.mark.parametrize(
    ("index", "said"),
    [
        (None, "is not the folder of a run: it has no run.json; name one that `simsched run` made"),
        ({"name": "r", "cells": [], "experiment": {}}, "lists no cells"),
        ({"name": "r", "experiment": {}, "cells": [{"cell": name, "folder": name, "policy": "p", "seed": 1, "point": {}}
                                                   for name in "ab"]}, "there is no such folder of results"),
    ],
)  # fmt: skip
def test_a_folder_that_is_no_run_is_refused(tmp_path, index, said):
    if index is not None:
        (tmp_path / "run.json").write_text(json.dumps(index))
    with pytest.raises(InputError, match=re.escape(said)) as caught:
        read_run(tmp_path)
    assert len(caught.value.problems) == max(len(index["cells"]) if index else 0, 1)
