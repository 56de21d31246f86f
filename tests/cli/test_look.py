"""Commands that only look at things: lists, results, traces, workloads, applications, policies."""

import json

import pytest

pytestmark = pytest.mark.usefixtures("in_this_process")


@pytest.fixture
def run_folder(simsched, folder):
    done = simsched("run", "tiny.yaml", "--workers", "1")
    assert done.exit_code == 0, done.output
    return folder / "results" / "tiny"


def test_a_run_and_a_cell_can_be_shown(simsched, run_folder):
    assert "tiresias" in simsched("show", str(run_folder)).stdout
    cell = next((run_folder / "cells").iterdir())
    shown = simsched("show", str(cell), "-m", "makespan_min").stdout.splitlines()
    summary = json.loads((cell / "summary.json").read_text())
    assert shown[0].startswith(("fifo, seed", "tiresias, seed"))
    assert shown[-1].split() == ["makespan", f"{summary['makespan_s'] / 60:.6g}", "min"]
    assert json.loads(simsched("show", str(cell), "--json").stdout)["summary"] == summary


def test_policies_are_compared_with_the_reference_named(simsched, run_folder):
    text = simsched("compare", str(run_folder), "--reference", "tiresias", "-m", "jct_mean_s").stdout
    assert "Difference from tiresias" in text
    wrong = simsched("compare", str(run_folder), "--reference", "tiresas")
    assert wrong.exit_code == 2
    assert wrong.stdout == ""
    assert "did you mean 'tiresias'?" in wrong.stderr


def test_the_timeline_of_a_job_is_drawn_and_an_unknown_job_refused(simsched, run_folder):
    import pandas as pd

    cell = next((run_folder / "cells").iterdir())
    manifest = json.loads((cell / "manifest.json").read_text())
    job = pd.read_parquet(cell / "jobs.parquet")["job_id"].iloc[0]
    drawn = simsched("plot", str(run_folder), "--job", job, "--seed", str(manifest["seed"]))
    assert drawn.exit_code == 0, drawn.output
    assert f"job-{job}.png" in drawn.stdout
    refused = simsched("plot", str(run_folder), "--job", "nobody")
    assert refused.exit_code == 2
    assert "no job is called 'nobody'" in refused.stderr


def test_an_experiment_is_validated_without_running(simsched, folder):
    done = simsched("validate", "tiny.yaml")
    assert done.stdout == "tiny.yaml: valid; 4 cells of 10 jobs\n"
    assert not (folder / "results").exists()
    assert json.loads(simsched("validate", "tiny.yaml", "--json").stdout)["distinct"] == 4


def test_the_schema_is_json(simsched):
    assert json.loads(simsched("schema").stdout)["title"] == "simsched experiment"


def test_a_trace_is_described_and_pictured(simsched, folder):
    done = simsched("trace", "info", "jobs.csv")
    assert done.exit_code == 0, done.output
    assert "mean 2.50, at most 4" in done.stdout
    assert (folder / "figures" / "trace-jobs.png").is_file()
    assert json.loads(simsched("trace", "info", "jobs.csv", "--json", "--no-plots").stdout)["jobs"] == 12


def test_a_trace_is_compared_with_a_cluster(simsched, folder):
    (folder / "c.yaml").write_text("nodes: 1\ngpus_per_node: 2\ngpu_type: t4\n")
    done = simsched("trace", "info", "jobs.csv", "--no-plots", "--cluster", "c.yaml")
    assert done.exit_code == 0, done.output
    assert "can never have run on these nodes: 4 GPUs (" in done.stderr
    demand = json.loads(simsched("trace", "info", "jobs.csv", "--no-plots", "--json", "--cluster", "c.yaml").stdout)[
        "demand"
    ]
    assert demand["types"][0]["gpus"] == 2
    (folder / "nodes.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\nn0,64000,1000,8,T4\n")
    assert "warning" not in simsched("trace", "info", "jobs.csv", "--no-plots", "--cluster", "nodes.csv").stderr


def test_a_trace_is_generated_by_its_seed_and_converted(simsched, folder):
    for name, seed in (("a.csv", "1"), ("b.csv", "1"), ("c.csv", "2")):
        assert simsched("trace", "generate", name, "--seed", seed, "--jobs", "50").exit_code == 0
    assert (folder / "a.csv").read_bytes() == (folder / "b.csv").read_bytes()
    assert (folder / "a.csv").read_bytes() != (folder / "c.csv").read_bytes()
    assert simsched("trace", "convert", "a.csv", "d.csv.gz").stdout == "d.csv.gz: 50 jobs\n"
    assert json.loads(simsched("trace", "info", "d.csv.gz", "--json", "--no-plots").stdout)["jobs"] == 50


def test_a_workload_is_made_described_and_run(simsched, folder):
    made = simsched("workload", "make", "list.csv", "-o", "jobs=12", "--seed", "3")
    assert made.stdout == "list.csv: 12 jobs\n"
    described = simsched("workload", "describe", "list.csv")
    assert described.stdout.splitlines()[-1] == "12 jobs"
    again = simsched("workload", "describe", "-o", "jobs=12", "--seed", "3")
    assert again.stdout == described.stdout


def test_an_application_is_shown_and_begun(simsched, folder):
    shown = simsched("application", "show", "cifar10")
    assert shown.exit_code == 0, shown.output
    assert "128 initially, at most 4096" in shown.stdout
    assert (folder / "figures" / "cifar10-throughput.png").is_file()
    assert (folder / "figures" / "cifar10-efficiency.png").is_file()
    assert simsched("application", "init", "mine").stdout == "mine.yaml\n"
    assert simsched("application", "show", "mine", "--path", ".", "--no-plots").exit_code == 2  # tiny.yaml is none
    (folder / "apps").mkdir()
    (folder / "mine.yaml").rename(folder / "apps" / "mine.yaml")
    own = simsched("application", "show", "mine", "--path", "apps", "--no-plots")
    assert own.exit_code == 0, own.output
    assert simsched("application", "init", "mine", "--out", "apps/mine.yaml").exit_code == 2
