"""Whatever is wrong with the input: exit code 2, one clear message, no traceback, nothing half-written."""

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from simsched.api.jobs import jobs_of
from simsched.api.simulation import simulate
from simsched.applications import ApplicationsOptions, catalogue
from simsched.cli.output import print_json
from simsched.errors import InputError
from simsched.model.job import JobSpec

pytestmark = pytest.mark.usefixtures("in_this_process")

HEADER = "submit_time,num_gpus,duration\n"

CASES = {
    "empty trace": ("jobs.csv", "", "the file is empty"),
    "trace of a header": ("jobs.csv", HEADER, "jobs.csv"),
    "truncated trace": ("jobs.csv", HEADER + "0,1,100\n5,2", "jobs.csv:3"),
    "negative duration": ("jobs.csv", HEADER + "0,1,-5\n", "jobs.csv:2"),
    "zero GPUs": ("jobs.csv", HEADER + "0,0,5\n", "jobs.csv:2"),
    "a job that can never fit": (
        "jobs.csv",
        HEADER + "0,1,5\n" * 9 + "9,9,5\n",
        "jobs.csv:11: workload, job 'job-9': it asks for 9 GPUs and can never fit a cluster of 8; enlarge the cluster",
    ),
    "unknown application": (
        "jobs.csv",
        "name,time,application,num_replicas,batch_size\na,0,cifar11,1,128\n",
        "jobs.csv:2: workload, job 'a': there is no application 'cifar11' in ",
    ),
    "batch size out of range": (
        "jobs.csv",
        "name,time,application,num_replicas,batch_size\na,0,cifar10,1,99999\n",
        "its batch size 99999 is out of range for cifar10",
    ),
    "more GPUs than numbers can tell": (
        "jobs.csv",
        f"name,time,application,num_replicas,batch_size\na,0,cifar10,{2**64},128\n",
        "is above 9.0072e+15",
    ),
    "a list for a mapping": ("tiny.yaml", "- 1\n", "tiny.yaml:1: holds a list, not a mapping"),
    "empty YAML": ("tiny.yaml", "", "tiny.yaml: is empty"),
    "no YAML": ("tiny.yaml", "a: [", "tiny.yaml:1: is not valid YAML"),
    "a binary file": ("tiny.yaml", "\x00\x01", "is not valid YAML: character 0"),
}
OVERRIDES = {
    "policies.0.name=fivo": "'fivo': there is no such policy; did you mean 'fifo'?",
    "workload.recipe=pollu": "did you mean 'pollux'?",
    "cluster.gpus_per_node=0": "cluster.gpus_per_node: must be at least 1, not 0",
    "workload.path=gone.csv": "there is no file or folder",
    "applications.path=gone": "there is no file or folder",
}


def refused(done, folder: Path, said: str) -> None:
    assert done.exit_code == 2, done.output
    assert said in done.stderr
    assert "Traceback" not in done.output
    assert done.stdout == ""
    assert not (folder / "results").exists()


@pytest.mark.parametrize(("command", "case"), [("run", "negative duration"), *(("validate", case) for case in CASES)])
def test_bad_files(simsched, folder, case, command):
    name, text, said = CASES[case]
    (folder / name).write_text(text)
    if text.startswith("name,time"):
        overrides = ["-o", "workload={path: jobs.csv}"]
    else:
        overrides = ["-o", "workload.sample=null"] if name == "jobs.csv" else []
    refused(simsched(command, "tiny.yaml", *overrides), folder, said)


@pytest.mark.parametrize("override", OVERRIDES)
def test_bad_overrides(simsched, folder, override):
    refused(simsched("validate", "tiny.yaml", "-o", override), folder, OVERRIDES[override])


