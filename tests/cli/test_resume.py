"""A sweep that is killed, by SIGKILL or Ctrl-C, is finished by running it again."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from simsched.experiment.running.store import Store
from simsched.results.integrity import seal
from simsched.words import counted

ROOT = Path(__file__).resolve().parent.parent.parent
SLOW = '''
import time
from pathlib import Path
from dataclasses import dataclass
from typing import ClassVar
from simsched.policy import Decision, Policy, Traits

@dataclass
class Slow(Policy):
    """First come first served on node 0, with a pause at each decision while the file `slow` is there."""

    name: ClassVar[str] = "slow"
    traits: ClassVar[Traits] = Traits(forgets=True)

    def decide(self, view, rng):
        if Path("slow").exists():
            time.sleep(0.03)
        if Path("stuck").exists():
            time.sleep(60)
        return Decision({job: ((0, view.jobs[job].num_gpus),) for job in list(view.jobs)[:1]})
'''
EXPERIMENT = """\
name: slow
cluster: {nodes: 1, gpus_per_node: 4}
workload: {path: jobs.csv, recipe: replay, sample: 10}
policies: [{name: 'slow.py:Slow'}]
seeds: 6
report: {plots: false}
"""

pytestmark = pytest.mark.skipif(os.name == "nt", reason="POSIX signals")


@pytest.fixture
def slow(folder):
    (folder / "slow.py").write_text(SLOW)
    (folder / "slow.yaml").write_text(EXPERIMENT)
    return folder


def start(folder, out, *workers, interrupts="default_int_handler"):
    # As from a terminal, even where the tests themselves run in the background and ignore an interrupt.
    heard = f"import signal; signal.signal(signal.SIGINT, signal.{interrupts}); "
    heard += "signal.signal(signal.SIGHUP, signal.SIG_DFL); "
    command = [sys.executable, "-c", heard + "from simsched.cli.entry import main; main()"]
    command += ["run", "slow.yaml", "--out", out, "--workers", *workers]
    paths = [str(ROOT), str(ROOT / "policies"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.Popen(
        command, cwd=folder, env=environment, start_new_session=True, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def finished(folder, out):
    cells = folder / out / "slow" / "cells"
    return {path.name for path in cells.glob("*") if not path.name.startswith(".")} if cells.is_dir() else set()


def temporary(folder, out):
    return [path for path in (folder / out / "slow" / "cells").iterdir() if path.name.startswith(".")]


def wait_for(condition, process, seconds=300):
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, "the run took too long to get anywhere"
        time.sleep(0.02)


def test_a_killed_sweep_is_finished_by_the_next_run(slow, simsched, tables):
    (slow / "slow").touch()
    process = start(slow, "killed", "1")
    wait_for(lambda: finished(slow, "killed") and temporary(slow, "killed"), process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    (slow / "slow").unlink()
    end = time.monotonic() + 120
    while temporary(slow, "killed") and time.monotonic() < end:  # until the workers notice that their parent is gone
        time.sleep(0.1)
        Store(slow / "killed/slow").sweep()
    kept = finished(slow, "killed")
    times = {name: (slow / "killed/slow/cells" / name / "jobs.parquet").stat().st_mtime_ns for name in kept}
    assert 0 < len(kept) < 6
    assert "finish it by the same command" in simsched("show", "killed/slow").stderr

    again = simsched("run", "slow.yaml", "--out", "killed", "--workers", "1")
    assert f"({counted(6 - len(kept), 'cell')} run, {len(kept)} reused)" in again.stdout
    assert times == {name: (slow / "killed/slow/cells" / name / "jobs.parquet").stat().st_mtime_ns for name in kept}
    assert temporary(slow, "killed") == []

    simsched("run", "slow.yaml", "--out", "undisturbed", "--in-process")
    assert tables(slow / "killed/slow") == tables(slow / "undisturbed/slow")


@pytest.mark.parametrize(
    ("signals", "workers"),
    [
        ([signal.SIGINT], ["2"]),
        ([signal.SIGINT, signal.SIGINT], ["1"]),
        ([signal.SIGTERM], ["1"]),
        ([signal.SIGHUP], ["1"]),
    ],
)
def test_being_told_to_stop_ends_the_run_and_keeps_what_is_finished(slow, signals, workers, simsched, monkeypatch):
    scratch = slow / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    (slow / "slow").touch()
    handler = "SIG_IGN" if signals == [signal.SIGTERM] else "default_int_handler"  # as a shell's background job
    process = start(slow, "stopped", *workers, interrupts=handler)
    wait_for(lambda: finished(slow, "stopped") and temporary(slow, "stopped"), process)
    if len(signals) > 1:
        (slow / "stuck").touch()  # no cell will notice that it should stop
    for number in signals:
        os.killpg(process.pid, number)  # as a terminal does: to parent and workers alike
        time.sleep(0.3)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 128 + signals[0]
    assert "interrupted; finished work is kept" in said
    assert "Traceback" not in said
    assert temporary(slow, "stopped") == []
    assert [path for path in scratch.iterdir() if path.name.startswith("simsched")] == []
    if len(signals) == 1:  # a second one may come while it is written down what there is
        shown = simsched("show", "stopped/slow")
        assert shown.exit_code == 0, shown.output
        assert "Not run yet: slow, seed " in shown.stdout
    if signals == [signal.SIGTERM]:
        assert simsched("plot", "stopped/slow", "--figure", "bars").exit_code == 0
        assert simsched("report", "stopped/slow").exit_code == 0


def test_a_sharded_run_in_the_background_ends_when_told_to(slow):
    (slow / "slow").touch()
    process = start(slow, "shards", "2", "--shards", "5", interrupts="SIG_IGN")
    wait_for(lambda: list(slow.glob("shards/*/.shards/*/cells/*")), process)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert "internal error" not in said
    assert "interrupted; finished work is kept" in said


INTERRUPTED = """
import os, signal
from simsched.policy import Decision, Policy

