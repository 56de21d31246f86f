"""Odd interpreters, locales, time zones, sizes and file systems: the same bytes, or a refusal with a message."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from simsched.api import simulate
from tests.campaigns import campaign, tries
from tests.campaigns.command import COMMAND, ended_well, environment, here, prepared, run, tables
from tests.cli.test_hostile import ENDLESS, HOSTILE, written

EXPERIMENT = """\
name: sweep
cluster: {nodes: 2, gpus_per_node: 4}
workload: {path: jobs.csv, recipe: replay}
policies: [fifo, {name: tiresias, params: {interval_s: 60}}, las]
report: {plots: false}
"""
POLLUX = """\
name: sweep
cluster: {nodes: 4, gpus_per_node: 4, gpu_type: t4}
workload: {recipe: pollux, jobs: 10, days: 14}
policies: [pollux, optimus]
report: {plots: false}
"""
RUN = ("run", "sweep.yaml", "--out", "out", "--no-plots", "-j", "2")
#: What is odd: words before the command's arguments for Python, and its environment.
ODD = {
    "python -O": (("-O",), {}),
    "python -OO": (("-OO",), {}),
    "without compiled kernels": ((), {"NUMBA_DISABLE_JIT": "1"}),
    "LC_ALL=C": ((), {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
    "LC_ALL=tr_TR": ((), {"LC_ALL": "tr_TR.UTF-8"}),
    **{f"TZ={zone}": ((), {"TZ": zone}) for zone in ("Asia/Kathmandu", "Pacific/Apia", "XXX-25:59:59")},
    "hashes of strings": ((), {"PYTHONHASHSEED": "1234"}),
    "no home": ((), {"HOME": "/nonexistent", "XDG_CACHE_HOME": "/nonexistent"}),
}  # fmt: skip
#: Those that are tried by default.
USUAL = ("python -O", "LC_ALL=C")


@pytest.mark.parametrize("odd", [pytest.param(odd, marks=() if odd in USUAL else campaign) for odd in ODD])
@pytest.mark.parametrize("experiment", [EXPERIMENT, pytest.param(POLLUX, marks=campaign)], ids=["queues", "pollux"])
def test_odd_circumstances_change_no_byte(tmp_path: Path, odd: str, experiment: str) -> None:
    whole = prepared(tmp_path, "sweep", experiment)
    options, variables = ODD[odd]
    command = [sys.executable, *options, *COMMAND[1:], *RUN]
    done = subprocess.run(
        command, cwd=tmp_path, env={**environment(tmp_path), **variables}, capture_output=True, text=True, check=False
    )
    assert ended_well(done, odd).returncode == 0, done.stderr
    assert tables(tmp_path / "out/sweep") == tables(whole)


@pytest.mark.parametrize("policy", ["srtf", "las", "tiresias"])
def test_many_jobs_in_one_second_all_end(policy: str) -> None:
    count = 100_000 if "SIMSCHED_TRIES" in os.environ else 3_000
    jobs = [{"num_gpus": 1 + i % 2, "duration_s": 60 + i % 7, "submit_time_s": 5} for i in range(count)]
    result = simulate(jobs=jobs, policy=policy, cluster=(count // 8, 8))
    assert len(result.jobs) == count
    assert (result.jobs["jct_s"] >= [job["duration_s"] for job in jobs]).all()


@pytest.mark.parametrize(("nodes", "gpus"), [(100_000, 8), (1, 1_000_000), (100_000, 1)])
@pytest.mark.parametrize("policy", ["fifo", "srtf", "tiresias"])
@campaign
def test_huge_clusters_run_or_are_refused_with_a_message(tmp_path: Path, nodes: int, gpus: int, policy: str) -> None:
    (tmp_path / "jobs.csv").write_text("submit_time,num_gpus,duration\n0,8,100\n5,1,50\n9,1000,70\n")
    text = EXPERIMENT.replace("nodes: 2, gpus_per_node: 4", f"nodes: {nodes}, gpus_per_node: {gpus}")
    (tmp_path / "sweep.yaml").write_text(text)
    ended_well(here(tmp_path, *RUN[:5], "--in-process", "--policy", policy), (nodes, gpus))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="mounts a small file system: needs root")
@tries(1, 1)
def test_a_file_system_without_room_is_told_and_loses_nothing(tmp_path: Path, chance) -> None:
    whole = prepared(tmp_path, "sweep", EXPERIMENT)
    small = tmp_path / "out"
    small.mkdir()
    size = f"size={4 * chance.randint(1, 40)}k"
    if subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(small)], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        done = ended_well(run(tmp_path, *RUN), size)
        assert done.returncode == 1 or tables(small / "sweep") == tables(whole), done.stderr
        subprocess.run(["mount", "-o", "remount,size=32m", str(small)], check=True)
        again = run(tmp_path, *RUN)
        assert (again.returncode, tables(small / "sweep")) == (0, tables(whole)), again.stderr
    finally:
        subprocess.run(["umount", str(small)], check=True)


@campaign
@tries(0, 0)
def test_an_interrupt_while_shards_are_joined_loses_no_cell(tmp_path: Path, chance) -> None:
    trace = "submit_time,num_gpus,duration\n" + "".join(
        f"{30 * i},{1 + i % 4},{100 + i % 900}\n" for i in range(20_000)
    )
    text = EXPERIMENT.replace("fifo, {name: tiresias, params: {interval_s: 60}}, las", "fifo")
    whole = prepared(tmp_path, "sweep", text, trace)
    arguments = [*COMMAND, *RUN, "--shards", "4"]
    process = subprocess.Popen(
        arguments, cwd=tmp_path, env=environment(tmp_path), start_new_session=True, stderr=subprocess.PIPE, text=True,
        stdout=subprocess.DEVNULL, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    time.sleep(chance.uniform(1, 12))
    number = chance.choice((signal.SIGINT, signal.SIGTERM))
    if process.poll() is None:
        os.killpg(process.pid, number)
    said = process.communicate(timeout=60)[1]
    assert "Traceback" not in said
    assert "internal error" not in said
    assert process.returncode in (0, 128 + number, -number), said
    if process.returncode == 0:
        assert tables(tmp_path / "out/sweep") == tables(whole)
    again = run(tmp_path, *RUN, "--shards", "4")
    assert (again.returncode, tables(tmp_path / "out/sweep")) == (0, tables(whole)), again.stderr


@pytest.mark.parametrize("name", sorted(HOSTILE.keys() - set(ENDLESS)))
@campaign
def test_a_league_goes_on_beside_a_hostile_policy(tmp_path: Path, name: str) -> None:
    from tests.campaigns.test_stops import LEAGUE

    (tmp_path / "small.yaml").write_text(LEAGUE.replace("jobs: 200", "jobs: 20"))
    written(tmp_path, [name])
    own = f"{name}.py:Hostile"
    done = run(tmp_path, "league", "small.yaml", "--policy", own, "--policy", "fifo")
    ended_well(done, name)
    assert "fifo" in (tmp_path / "results/small/league.csv").read_text(encoding="utf-8")
