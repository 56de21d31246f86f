import json

import pytest

pytestmark = pytest.mark.usefixtures("in_this_process")

FAULTY = """
from simsched.policy import Decision, Policy

class Faulty(Policy):
    name = "faulty"

    def decide(self, view, rng):
        {body}
"""


def test_a_run_prints_a_table_and_leaves_its_results(simsched, folder):
    done = simsched("run", "tiny.yaml", "--workers", "1")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0] == "tiny"
    assert [line.split()[0] for line in lines if line.startswith(("fifo", "tiresias"))][:2] == ["fifo", "tiresias"]
    assert "±" in done.stdout
    assert "Difference from fifo" in done.stdout
    notes = ("What was run: 10 jobs, 2 seeds, 2 policies on 8 GPUs, offered load ",)
    assert [line for line in lines if line.startswith(notes)]
    assert max(len(line) for line in lines if not line.startswith(notes)) <= 100
    assert "[4/4] tiresias, seed 2" in done.stderr
    cells = list((folder / "results" / "tiny" / "cells").iterdir())
    assert len(cells) == 4
    for cell in cells:
        assert {path.name for path in cell.iterdir()} == {
            "manifest.json", "summary.json", "jobs.parquet", "allocations.parquet", "rounds.parquet",
        }  # fmt: skip


def test_the_manifest_says_what_was_run_and_what_the_policy_was_told(simsched, folder):
    simsched("run", "tiny.yaml", "--workers", "1", "-o", "policies=[{name: srtf}]", "-o", "seeds=[5]", "--name", "tiny")
    (path,) = (folder / "results" / "tiny" / "cells").glob("*/manifest.json")
    manifest = json.loads(path.read_text())
    assert (manifest["policy"]["name"], manifest["policy"]["class"]) == ("srtf", "Srtf")
    assert manifest["policy_needs"] == ["remaining_work"]
    assert manifest["agents"] == {"fixed-duration": "NoBatchAgent"}
    assert manifest["seed"] == 5
    assert manifest["cluster"] == [{"nodes": 2, "gpus_per_node": 4, "gpu_type": "t4"}]
    assert manifest["workload"]["name"] == "jobs"
    assert manifest["cell"] == path.parent.name
    assert set(manifest["timing"]) == {"wall_s", "cpu_s"}
    assert manifest["environment"]["packages"]["numpy"]


def test_a_second_run_repeats_nothing(simsched, folder):
    simsched("run", "tiny.yaml", "--workers", "1")
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*.parquet")}
    again = simsched("run", "tiny.yaml", "--workers", "1")
    assert "4 cells, 4 of them reused" in again.stderr
    assert "(0 cells run, 4 reused)" in again.stdout
    assert before == {path: path.stat().st_mtime_ns for path in folder.rglob("*.parquet")}
    more = simsched("run", "tiny.yaml", "--workers", "1", "-o", "seeds=3")
    assert "(2 cells run, 4 reused)" in more.stdout


def test_a_dry_run_writes_nothing(simsched, folder):
    done = simsched("run", "tiny.yaml", "--dry-run")
    assert done.exit_code == 0
    assert "4 cells, 4 of them distinct, 4 to run" in done.stdout
    assert not (folder / "results").exists()
    plan = json.loads(simsched("run", "tiny.yaml", "--dry-run", "--json").stdout)
    assert [(cell["policy"], cell["seed"], cell["done"]) for cell in plan["cells"]][:1] == [("fifo", 1, False)]


def test_json_holds_every_metric_with_its_interval(simsched):
    done = simsched("run", "tiny.yaml", "--workers", "1", "--json")
    content = json.loads(done.stdout)
    assert content["cells"] == {"ran": 4, "reused": 0, "failed": []}
    jct = content["rows"][0]["metrics"]["jct_mean_s"]
    assert jct["n"] == 2
    assert jct["low"] < jct["mean"] < jct["high"]


def test_figures_are_drawn_unless_refused(simsched, folder):
    drawn = simsched("run", "tiny.yaml", "--workers", "1", "-o", "report.plots=true")
    pictures = [line.strip() for line in drawn.stdout.splitlines() if line.strip().endswith(".png")]
    assert pictures
    assert all((folder / picture).stat().st_size > 1000 for picture in pictures)
    silent = simsched("run", "tiny.yaml", "--workers", "1", "-o", "report.plots=true", "--no-plots", "--out", "other")
    assert ".png" not in silent.stdout


