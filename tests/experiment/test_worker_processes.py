"""Which cells share a process, and where a process may have none of its own."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from multiprocessing import current_process

import pytest

from simsched.experiment.grid import make_grid
from simsched.experiment.running.cell import Outcome
from simsched.experiment.running.pool import code_of
from simsched.experiment.running.runner import run_grid
from simsched.experiment.running.worker import start
from simsched.experiment.task import PolicyChoice
from simsched.experiment.validation import read_experiment
from simsched.stops import stops_deferred

EXPERIMENT = """\
name: tiny
cluster: {nodes: 1, gpus_per_node: 4}
workload: {path: jobs.csv, recipe: replay}
policies: [{name: fifo}, {name: las}]
report: {plots: false}
"""


@pytest.fixture
def grid(tmp_path):
    (tmp_path / "jobs.csv").write_text("submit_time,num_gpus,duration\n0,1,100\n10,2,50\n")
    (tmp_path / "e.yaml").write_text(EXPERIMENT)
    return make_grid(read_experiment(tmp_path / "e.yaml"))


def test_shipped_policies_share_processes_and_others_do_not(grid):
    shipped = grid.cells[0].task
    assert code_of(shipped) == code_of(grid.cells[1].task) == ()
    mine = replace(shipped, policy=PolicyChoice("mine.py:Mine", shipped.policy.folder))
    assert code_of(mine) == (("mine.py:Mine", str(shipped.policy.folder)),)
    elsewhere = PolicyChoice("mine.py:Mine", shipped.policy.folder / "elsewhere")
    assert code_of(mine) != code_of(replace(mine, policy=elsewhere))


def test_a_process_that_may_have_none_of_its_own_runs_cells_itself_and_says_so(grid, tmp_path, monkeypatch):
    monkeypatch.setitem(current_process()._config, "daemon", True)
    with pytest.warns(RuntimeWarning, match="the cells run in this process"):
        assert run_grid(grid, tmp_path / "out").ran == 2


def test_an_outcome_is_what_was_packed_and_nothing_else():
    outcome = Outcome(1.5, "it \ud800 broke", "trace")
    assert Outcome.unpacked(outcome.packed()) == outcome
    values = json.loads(outcome.packed())
    for other in (b"", b"\xff", b"[]", b"{}", b"[" * 200_000, json.dumps({**values, "wall_s": "1"}).encode(),
                  json.dumps({**values, "more": 1}).encode()):  # fmt: skip
        assert Outcome.unpacked(other) is None


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_an_interrupt_while_a_process_starts_is_not_lost(request):
    done = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))

    def interrupted():
        with stops_deferred():
            os.kill(os.getpid(), signal.SIGINT)
            done.append("went on")
        done.append("no interrupt")

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert done == ["went on"]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _signals(pipe):
    pipe.send((signal.getsignal(signal.SIGINT), signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])))


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_a_worker_ignores_interrupts_and_blocks_none_for_what_it_starts():
    process, pipe = start(_signals)
    assert pipe.recv() == (signal.SIG_IGN, False)
    process.join()
