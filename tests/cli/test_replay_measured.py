"""Jobs on measured step times, through the commands, against answers worked by hand; and malformed measurements."""

import json
import shutil

import numpy as np
import pytest

from tests.campaigns import WHOLE, played

PLACEMENTS = "placement,local_bsz,step_time,sync_time\n1,8,0.5,0\n1,16,1.0,0\n2,8,0.75,0.25\n2,16,1.5,0.5\n"
SCALABILITY = "num_nodes,num_replicas,local_bsz,step_time,sync_time\n5,5,8,2.0,1.0\n"
CURVE = "progress,iteration,metric,grad_sqr,grad_var\n100,100,0,1,3\n200,200,0,1,3\n"
WORKLOAD = "name,time,application,num_replicas,batch_size\nalone,10,toy,1,8\npair,20,toy,2,16\n"
EXPERIMENT = """\
name: toy
cluster: {nodes: 1, gpus_per_node: 4}
applications: {path: traces}
workload: {path: jobs.csv}
policies: [{name: tiresias}, {name: optimus}]
report: {plots: false}
"""
# Both start at the first tick, 60 s, and pay 30 s. `alone` takes 0.5 s a step, so 2 epochs of 100 steps of 0.5 s: it
# ends at 190. `pair` has twice the initial batch: gain (3+1)/(3/2+1) = 1.6 in 0.75 s, so 46.875 s an epoch, each ending
# on a whole second: at 137 and 184. Optimus gives `alone` the one GPU that its batch can use, and `pair` both of its.
EXPECTED = "workload,job,jct_s\njobs,alone,180\njobs,pair,164\n"


@pytest.fixture
def toy(folder):
    place = folder / "traces" / "toy"
    place.mkdir(parents=True)
    (place / "placements.csv").write_text(PLACEMENTS)
    (place / "scalability.csv").write_text(SCALABILITY)
    for size in (8, 16):
        (place / f"validation-{size}.csv").write_text(CURVE)
    (folder / "jobs.csv").write_text(WORKLOAD)
    (folder / "toy.yaml").write_text(EXPERIMENT)
    (folder / "expected.csv").write_text(EXPECTED)
    return place


def test_every_job_takes_the_seconds_worked_by_hand(simsched, toy):
    assert simsched("run", "toy.yaml", "--workers", "1").exit_code == 0
    done = simsched("compare", "results/toy", "--expected", "expected.csv")
    assert done.exit_code == 0, done.output
    assert "4 of 4 jobs equal" in done.stdout


def test_the_best_possible_of_measured_jobs_is_worked_by_hand(simsched, toy):
    """On two GPUs the toy does 1.6 steps of the initial batch in 0.75 s, on one 1 in 0.5 s: its fastest is 200 steps in
    93.75 s, less half a second for the rounded end of each of two epochs.
    """
    done = simsched("bound", "toy.yaml", "--json", "--out", "bounds.json")
    (one,) = json.loads(done.stdout)["bounds"]
    assert one["mean_jct_s"] == pytest.approx(92.75, abs=0.05)
    assert one["makespan_s"] == pytest.approx(20 + 92.75, abs=0.05)
    assert any("epoch that gains most" in words for words in one["relaxed"])
    assert simsched("bound", "--check", "bounds.json").exit_code == 0


@pytest.mark.parametrize("seed", played(range(30), range(2)))
def test_no_policy_comes_below_the_bound_of_random_measured_jobs(simsched, toy, folder, in_this_process, seed):
    rng = np.random.default_rng([37, seed])
    drawn = [
        f"job-{n},{time_s},toy,{gpus},{8 * gpus}"
        for n, (time_s, gpus) in enumerate(zip(sorted(rng.integers(0, 120, 6)), rng.integers(1, 3, 6), strict=True))
    ]
    (folder / "jobs.csv").write_text("\n".join([WORKLOAD.splitlines()[0], *drawn, ""]))
    policies = ["tiresias", "optimus", *(["pollux"] if WHOLE else [])]
    keys = ("-o", f"policies=[{', '.join(f'{{name: {one}}}' for one in policies)}]", "-o", "engine.restart_delay_s=0")
    assert simsched("run", "toy.yaml", *keys, "--name", "toy").exit_code == 0
    found = json.loads(simsched("bound", "results/toy", "--json").stdout)["distances"]
    assert [one["policy"] for one in found] == policies
    assert all(one["jct"] >= 0 and one["makespan"] >= 0 for one in found), found


def test_a_job_that_differs_is_named_with_its_difference(simsched, toy, folder):
    (folder / "expected.csv").write_text(EXPECTED.replace("164", "171"))
    simsched("run", "toy.yaml", "--workers", "1")
    done = simsched("compare", "results/toy", "--expected", "expected.csv", "--policy", "optimus", "--json")
    assert done.exit_code == 1
    (found,) = json.loads(done.stdout)
    assert (found["equal"], found["largest_difference_s"]) == (1, 7)
    assert found["different"] == [{"job": "pair", "expected_s": 171, "found_s": 164}]
    text = simsched("compare", "results/toy", "--expected", "expected.csv").stdout
    assert "2 of 4 jobs equal" in text
    assert "  optimus, jobs, pair: 164 s, expected 171 s" in text.splitlines()