def test_an_output_folder_that_is_a_file(simsched, folder):
    (folder / "taken").write_text("")
    done = simsched("run", "tiny.yaml", "--out", "taken", "--workers", "1")
    assert done.exit_code == 2
    assert "taken/tiny: results cannot be written there" in done.stderr
    assert "name a folder that can be written, with --out" in done.stderr
    assert (folder / "taken").read_text() == ""


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may write everywhere")
def test_an_output_folder_without_permission(simsched, folder):
    (folder / "locked").mkdir(mode=0o500)
    done = simsched("run", "tiny.yaml", "--out", "locked", "--workers", "1")
    assert done.exit_code == 2
    assert "results cannot be written there" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "quickstrat"), "did you mean 'quickstart'?"),
        (("run", "."), "is a folder, not an experiment file"),
        (("show", "nowhere"), "there is no such folder of results"),
        (("compare", "."), "is not the folder of a run"),
        (("plot", "."), "is not the folder of a run"),
        (("trace", "info", "nowhere.csv"), "there is no such file"),
        (("trace", "convert", "jobs.csv", "no/such/folder/out.csv"), "cannot be written"),
        (("workload", "describe", "nowhere.csv"), "there is no file or folder"),
        (("workload", "make", "out.csv", "-o", "jbs=3"), "did you mean 'jobs'?"),
        (("application", "show", "imagnet"), "did you mean 'imagenet'?"),
        (("application", "fit", "nowhere"), "nowhere"),
        (("check", "policy", "fivo"), "did you mean 'fifo'?"),
        (("run", "tiny.yaml", "--workers", "0"), "--workers"),
        (("list", "policy"), "policies"),
        (("list", "polices"), "there is no choice 'polices'; did you mean 'policies'?"),
        (("run", "tiny.yaml", "--seeds", "2"), "it is a key of the experiment: -o seeds=2"),
        (("validate", "tiny.yaml", "--nodes=3"), "it is a key of the experiment: -o cluster.nodes=3"),
        (("run", "tiny.yaml", "--shard", "2"), "there is no option '--shard'; did you mean '--shards'?"),
        (("runn",), "there is no command 'runn'; did you mean 'run'?"),
    ],
)
def test_commands_refuse_what_is_not_there(simsched, folder, arguments, said):
    done = simsched(*arguments)
    assert done.exit_code == 2, done.output
    assert said in done.stderr
    assert "Traceback" not in done.output


def test_an_internal_error_has_a_message_and_with_debug_a_traceback(simsched, monkeypatch):
    def broken() -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr("simsched.policy.registry.names", broken)
    quiet = simsched("list", "policies")
    assert quiet.exit_code == 1
    assert "internal error: RuntimeError: boom" in quiet.stderr
    loud = simsched("--debug", "list", "policies")
    assert isinstance(loud.exception, RuntimeError)


def test_a_column_that_nobody_reads_is_told_once_by_every_command(simsched, folder):
    text = "timestamp,duration,num_gpus,mood\n" + "2024-05-06 01:00:00,60,1,x\n" * 10
    said = "jobs.csv: column 'mood' is not known here and not used\n"
    for command in (
        ("validate", "tiny.yaml"), ("run", "tiny.yaml", "-j", "1"), ("trace", "info", "jobs.csv", "--no-plots"),
    ):  # fmt: skip
        (folder / "jobs.csv").write_text(text)  # anew: within a process a small file is read once
        done = simsched(*command)
        assert done.exit_code == 0, done.output
        assert done.stderr.count(said) == 1
    assert "columns not used" in done.stdout


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="a system without named pipes")
@pytest.mark.parametrize(
    "arguments",
    [
        ("trace", "info", "pipe"),
        ("calibrate", "pipe"),
        ("workload", "describe", "pipe"),
        ("validate", "tiny.yaml", "-o", "workload.path=pipe"),
        ("validate", "pipe"),
        ("application", "fit", "pipe"),
    ],
)
def test_a_pipe_is_no_file(simsched, folder, arguments):
    os.mkfifo(folder / "pipe")
    refused(simsched(*arguments), folder, "pipe")


def test_json_has_no_infinity(capsys):
    print_json({"a": float("inf"), 3: [np.float64("nan"), np.int64(2), 1.5], "b": Path("x")})
    assert json.loads(capsys.readouterr().out) == {"a": None, "3": [None, 2, 1.5], "b": "x"}


