"""`simsched learn`: it writes a policy that runs, and refuses what cannot be learnt."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

needs_gymnasium = pytest.mark.skipif(
    importlib.util.find_spec("gymnasium") is None, reason="gymnasium is not installed (extra gym)"
)
FEW = ["-o", "workload.jobs=6", "-o", "workload.days=2", "--generations", "1", "--population", "4", "--episodes", "1",
       "--seeds", "101-102"]  # fmt: skip


@needs_gymnasium
def test_it_writes_a_policy_that_runs(simsched, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = simsched("learn", "learning/episodes", *FEW, "--feature", "gpus", "--feature", "left_s", "--out", "mine.py")
    assert done.exit_code == 0, done.output
    assert "generation 1 of 1: " in done.stderr
    text = (tmp_path / "mine.py").read_text()
    assert '"gpus": ' in text
    assert "seeds 101 to 102:\n1 generations of 4 weights, 1 workloads each." in text
    done = simsched(
        "run", "learning/episodes", *FEW[:4], "-o", "seeds=1", "-o", 'policies=[{name: "mine.py:Mine"}]', "-j", "1",
        "--no-plots", "--in-process",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "mine †" in done.stdout  # it has learnt from the true time left, and reads it
    again = simsched("learn", "learning/episodes", *FEW, "--out", "mine.py")
    assert (again.exit_code, "already exists" in again.output) == (2, True)


@needs_gymnasium
def test_workers_play_the_same_games(simsched, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, more in (("one.py", []), ("two.py", ["-j", "2"])):
        done = simsched("learn", "learning/episodes", *FEW, *more, "--out", name)
        assert done.exit_code == 0, done.output
    one, two = ((tmp_path / name).read_text().split("WEIGHTS")[1] for name in ("one.py", "two.py"))
    assert one == two


@needs_gymnasium
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--seeds", "101"], "--seeds"),
        (["--seeds", "101-102", "--episodes", "3"], "fewer than the 3 episodes"),
        (["--out", "My Policy.py"], "cannot name a policy"),
        (["--out", "learnt.txt"], "cannot name a policy"),
        (["--feature", "gpu"], "no feature 'gpu'"),
    ],
)
def test_what_cannot_be_learnt_is_refused(simsched, tmp_path, monkeypatch, options, said):
    monkeypatch.chdir(tmp_path)
    done = simsched("learn", "learning/episodes", *options)
    assert (done.exit_code, said in done.output) == (2, True), done.output
    assert not [path for path in tmp_path.iterdir() if path.name not in {"jobs.csv", "tiny.yaml"}]


def test_without_gymnasium_it_is_said_how_to_get_it(simsched, monkeypatch):
    monkeypatch.setattr("simsched.cli.check.find_spec", lambda name: None)
    done = simsched("learn", "learning/episodes")
    assert (done.exit_code, "pip install -e '.[gym]'" in done.output) == (2, True)
    script = (
        "import importlib.util as util; real = util.find_spec\n"
        "util.find_spec = lambda name, *rest: None if name == 'gymnasium' else real(name, *rest)\n"
        "from simsched.gym import SchedulingEnv"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "simsched.gym.SchedulingEnv needs the package 'gymnasium'" in done.stderr
