"""`simsched step`: a simulation decision by decision, on a schedule worked by hand."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from simsched.cli.main import cli

EXPERIMENT = """\
name: stepped
cluster: {nodes: 2, gpus_per_node: 4}
engine: {restart_delay_s: 0}
workload: {path: jobs.csv, recipe: replay}
policies:
  - {name: smallest-first}
  - {name: fifo, label: first}
"""
#: large yields to small at 100 s, which ends at 150 s; last arrives at 200 s and waits for large until 350 s.
JOBS = "job_id,submit_time,num_gpus,duration\nlarge,0,8,300\nsmall,100,1,50\nlast,200,8,60\n"
SECOND = [
    "0:01:40  2 jobs, 1 running, 7 GPUs free",
    "  arrived: small",
    "  placed: small on 0:1",
    "  stopped: large",
    "  node 0: small 1, 3 free",
    "  waiting: large (8 GPUs, 0:00:00)",
]


@pytest.fixture
def stepped(tmp_path, monkeypatch):
    (tmp_path / "jobs.csv").write_text(JOBS)
    (tmp_path / "stepped.yaml").write_text(EXPERIMENT)
    monkeypatch.chdir(tmp_path)

    def run(typed, *options):
        done = CliRunner().invoke(cli, ["step", "stepped.yaml", *options], input=typed)
        assert done.exit_code == 0, done.output
        return done

    return run


def test_enter_shows_the_next_decision(stepped):
    lines = stepped("\nq\n").stdout.splitlines()
    assert lines == [
        "0:00:00  1 job, 1 running, 0 GPUs free",
        "  arrived: large",
        "  placed: large on 0:4 1:4",
        "  node 0: large 4",
        "  node 1: large 4",
        *SECOND,
    ]


def test_a_number_goes_to_a_second_and_a_job_to_where_it_is_placed_next(stepped):
    done = stepped("60\nlarge\nlast\n\n")
    assert done.stdout.splitlines()[5:11] == SECOND
    heads = [line for line in done.stdout.splitlines() if not line.startswith("  ")]
    assert heads == [
        "0:00:00  1 job, 1 running, 0 GPUs free",
        "0:01:40  2 jobs, 1 running, 7 GPUs free",
        "0:02:30  1 job, 1 running, 0 GPUs free",
        "0:05:50  1 job, 1 running, 0 GPUs free",
        "all jobs are complete",
    ]


def test_another_policy_and_what_does_not_come_are_told(stepped):
    done = stepped("larger\n9999\n", "--policy", "first")
    assert "fifo, seed 1, 3 jobs" in done.stderr
    assert "there is no job 'larger'" in done.stderr
    assert "'9999' does not occur any more" in done.stderr
    assert done.stdout.splitlines()[-1] == "all jobs are complete"


def test_the_end_of_the_input_leaves(stepped):
    assert len(stepped("").stdout.splitlines()) == 5