def test_a_deadline_needs_a_type_on_which_the_job_runs(simsched, folder):
    types = "{nodes: 2, gpus_per_node: 4, gpu_type: %s}"
    cluster = f"cluster={{groups: [{types % 'k80'}, {types % 'p4'}]}}"
    jobs = "workload={recipe: pollux, jobs: 5, deadline_factor: 2}"
    done = simsched("validate", "tiny.yaml", "-o", cluster, "-o", jobs)
    assert done.exit_code == 2, done.output
    assert "cannot run on 1 GPUs of any of the types k80, p4; name types that it knows" in done.stderr


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ({"num_gpus": 1.5, "duration_s": 5}, "'num_gpus' is 1.5, which is not a whole number"),
        ({"num_gpus": 1, "duration_s": 5, "submit_time_s": float("inf")}, "'submit_time_s' is inf"),
        ({"num_gpus": 1, "duration_s": 1e308}, "'duration_s' is 1e+308"),
        ({"num_gpus": True, "duration_s": 5}, "'num_gpus' is True, which is not a number"),
        (JobSpec("a", 0, 2.0, duration_s=5), "'num_gpus' is 2.0, which is not a whole number"),
        (JobSpec("a", float("nan"), 1, duration_s=5), "'submit_time_s' is nan"),
        (
            {"num_gpus": 1, "duration_s": 5, "application": "cifar10"},
            "it names the application 'cifar10' and a duration of 5 s",
        ),
    ],
)
def test_simulate_names_the_row_and_the_number(job, said):
    with pytest.raises(InputError) as caught:
        simulate(jobs=[{"num_gpus": 1, "duration_s": 5}, job], policy="fifo", cluster=(1, 4))
    assert f"jobs, row 1: {said}" in str(caught.value)


def test_simulate_takes_the_numbers_of_a_table():
    jobs = [{"num_gpus": 2.0, "duration_s": 5}, JobSpec("a", np.int64(0), np.int64(1), duration_s=np.float64(5))]
    assert len(simulate(jobs=jobs, policy="fifo", cluster=(1, 4)).jobs) == 2


def test_a_policy_that_takes_tenants_without_saying_so_is_not_left_without_them(simsched, folder):
    (folder / "mine.py").write_text(
        "from simsched.policy import Decision, Policy\n\n"
        "class Mine(Policy):\n    name = 'mine'\n\n    def __init__(self, tenants: dict | None = None):\n"
        "        pass\n\n"
        "    def decide(self, view, rng):\n        return Decision({})\n"
    )
    overrides = ("-o", 'policies=[{"name": "mine.py:Mine"}]', "-o", "tenants.a.gpus=2")
    done = simsched("validate", "tiny.yaml", *overrides)
    assert done.exit_code == 2
    assert "has a parameter 'tenants' that the section does not set" in done.output
    assert "Traits(reads_tenants=True)" in done.output


@pytest.mark.parametrize(
    "columns",
    [
        {"job_id": ["b", None, "c"], "submit_time": [3, 2, 1], "num_gpus": [1, 2, 1], "duration": [5, 6, 7.5]},
        {"id": [7, 8, 9], "num_gpus": [1.0, 2.0, 1.0], "deadline_s": [5, np.nan, 7], "guaranteed": [True, False, True]},
        {"num_gpus": [1, 1, 1], "batch_size": [8, np.nan, 4], "tenant": ["a", "b", None], "application": ["x"] * 3},
        {"num_gpus": [1, np.nan, 1]},
        {"num_gpus": [1, 1.5, 1]},
        {"num_gpus": [1, True, 1]},
        {"num_gpus": [1, 1, 1], "duration_s": [1, 1e300, 2]},
        {"num_gpus": [1, 1, 1], "submit_time_s": [0, -np.inf, 0]},
        {"num_gpus": [1, 1, 1], "user": pd.Series(["a", "\ud800", "b"], dtype=object)},
        {"num_gpus": [1, 1, 1], "application": ["x", "bert", "x"], "duration_s": [0, 5, 1]},
        {"num_gpus": [1, 1, 1], "gpu": [0, 1, 2]},
        {"num_gpus": [1, 1, 1], "speedup": ["linear", "fast", None]},
    ],
)
def test_a_table_gives_the_jobs_and_the_errors_of_its_rows(columns):
    def jobs_or_error(table):
        try:
            return list(jobs_of(table, catalogue(ApplicationsOptions())))
        except InputError as error:
            return str(error)

    table = pd.DataFrame(columns)
    from_table, from_rows = jobs_or_error(table), jobs_or_error(table.to_dict("records"))
    assert from_table == from_rows
    assert repr(from_table) == repr(from_rows)  # the same types of numbers