class Interrupted(Policy):
    name = "interrupted"

    def decide(self, view, rng):
        if "real" in os.environ.get("INTERRUPT", ""):
            os.kill(os.getpid(), signal.SIGINT)
        raise KeyboardInterrupt
"""


@pytest.mark.parametrize("how", ["real", "raised"])
def test_an_interrupt_in_this_process_ends_the_run_even_inside_a_policy(slow, simsched, monkeypatch, capfd, how):
    (slow / "slow.py").write_text(INTERRUPTED.replace("Interrupted(", "Slow("))
    monkeypatch.setenv("INTERRUPT", how)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        done = simsched("run", "slow.yaml", "--out", "inside", "--in-process")
    finally:
        signal.signal(signal.SIGINT, before)
    assert done.exit_code == 130
    assert done.stderr.splitlines()[-1] == "simsched: interrupted; finished work is kept"
    assert "Traceback" not in done.stderr + capfd.readouterr().err  # of the workers too
    assert temporary(slow, "inside") == []


def test_a_worker_that_is_killed_loses_nothing(slow, simsched):
    (slow / "slow").touch()
    killed = []

    def kill_a_worker():
        end = time.monotonic() + 300
        while not (finished(slow, "broken") and temporary(slow, "broken")) and time.monotonic() < end:
            time.sleep(0.02)
        victim = int(temporary(slow, "broken")[0].name.rpartition("@")[2])
        if victim != os.getpid():
            os.kill(victim, signal.SIGKILL)
            killed.append(victim)
        (slow / "slow").unlink()

    killer = threading.Thread(target=kill_a_worker, daemon=True)
    killer.start()
    done = simsched("run", "slow.yaml", "--out", "broken", "--workers", "1")
    killer.join()
    assert killed
    assert done.exit_code == 0, done.output
    assert len(finished(slow, "broken")) == 6
    assert temporary(slow, "broken") == []


def test_shards_of_a_killed_run_go_with_clean_or_the_next_run(slow, simsched):
    run, key = slow / "results" / "slow", "0123456789abcdef01234567"
    simsched("run", "slow.yaml", "--in-process")
    for way in ("clean", "next run"):
        (run / ".shards" / key / "cells").mkdir(parents=True)
        (run / ".shards" / key / "0-3.jobs").write_bytes(bytes(10))
        (run / ".shards" / "thesis").mkdir(exist_ok=True)
        if way == "clean":
            done = simsched("clean", "results", "--remove", "--yes")
            assert "1 cell removed" in done.stdout, done.output
        else:
            simsched("run", "slow.yaml", "--in-process")
        assert [path.name for path in (run / ".shards").iterdir()] == ["thesis"]


def test_leftovers_of_writers_that_live_stay_and_others_go(tmp_path):
    store = Store(tmp_path / "run")
    store.open()
    with suppress(ZeroDivisionError), store.staged("a") as alive:
        (store.cells / ".tmp-dead@here@1").mkdir()
        Store(tmp_path / "run").open()
        assert alive.is_dir()
        assert [path.name for path in store.cells.iterdir()] == [alive.name]
        raise ZeroDivisionError
    assert not list(store.cells.iterdir())


def test_of_two_runs_that_write_the_same_cell_one_stays(tmp_path, monkeypatch):
    store = Store(tmp_path / "run")
    store.open()
    with store.staged("cell") as slower:
        monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
        with store.staged("cell") as faster:
            for aside in (slower, faster):
                (aside / "summary.json").write_text("{}")
                seal(aside, {})
    assert [path.name for path in store.cells.iterdir()] == ["cell"]
    assert store.has("cell")


def test_a_cell_from_which_a_file_was_taken_is_run_again(slow, simsched):
    simsched("run", "slow.yaml", "--in-process")
    cell = next(path for path in (slow / "results/slow/cells").iterdir())
    (cell / "summary.json").unlink()
    again = simsched("run", "slow.yaml", "--in-process")
    assert "(1 cell run, 5 reused)" in again.stdout
    assert (cell / "summary.json").is_file()


def test_one_or_two_processes_give_the_same_bytes(simsched, folder, tables):
    assert simsched("run", "tiny.yaml", "--workers", "1", "--out", "one").exit_code == 0
    assert simsched("run", "tiny.yaml", "--workers", "2", "--out", "two").exit_code == 0
    assert tables(folder / "one" / "tiny") == tables(folder / "two" / "tiny")
