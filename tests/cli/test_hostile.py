"""Policies that mean badly lose their own cells and no others; the table says what becomes of each."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from simsched.cli.main import cli
from simsched.results.reader import read_run

POLICY = """
import atexit, contextlib, ctypes, os, signal, subprocess, sys, threading, time
from pathlib import Path
from simsched.policy import Decision, Policy

class Beyond(BaseException):
    pass

class Mute(Exception):
    def __str__(self):
        raise SystemExit
    __repr__ = __str__

class Hostile(Policy):
    "First come, first served on node 0, badly meant."

    name = "{name}"

    def decide(self, view, rng):
        {body}
        return Decision({{job: ((0, view.jobs[job].num_gpus),) for job in list(view.jobs)[:1]}})
"""
#: What a policy does before it decides, by name, and what the run's index says of its cell, nothing if it is complete.
HOSTILE = {
    "base_exception": ("raise Beyond('over there')", "Beyond in policy 'base_exception'"),
    "catches_everything": (
        """while True:
            with contextlib.suppress(BaseException):
                time.sleep(0.01)""",
        "ran for longer than the",
    ),
    "changes_folder": ("os.chdir('/')", ""),
    "clears_environment": ("os.environ.clear()", ""),
    "closes_files": ("os.closerange(3, 4096)", "its process "),
    "closes_standard_files": ("os.closerange(0, 3)", ""),
    "copies_its_process": (
        """if not getattr(self, "copied", False):
            self.copied = True
            os.fork()""",
        "",
    ),
    "exits": ("sys.exit(0)", "SystemExit in policy 'exits'"),
    "exits_with_0": ("os._exit(0)", "its process ended with exit code 0"),
    "flips_nodes": (  # asks for nodes and lets them go before they are up
        """self.wanted = not getattr(self, "wanted", False)
        nodes = range(len(view.nodes)) if self.wanted else ()
        return Decision({}, nodes=tuple(nodes), wake_at_s=view.now_s + 1)""",
        "has progressed",
    ),
    "hangs": ("while True: time.sleep(3600)", "ran for longer than the"),
    "interrupts": ("raise KeyboardInterrupt", "KeyboardInterrupt in policy 'interrupts'"),
    "keeps_a_thread": (
        """never = threading.Event()
        atexit.register(never.wait)
        threading.Thread(target=never.wait).start()""",
        "",
    ),
    "kills_its_process": ("os.kill(os.getpid(), signal.SIGKILL)", "was killed (SIGKILL)"),
    "leaves_a_process": (
        """if not getattr(self, "left", None):
            self.left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            Path("left").write_text(str(self.left.pid), encoding="ascii")""",
        "",
    ),
    "long_text": ("raise RuntimeError('x' * 10_000_000)", "RuntimeError in policy 'long_text'"),
    "lowers_the_recursion_limit": ("sys.setrecursionlimit(60)", ""),
    "prints_much": ("sys.stdout.write('x' * (1 << 20)); sys.stderr.write('y' * (1 << 20))", ""),
    "recurses": ("return self.decide(view, rng)", "RecursionError in policy 'recurses'"),
    "segfaults": ("ctypes.string_at(0)", "was killed (SIGSEGV)"),
    "stops_and_starts": (  # every second, so that the job never gets beyond its restart
        """first = next(iter(view.jobs.values()))
        held = {} if first.allocation else {first.id: ((0, first.num_gpus),)}
        return Decision(held, wake_at_s=view.now_s + 1)""",
        "has progressed",
    ),
    "surrogate": (r"raise RuntimeError('\ud800 \x1b]0;title\x07')", "RuntimeError in policy 'surrogate'"),
    "terminates": ("os.kill(os.getpid(), signal.SIGTERM)", "was killed (SIGTERM)"),
    "text_raises": ("raise Mute", "Mute in policy 'text_raises'"),
    "threads_raise": (
        """threading.Thread(target=lambda: [][0], daemon=True).start()
        threading.Thread(target=lambda: 1 / 0).start()
        time.sleep(0.01)""",
        "",
    ),
    "wakes_at_once": (  # before the clock can go on, as a tick is a second
        "return Decision.change({}, wake_at_s=view.now_s + 0.001)", "nothing runs and nothing is due to happen"
    ),
    "writes_everywhere": (
        """for descriptor in range(3, 100):
            with contextlib.suppress(OSError):
                os.write(descriptor, b"hello, hello, hello")""",
        "its process ",
    ),
}  # fmt: skip
GOOD = """
from simsched.policy import Decision, Policy

class Good(Policy):
    "First come, first served on node 0."

    name = "good"

    def decide(self, view, rng):
        return Decision({job: ((0, view.jobs[job].num_gpus),) for job in list(view.jobs)[:1]})
"""
EXPERIMENT = """\
name: hostile
cluster: {{nodes: 2, gpus_per_node: 4}}
workload: {{path: jobs.csv, recipe: replay}}
engine: {{node_start_s: 60}}
policies:
  - {{name: 'good.py:Good', label: before}}
{entries}
  - {{name: 'good.py:Good', label: after, params: {{}}}}
