"""Runs in formats that other tools open, by the definitions of these formats."""

from __future__ import annotations

import gzip
import json
import re
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from simsched.report import batsim_jobs, write_perfetto
from simsched.results import Cell
from simsched.workload.readers import read_trace

pytestmark = pytest.mark.usefixtures("in_this_process")

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "look-closer.md").read_text(encoding="utf-8")
#: Names of metrics that MLflow takes, by its documentation of `log_metric`.
MLFLOW_NAME = re.compile(r"[/\w.\- ]{1,250}")
RUN = ("run", "tiny.yaml", "-o", "seeds=1", "-j", "1", "--no-plots")


def job(name, gpus, submit, start, end, restarts=0, status=""):
    return {
        "job_id": name, "application": "cifar10", "tenant": "vision", "status": status, "num_gpus": gpus,
        "submit_time_s": submit, "start_time_s": start, "end_time_s": end, "restarts": restarts,
    }  # fmt: skip


def held(name, start, end, placement, restarting=False):
    return {"job_id": name, "start_s": start, "end_s": end, "placement": placement, "restarting": restarting}


class Made(Cell):
    """A cell whose tables are made by hand: two nodes of two GPUs, of which the second fails at second 50."""

    def table(self, name, columns=None):
        rows = {
            "jobs": [job("a", 2, 0, 0, 100), job("b", 1, 5, 10, 90, 1, "Failed")],
            "allocations": [
                held("a", 0, 10, "0:2", restarting=True),
                held("a", 10, 100, "0:2"),
                held("b", 10, 50, "1:1"),
                held("b", 60, 65, "1:1", restarting=True),
                held("b", 65, 90, "1:1"),
            ],
            "outages": [{"node": 1, "start_s": 50, "end_s": 60, "kind": "node failure", "ended": True}],
        }[name]
        table = pd.DataFrame(rows)
        return table if columns is None else table[list(columns)]


@pytest.fixture
def cell(tmp_path):
    manifest = {"cluster": [{"nodes": 2, "gpus_per_node": 2, "gpu_type": "t4"}], "workload": "made"}
    return Made(tmp_path, manifest, {}, policy="fifo", seed=7)


def events_of(path):
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return json.loads(data)["traceEvents"]


