"""Small rules of the results that whole runs seldom meet."""

import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from simsched.engine.records import JobRecord, ReasonRecord
from simsched.errors import InputError
from simsched.results.arrow_tables import read_arrow
from simsched.results.by_type import summarise_types
from simsched.results.compare import comparison, paired_differences
from simsched.results.compare_runs import compare_runs
from simsched.results.integrity import faults, seal
from simsched.results.metrics import summarise
from simsched.results.reader import Cell, Run, read_table
from simsched.results.rows import Feature
from simsched.results.sequential import ALIKE, HIGHER, LOWER, OPEN, _verdict
from simsched.results.standings import standings
from simsched.results.statistics import Estimate
from simsched.results.stays import node_sizes
from simsched.results.stored import read_json
from simsched.results.usage_metrics import _takes_parts
from simsched.results.verdicts import DIFFERS, EXCLUDED, MATCHES, SAME_DIRECTION, UNDECIDED, verdict
from simsched.results.what_was_run import _gpus
from simsched.results.writer import TableWriter
from tests.unit.test_metrics import ALLOCATIONS, JOBS
from tests.unit.test_standings import entry, league


def test_nodes_that_no_interval_shows_have_a_gpu():
    assert node_sizes(None, [pd.DataFrame({"placement": ["1:3", "1:2 3:4"]})]) == [1, 3, 1, 4]


def test_groups_that_say_no_numbers_hold_no_gpus():
    assert _gpus([{"gpus_per_node": 4}, {"nodes": 2}, {"nodes": 3, "gpus_per_node": 5}, "odd"]) == 15


@pytest.mark.parametrize(("gpus", "share", "parts"), [(1, 0.5, False), (1, 0.25, True), (2, 0.25, False)])
def test_uneven_shares_of_single_gpus_are_parts(gpus, share, parts):
    intervals = {"gpus": np.array([gpus]), "neighbours": np.array(["b"]), "gpu_share": np.array([share])}
    assert _takes_parts(intervals) is parts


def test_restarts_are_counted_by_the_hour_held():
    # 4 restarts in 100 + 150 + 200 + 750 s.
    found = summarise(JOBS, ALLOCATIONS, None, 4)
    assert found["restarts_per_hour"] == pytest.approx(4 / (1200 / 3600))


@pytest.mark.parametrize(
    ("low", "high", "published", "expected"),
    [
        # Intervals are closed, 1 is on no side, and 20 % wide is not yet too wide nor 10 % narrow enough to match.
        (1.01, 1.05, 1.0, DIFFERS),
        (0.95, 0.99, 1.0, DIFFERS),
        (0.95, 0.99, 1.01, DIFFERS),
        (1.01, 1.05, 0.99, DIFFERS),
        (1.0, 1.05, 0.99, DIFFERS),
        (0.95, 1.0, 1.01, DIFFERS),
        (1.0, 1.05, 1.05, MATCHES),
        (0.95, 1.0, 0.95, MATCHES),
        (1.125, 1.375, 1.2, SAME_DIRECTION),
        (1.1875, 1.3125, 1.2, SAME_DIRECTION),
        (1.125, 1.375, 1.376, EXCLUDED),
        (1.125, 1.376, 1.2, UNDECIDED),
        (1.0, 1.2, 1.1, UNDECIDED),
    ],
)
def test_verdicts_at_the_edges_of_intervals(low, high, published, expected):
    assert verdict(Estimate((low + high) / 2, 5, low, high), published, simulated=True) == expected


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


def test_runs_without_a_metric_are_not_compared_by_it():
    run = Run(Path("run"), "x", (cell("a", 1, 10, workload={"name": "w"}),), {}, {})
    with pytest.raises(InputError, match="its summary has no 'makespan_s'"):
        compare_runs(run, run, ["makespan_s"])


def test_a_sealed_manifest_that_lists_no_files_is_told(tmp_path):
    (tmp_path / "summary.json").write_text("{}")
    seal(tmp_path, {})
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert faults(tmp_path) == []
    (tmp_path / "summary.json").unlink()
    seal(tmp_path, {})
    assert faults(tmp_path) == ["summary.json is not listed in manifest.json"]
    assert manifest["files"]["summary.json"]["bytes"] == 2


def test_intervals_of_standings_need_two_seeds_that_agree():
    of_class = "non-clairvoyant, rigid"
    one = league(entry("w.x", "a", [1]), entry("w.x", "b", [4]), seeds=1)
    assert standings(one, of_class, ("w.x",)).rows[1].ratio == Estimate(4.0, 1)
    # Two seeds of logarithms 0 and 2 give t(1) x 1 / 1 = 12.7 times that: a factor of e^12 either way says nothing.
    two = league(entry("w.x", "a", [1, 1]), entry("w.x", "b", [1, np.exp(2)]), seeds=2)
    assert standings(two, of_class, ("w.x",)).rows[1].ratio == Estimate(pytest.approx(np.e), 2)


def test_json_is_read_packed_too(tmp_path):
    (tmp_path / "one.json.gz").write_bytes(gzip.compress(b'{"a": 1}'))
    assert read_json(tmp_path / "one.json.gz") == {"a": 1}


def test_reasons_are_written_and_absent_columns_hold_their_defaults(tmp_path):
    with TableWriter(tmp_path / "plain", row_group_rows=5) as writer:
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
    groups = pq.ParquetFile(tmp_path / "jobs.parquet")
    assert [groups.metadata.row_group(place).num_rows for place in range(groups.num_row_groups)] == [2, 2, 2, 1]


def test_a_type_that_nobody_held_worked_no_hours():
    groups = [{"gpu_type": kind, "nodes": 1, "gpus_per_node": 2} for kind in ("t4", "v100")]
    jobs = pd.DataFrame({"job_id": ["a"], "jct_s": [100.0], "end_time_s": [100.0]})
    held = {"job_id": ["a"], "start_s": [28.0], "end_s": [100.0], "gpus": [1], "placement": ["1:1"]}
    assert summarise_types(jobs, pd.DataFrame(held), groups) == {
        "gpu_hours[t4]": 0, "gpu_utilisation[t4]": 0, "gpu_hours[v100]": 0.02, "gpu_utilisation[v100]": 0.36,
        "jct_mean_s[v100]": 100,
    }  # fmt: skip