report: {{plots: false}}
"""
TRACE = "submit_time,num_gpus,duration\n" + "".join(f"{37 * i},{1 + i % 4},{100 + 53 * i}\n" for i in range(5))
#: Those that only a kill ends: the limit is far above what a cell of five jobs takes on a busy machine.
ENDLESS = ("catches_everything", "hangs")
LIMIT = ("--timeout-per-cell", "8")

pytestmark = pytest.mark.skipif(os.name == "nt", reason="POSIX signals")


def written(folder, names):
    """Write an experiment of hostile policies between two cells of a good one."""
    (folder / "jobs.csv").write_text(TRACE)
    (folder / "good.py").write_text(GOOD)
    for name in names:
        (folder / f"{name}.py").write_text(POLICY.format(name=name, body=HOSTILE[name][0]))
    entries = "\n".join(f"  - {{name: '{name}.py:Hostile', label: {name}}}" for name in names)
    (folder / "hostile.yaml").write_text(EXPERIMENT.format(entries=entries))


def run_all(folder, names, *arguments):
    """Run hostile policies between two cells of a good one, and return what the command said."""
    written(folder, names)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("SIMSCHED_CHECK_INVARIANTS")  # of ten thousand decisions each, in several runs
        return CliRunner().invoke(cli, ["run", "hostile.yaml", "--json", *arguments], prog_name="simsched")


@pytest.fixture(scope="module")
def tried(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    done = run_all(folder, [name for name in HOSTILE if name not in ENDLESS], "-j", "1")
    assert done.exit_code == 1, done.output
    endless = tmp_path_factory.mktemp("endless")
    killed = run_all(endless, ENDLESS, "-j", "2", *LIMIT)
    assert killed.exit_code == 1, killed.output
    return [(one, json.loads((place / "results/hostile/run.json").read_text()), place / "results/hostile")
            for one, place in ((done, folder), (killed, endless))]  # fmt: skip


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_a_hostile_policy_ends_as_it_says(tried, name):
    expected = HOSTILE[name][1]
    _, index, _ = tried[name in ENDLESS]
    cell = f"{name}, seed 1"
    if expected:
        assert expected in index["failed"][cell]
    else:
        assert cell not in index["failed"]
        assert name in [entry["policy"] for entry in index["cells"]]


def test_the_cells_of_others_are_as_ever(tried):
    for done, index, run in tried:
        others = [entry for entry in index["cells"] if entry["policy"] in ("before", "after")]
        assert len(others) == 2
        assert {len(cell.jobs) for cell in read_run(run).cells} == {5}
        assert "Traceback" not in done.stderr
        assert "internal error" not in done.stderr
        assert json.loads(done.stdout)["cells"]["failed"] == list(index["failed"])
        assert not list((run / "cells").glob(".tmp*"))


def test_what_a_hostile_policy_says_is_safe_to_show(tried):
    (done, index, _) = tried[0]
    said = index["failed"]["surrogate, seed 1"]
    assert said.endswith(r"\ud800 \u001b]0;title\u0007")
    assert said.encode() in done.stderr_bytes
    assert index["failed"]["text_raises, seed 1"].endswith("(its text cannot be made: __str__ raises SystemExit)")
    assert len(index["failed"]["long_text, seed 1"]) < 30_000


@pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="processes are looked up in /proc")
def test_what_a_policy_leaves_behind_ends_with_the_run(tried):
    run = tried[0][2]
    left = Path("/proc", (run.parents[1] / "left").read_text(), "stat")
    with contextlib.suppress(OSError):  # gone, or a zombie that nobody has asked for
        assert left.read_text().rpartition(")")[2].split()[0] in "ZX"


def test_threads_that_raise_are_told_in_a_line(tmp_path):
    written(tmp_path, ("threads_raise",))
    command = [sys.executable, "-c", "from simsched.cli.entry import main; main()", "run", "hostile.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "code outside of the simulation raises ZeroDivisionError: division by zero" in done.stderr
    assert "Traceback" not in done.stderr


NO_GUARD = """
import sys
import simsched as sim
print("once", file=sys.stderr)
results = sim.run("hostile.yaml", out="results", **{options})
print(len(results.table()))
"""


@pytest.mark.parametrize("options", [{}, {"in_process": True}])
def test_a_script_needs_no_guard_and_is_run_once(tmp_path, options):
    written(tmp_path, ())
    (tmp_path / "script.py").write_text(NO_GUARD.format(options=options))
    command = [sys.executable, "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "2\n"
    assert done.stderr.count("once") == 1


def test_a_file_that_is_called_like_a_library_is_not_taken_for_it(tmp_path):
    (tmp_path / "pandas.py").write_text("raise RuntimeError('not this one')")
    done = run_all(tmp_path, ())
    assert done.exit_code == 0, done.output


def test_in_process_a_debugger_sees_the_policy_and_limits_are_refused(tmp_path, monkeypatch):
    done = run_all(tmp_path, ("changes_folder",), "--in-process")
    assert done.exit_code == 0, done.output
    assert Path.cwd() != Path("/")
    for other in (("-j", "2"), LIMIT, ("--memory-per-cell", "100"), ("--dask", "nowhere")):
        refused = run_all(tmp_path, (), "--in-process", *other)
        assert refused.exit_code == 2, refused.output
        assert "in process: cannot be combined with" in refused.stderr


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("exits_with_0", (), "FAILED the kit runs to its end: it ended the process"),
        ("hangs", ("--timeout", "3"), "FAILED the kit runs to its end: it ran for longer than 3 s"),
        ("surrogate", (), r"RuntimeError: \ud800 \u001b]0;title\u0007"),
    ],
)
def test_the_conformance_kit_survives_it_too(tmp_path, name, arguments, said):
    written(tmp_path, (name,))
    done = CliRunner().invoke(cli, ["check", "policy", f"{tmp_path / name}.py:Hostile", "--seeds", "1", *arguments])
    assert done.exit_code == 1, done.output
    assert said in done.stdout
    assert "Traceback" not in done.output