def test_a_node_is_a_process_a_gpu_a_thread_and_a_stay_a_slice(cell, tmp_path):
    assert write_perfetto(cell, tmp_path / "a.json.gz") == 7  # 2 + 1 + 1 stays of jobs on GPUs, 3 starts
    events = events_of(tmp_path / "a.json.gz")
    names = {(e["name"], e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"].endswith("_name")}
    assert names == {
        ("process_name", 1, 0): "node 0",
        ("thread_name", 1, 1): "GPU 0",
        ("thread_name", 1, 2): "GPU 1",
        ("process_name", 2, 0): "node 1",
        ("thread_name", 2, 1): "GPU 0",
    }
    jobs = [
        (e["name"], e["pid"], e["tid"], e["ts"], e["dur"], e["args"]["start"], e["args"]["ended"])
        for e in events
        if e["ph"] == "X" and e["cat"] == "job"
    ]
    assert jobs == [
        ("a", 1, 1, 0, 100_000_000, 1, "completed"),
        ("a", 1, 2, 0, 100_000_000, 1, "completed"),
        ("b", 2, 1, 10_000_000, 40_000_000, 1, "node failure"),
        ("b", 2, 1, 60_000_000, 30_000_000, 2, "completed"),
    ]
    starts = [(e["name"], e["tid"], e["ts"], e["dur"]) for e in events if e["ph"] == "X" and e["cat"] != "job"]
    assert starts == [
        ("start", 1, 0, 10_000_000),
        ("start", 2, 0, 10_000_000),
        ("restart", 1, 60_000_000, 5_000_000),
    ]
    outage = [(e["ph"], e["name"], e["pid"], e["ts"]) for e in events if e["ph"] in "be"]
    assert outage == [("b", "node failure", 2, 50_000_000), ("e", "node failure", 2, 60_000_000)]


def test_the_same_cell_gives_the_same_bytes_packed_or_not(cell, tmp_path):
    for name in ("a.json", "a.json.gz", "b.json.gz"):
        write_perfetto(cell, tmp_path / name)
    assert events_of(tmp_path / "a.json") == events_of(tmp_path / "a.json.gz")
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


def test_jobs_have_the_columns_of_batsim_and_its_equations_hold(cell):
    lines = batsim_jobs(cell).splitlines()
    assert lines == [
        "job_id,workload_name,profile,submission_time,requested_number_of_resources,requested_time,success,final_state,"
        "starting_time,execution_time,finish_time,waiting_time,turnaround_time,stretch,allocated_resources,"
        "consumed_energy,metadata",
        "a,made,cifar10,0,2,-1,1,COMPLETED_SUCCESSFULLY,0,100,100,0,100,1.0,0-1,-1,",
        "b,made,cifar10,5,1,-1,0,COMPLETED_FAILED,10,80,90,5,85,1.0625,2,-1,",
    ]


def test_a_run_goes_out_and_its_jobs_come_back_as_a_trace(simsched, folder):
    assert simsched(*RUN).exit_code == 0
    (run,) = (folder / "results").iterdir()
    for layout, ending in (("perfetto", ".json.gz"), ("swf", ".swf"), ("batsim", "_jobs.csv")):
        done = simsched("export", str(run), "--to", layout)
        assert done.exit_code == 0, done.output
        assert sorted(path.name for path in (run / "exports").glob(f"*{ending}")) == [
            f"{policy}-seed-1{ending}" for policy in ("fifo", "tiresias")
        ]
    jobs = pd.read_csv(run / "exports" / "fifo-seed-1_jobs.csv").sort_values("submission_time", kind="stable")
    back = read_trace(run / "exports" / "fifo-seed-1.swf").table
    assert back["num_gpus"].tolist() == jobs["requested_number_of_resources"].tolist()
    assert back["duration_s"].tolist() == jobs["execution_time"].tolist()  # FIFO never takes a job off its GPUs
    assert (back["status"] == "Pass").all()
    text = (run / "exports" / "fifo-seed-1.swf").read_text()
    assert "; MaxProcs: 8\n" in text
    assert "; Preemption: No\n" in text
    waits = [int(line.split()[2]) for line in text.splitlines() if not line.startswith(";")]
    assert waits == jobs["waiting_time"].tolist()


def test_only_what_is_asked_for_is_written_and_wrong_names_are_refused(simsched, folder):
    assert simsched(*RUN).exit_code == 0
    (run,) = (folder / "results").iterdir()
    done = simsched("export", str(run), "--to", "batsim", "--policy", "fifo", "--seed", "1", "--out", "there")
    assert done.output.splitlines() == ["there/fifo-seed-1_jobs.csv: 10 jobs"]
    for wrong in (["--policy", "fofi"], ["--seed", "9"]):
        done = simsched("export", str(run), "--to", "batsim", *wrong)
        assert done.exit_code == 2
        assert wrong[1] in done.output
    (folder / "file").write_text("")
    assert simsched("export", str(run), "--to", "swf", "--out", "file").exit_code == 2


def test_the_page_hands_every_metric_to_mlflow_under_a_name_that_it_takes(simsched, folder, monkeypatch):
    assert simsched(*RUN, "--name", "first").exit_code == 0
    logged, parameters = [], []
    mlflow = SimpleNamespace(
        start_run=lambda run_name: nullcontext(), log_params=parameters.append, log_metrics=logged.append
    )
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    (code,) = (one for one in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "import mlflow" in one)
    exec(compile(code, "look-closer.md", "exec"), {})
    assert parameters == [{"policy": "fifo", "seed": 1}, {"policy": "tiresias", "seed": 1}]
    assert all(MLFLOW_NAME.fullmatch(name) for metrics in logged for name in metrics)
    assert all(metrics["finished_jobs"] == 10 and "jct_mean_s/fixed-duration" in metrics for metrics in logged)


def test_the_line_of_sql_reads_all_runs_of_a_folder(simsched, folder):
    duckdb = pytest.importorskip("duckdb", reason="needs the package duckdb")
    assert simsched(*RUN, "-o", "sweep={cluster.nodes: [2, 3]}", "--name", "first").exit_code == 0
    assert simsched(*RUN, "--name", "second").exit_code == 0
    (line,) = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
    rows = duckdb.sql(line).fetchall()
    assert [(row[0], row[1], row[3], row[4]) for row in rows] == [
        *[(run, policy, 1, 10) for run, policy in (("tiny", "fifo"), ("tiny", "tiresias")) for _ in range(3)]
    ]


def test_gpus_are_numbered_through_all_nodes_and_shared_ones_have_one_number(tmp_path):
    class Shared(Made):
        def table(self, name, columns=None):
            jobs = [job("wide", 3, 0, 0, 50), job("late", 1, 0, 50, 90), job("guest", 2, 0, 10, 40)]
            allocations = [held("wide", 0, 50, "0:2 1:1"), held("guest", 10, 40, "0:2"), held("late", 50, 90, "1:1")]
            table = pd.DataFrame({"jobs": jobs, "allocations": allocations}[name])
            return table if columns is None else table[list(columns)]

    manifest = {"cluster": [{"nodes": 1, "gpus_per_node": 2}, {"nodes": 1, "gpus_per_node": 4}]}
    rows = [line.split(",") for line in batsim_jobs(Shared(tmp_path, manifest, {})).splitlines()]
    place = rows[0].index("allocated_resources")
    assert [(row[0], row[place]) for row in rows[1:]] == [("wide", "0-2"), ("late", "2"), ("guest", "0-1")]