def test_a_folder_of_job_lists_is_run_list_by_list(simsched, toy, folder):
    (folder / "lists").mkdir()
    for name in ("first", "second"):
        (folder / "lists" / f"{name}.csv").write_text(WORKLOAD)
    (folder / "expected.csv").write_text(EXPECTED.replace("jobs,", "first,") + "second,pair,164\nsecond,alone,180\n")
    policies = "policies=[{name: tiresias}]"
    changed = ("-o", "workload.path=lists", "-o", policies, "--name", "toy")
    assert simsched("run", "toy.yaml", *changed, "--workers", "1").exit_code == 0
    done = simsched("compare", "results/toy", "--expected", "expected.csv")
    assert done.exit_code == 0
    assert "4 of 4 jobs equal" in done.stdout


def test_a_job_list_may_be_named_as_one(simsched, toy):
    assert simsched("run", "toy.yaml", "-o", "workload.format=workload", "--workers", "1").exit_code == 0


def test_two_runs_of_the_same_jobs_can_be_compared(simsched, toy, folder):
    simsched("run", "toy.yaml", "--workers", "1")
    shutil.copytree(toy, folder / "faster" / "toy")
    text = PLACEMENTS.replace("1,8,0.5", "1,8,0.25")  # `alone` ends at 140, its JCT is 130
    (folder / "faster" / "toy" / "placements.csv").write_text(text)
    simsched("run", "toy.yaml", "-o", "name=faster", "-o", "applications.path=faster", "--workers", "1")
    done = simsched("compare", "results/faster", "results/toy", "-m", "jct_mean_s", "--json")
    assert done.exit_code == 0, done.output
    line = json.loads(done.stdout)["policies"][0]
    assert (line["policy"], line["run"], line["other"]) == ("tiresias", (130 + 164) / 2, (180 + 164) / 2)
    text = simsched("compare", "results/faster", "results/toy").stdout
    # On the faster GPU Optimus finds that `pair` does best with one as well; before, both policies were even.
    assert "optimus < tiresias, OTHER tiresias < optimus" in text
    assert "Same ranking on 0 of 1 workloads" in text


@pytest.mark.parametrize("missing", ["placements.csv", "scalability.csv"])
def test_a_missing_file_is_named(simsched, toy, missing):
    (toy / missing).unlink()
    if missing == "placements.csv":  # beside an application that is whole
        other = toy.parent / "whole"
        other.mkdir()
        (other / "placements.csv").write_text(PLACEMENTS)
        (other / "scalability.csv").write_text(SCALABILITY)
        for size in (8, 16):
            (other / f"validation-{size}.csv").write_text(CURVE)
    done = simsched("run", "toy.yaml")
    assert done.exit_code == 2
    assert f"toy/{missing}: there is no such file" in done.stderr


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("placements.csv", "step_time,", "seconds,", "placements.csv:1: column 'step_time' is missing"),
        ("placements.csv", "0.75,", "nan,", "placements.csv:4: step_time is nan, not a finite number"),
        ("placements.csv", "2,8,", "2,9,", "placement 2 has local_bsz 9 to 16, which do not bracket 8 to 8"),
        ("scalability.csv", "2.0,1.0", "2.0,", "scalability.csv:2: sync_time is not a number"),
        ("validation-16.csv", "grad_var", "variance", "validation-16.csv:1: column 'grad_var' is missing"),
        ("validation-16.csv", "200,200,0,1,3\n", "", "validation-16.csv: has 1 epochs, validation-8.csv has 2"),
    ],
)
def test_malformed_measurements_are_refused_with_file_and_reason(simsched, toy, folder, name, old, new, said):
    text = (toy / name).read_text()
    assert old in text
    (toy / name).write_text(text.replace(old, new))
    done = simsched("run", "toy.yaml")
    assert done.exit_code == 2
    assert said in done.stderr
    assert done.stderr.count("simsched: ") == 1
    assert done.stdout == ""
    assert not (folder / "results").exists()


def test_batch_sizes_that_bracket_nothing_are_refused(simsched, toy):
    (toy / "validation-16.csv").unlink()
    done = simsched("run", "toy.yaml")
    assert done.exit_code == 2
    assert "has 1 files validation-<batch>.csv, which bracket no batch size" in done.stderr


def test_a_job_outside_the_measured_batch_sizes_is_refused(simsched, toy, folder):
    (folder / "jobs.csv").write_text(WORKLOAD.replace("2,16", "2,32"))
    done = simsched("run", "toy.yaml")
    assert done.exit_code == 2
    assert "batch size 32 is out of range for toy" in done.stderr