def test_only_one_policy_can_be_run_and_the_rest_later(simsched):
    first = simsched("run", "tiny.yaml", "--workers", "1", "--policy", "fifo")
    assert "(2 cells run, 0 reused)" in first.stdout
    rest = simsched("run", "tiny.yaml", "--workers", "1")
    assert "(2 cells run, 2 reused)" in rest.stdout


@pytest.mark.parametrize(
    ("workers", "body", "said"),
    [
        ("1", "return Decision({job: ((9, 1),) for job in view.jobs})", "policy 'faulty' at t=0 s"),
        ("2", "raise KeyError('oops')", "faulty.py:8): 'oops'"),
    ],
)
def test_a_failing_cell_is_named_and_the_others_finish(simsched, folder, workers, body, said):
    (folder / "faulty.py").write_text(FAULTY.format(body=body))
    policies = "policies=[{name: fifo}, {name: 'faulty.py:Faulty', label: bad}]"
    done = simsched("run", "tiny.yaml", "--workers", workers, "-o", policies, "--name", "tiny")
    assert done.exit_code == 1
    assert "simsched: bad, seed 1: " in done.stderr
    assert "policy 'faulty" in done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.output
    assert "fifo" in done.stdout
    cells = [path.name for path in (folder / "results" / "tiny" / "cells").iterdir()]
    assert len(cells) == 2
    assert not any(name.startswith(".") for name in cells)


def test_with_debug_the_traceback_of_a_failing_cell_is_shown(simsched, folder):
    (folder / "faulty.py").write_text(FAULTY.format(body="raise KeyError('oops')"))
    done = simsched("--debug", "run", "tiny.yaml", "--in-process", "-o", "policies=[{name: 'faulty.py:Faulty'}]")
    assert done.exit_code == 1
    assert "line 8, in decide" in done.stderr


def test_a_policy_of_ones_own_file_runs_by_its_path(simsched, folder):
    body = "return Decision({i: ((0, 1),) for i in list(view.jobs)[:1]})"
    (folder / "faulty.py").write_text(FAULTY.format(body=body).replace('"faulty"', '"one"'))
    one_gpu = "submit_time,num_gpus,duration\n0,1,10\n5,1,10\n"
    (folder / "jobs.csv").write_text(one_gpu)
    policies = "policies=[{name: 'faulty.py:Faulty', label: one by one}]"
    done = simsched("run", "tiny.yaml", "--workers", "1", "-o", policies, "-o", "workload.sample=2", "-o", "seeds=1")
    assert done.exit_code == 0, done.output
    assert "one by one" in done.stdout


def test_a_policy_whose_physics_are_missing_says_what_it_is(simsched, folder):
    sentence = "antman: no job is guaranteed (workload.guaranteed_share), and it starts jobs in order of arrival"
    alone = ["-o", "policies=[{name: antman}, {name: fifo}]", "-o", "engine.sharing.max_jobs=2"]
    checked = simsched("validate", "tiny.yaml", *alone)
    assert sentence in " ".join(checked.stdout.split())
    done = simsched("run", "tiny.yaml", "--workers", "1", *alone, "--name", "told")
    assert sentence in " ".join(done.stdout.split())
    told = [json.loads(path.read_text()) for path in (folder / "results" / "told" / "cells").glob("*/manifest.json")]
    assert {(one["policy"]["name"], *one["without"]) for one in told} == {("antman", "guaranteed_jobs"), ("fifo",)}
    some = simsched("validate", "tiny.yaml", *alone, "-o", "workload.guaranteed_share=0.5")
    assert "antman:" not in some.stdout


def test_what_holds_for_one_policy_alone_stands_in_what_was_run(simsched, folder):
    own = ["-o", "policies.tiresias.engine.restart_delay_s=7"]
    done = simsched("run", "tiny.yaml", "--workers", "1", *own)
    assert "tiresias alone with engine.restart_delay_s=7" in " ".join(done.stdout.split())
