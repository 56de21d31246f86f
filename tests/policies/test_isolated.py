"""Policies in another process, behind a wall: the same bytes as in this process, and cheats that learn nothing."""

import os
import socket
import subprocess
import sys
from functools import partial

import pytest
from click.testing import CliRunner
from simsched_policies.external import bridge, wall
from simsched_policies.external.bridge import Bridged
from simsched_policies.external.wire import ExternalError

import simsched as sim
from simsched.cli.check import check
from simsched.engine import EngineOptions
from simsched.errors import InputError
from simsched.experiment.policy_params import isolated
from simsched.policy import registry
from simsched.testing.builders import run
from simsched.testing.check_policy import _CLUSTERS, _workload
from tests.campaigns import WHOLE

#: Policies that between them read every kind of signal, have agents of their own, share GPUs, plan, scale and quit.
KINDS = ("antman", "crux", "fifo", "gandiva", "gavel-gandiva", "gittins", "kueue", "muri-s", "optimus", "or-elastic",
         "rubick", "shockwave", "slaq", "srtf", "tiresias", "uniform-progress")  # fmt: skip
TABLES = ("jobs", "allocations", "decisions", "reasons")
JOBS = [{"num_gpus": 1 + i % 4, "duration_s": 600 - 23 * i, "submit_time_s": 20 * i} for i in range(20)]


@pytest.fixture(scope="module")
def one_process():
    """A process without a wall that serves one policy after the other."""
    wire = wall.started(wall.Limits("fifo", walled=False, timeout_s=300))
    end, wire.close = wire.close, lambda: None
    yield wire
    end()


@pytest.mark.parametrize("name", [one for one in registry.names() if one != "external"] if WHOLE else KINDS)
def test_a_policy_behind_messages_gives_the_same_bytes(name, one_process, monkeypatch):
    monkeypatch.setattr(bridge, "started", lambda start: one_process)
    kind, options = registry.load(name), EngineOptions(reasons=True)
    for cluster in _CLUSTERS if WHOLE else _CLUSTERS[3:]:
        applications, jobs = _workload(kind(), cluster, 0)
        play = partial(run, jobs=jobs, cluster=cluster, applications=applications, options=options, seed=0)
        here, there = play(kind()), play(Bridged(name, walled=False))
        assert [getattr(here, table) for table in TABLES] == [getattr(there, table) for table in TABLES]


CHEATS = '''
import ctypes, gc, json, os, socket, sys
from dataclasses import dataclass
from typing import ClassVar
from simsched.policy import Decision, Policy
from simsched.toolkit.gang import run_in_order

TRUTHS = ("JobSpec", "JobTruth", "JobState", "Simulation", "FixedDuration")

def walked(job):
    for one in gc.get_objects():
        if type(one).__name__ in TRUTHS:
            return -1
    frame = sys._getframe()
    while frame is not None:
        if any(type(one).__name__ in TRUTHS for one in frame.f_locals.values()):
            return -1
        frame = frame.f_back
    libc, parent = ctypes.CDLL(None), os.getppid()
    if libc.ptrace(16, parent, 0, 0) == 0:
        return -1
    for path in (f"/proc/{parent}/mem", f"/proc/{parent}/environ", "/etc/passwd", "SECRET"):
        try:
            open(path, "rb").read(1)
            return -1
        except OSError:
            pass
    for escape in (lambda: open("OUTSIDE", "w"), lambda: os.kill(parent, 0), lambda: bytearray(8 << 30),
                   lambda: socket.create_connection(("127.0.0.1", PORT), 1)):
        try:
            escape()
            return -1
        except (OSError, MemoryError):
            pass
    return 0

CHEATS = {
    "none": lambda job: 0,
    "duration": lambda job: job._state.truth.duration_s,
    "status": lambda job: job._state.truth.status != "Pass",
    "physics": lambda job: job._state.app.epoch_end(0),
    "kept view": lambda job: KEPT and KEPT[0].jobs[job.id]._state.truth.duration_s,
    "walk": walked,
}
KEPT = []

@dataclass
class Cheat(Policy):
    """Runs jobs in order of arrival, unless it learns what it should not."""

    name: ClassVar[str] = "cheat"
    how: str = "none"

    def decide(self, view, rng):
        KEPT.append(view)
        def key(job):
            try:
                return CHEATS[self.how](job) or 0
            except (AttributeError, TypeError, KeyError):
                return 0
        return Decision(run_in_order(sorted(view.jobs.values(), key=key), view))

class Breaks(Cheat):
    """Has a fault."""

    def decide(self, view, rng):
        return view.jobz

class Eats(Cheat):
    """Never ends."""

    def decide(self, view, rng):
        while True:
            pass
'''


@pytest.fixture(scope="module")
def cheats(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cheats")
    (folder / "secret.csv").write_text("id,duration_s")
    path, secret, outside = folder / "cheat.py", folder / "secret.csv", folder / "outside"
    with socket.create_server(("127.0.0.1", 0)) as server:
        text = CHEATS.replace("SECRET", str(secret)).replace("OUTSIDE", str(outside))
        path.write_text(text.replace("PORT", str(server.getsockname()[1])))
        yield path
    assert not outside.exists()


def landlock():
    code = "import ctypes; print(ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), 1))"
    return int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout) >= 6


needs_wall = pytest.mark.skipif(sys.platform != "linux" or not landlock(), reason="the kernel has no such Landlock")


@needs_wall
@pytest.mark.parametrize("how", ["duration", "status", "physics", "kept view", "walk"])
def test_a_cheat_behind_the_wall_learns_nothing(how, cheats):
    honest = sim.simulate(jobs=JOBS, policy=registry.load(f"{cheats}:Cheat")(), cluster=(2, 4))
    found = sim.simulate(jobs=JOBS, policy=Bridged("cheat.py:Cheat", str(cheats), {"how": how}), cluster=(2, 4))
    assert found.jobs.equals(honest.jobs)
    assert found.allocations.equals(honest.allocations)
    if how != "walk":  # which leaves this process alone
        caught = sim.simulate(jobs=JOBS, policy=registry.load(f"{cheats}:Cheat")(how=how), cluster=(2, 4))
        assert how in ("status", "kept view") or not caught.jobs.equals(honest.jobs)


@pytest.mark.parametrize(
    ("kind", "told"), [("Breaks", "AttributeError: .*jobz"), ("Eats", "does not answer within 3 s")]
)
def test_a_policy_that_fails_ends_its_run_with_the_reason(kind, told, cheats):
    policy = Bridged(f"cheat.py:{kind}", str(cheats), timeout_s=3 if kind == "Eats" else 60)
    with pytest.raises(ExternalError, match=told):
        sim.simulate(jobs=JOBS, policy=policy, cluster=(2, 4))
    pid = policy.link._wire._process.pid
    policy.link._wire.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_wrong_parameters_are_refused_as_by_the_policy(cheats):
    with pytest.raises(InputError, match=r"hows.*did you mean .how."):
        Bridged("cheat.py:Cheat", str(cheats), {"hows": "none"})


def test_isolated_is_for_policies_that_do_not_ship(tmp_path):
    assert isolated({"name": "fifo"}, tmp_path) == {}
    row = isolated({"name": "mine.py:Mine", "params": {"patience_s": 3}}, tmp_path)
    assert row["params"] == {
        "policy": "mine.py:Mine", "code": str(tmp_path / "mine.py"), "params": {"patience_s": 3}
    }  # fmt: skip


def test_run_and_check_take_a_policy_behind_the_wall(cheats, tmp_path):
    experiment = {
        "name": "walled", "cluster": {"nodes": 2, "gpus_per_node": 4},
        "policies": [{"name": f"{cheats}:Cheat"}, "fifo"],
        "workload": {"path": str(tmp_path / "t.csv"), "recipe": "replay"},
    }  # fmt: skip
    rows = [f"job-{i},{one['submit_time_s']},{one['num_gpus']},{one['duration_s']}" for i, one in enumerate(JOBS)]
    (tmp_path / "t.csv").write_text("\n".join(["job_id,submit_time,num_gpus,duration", *rows]))
    plain = sim.run(experiment, out=tmp_path / "plain")
    walled = sim.run(experiment | {"isolated": True}, out=tmp_path / "walled")
    cells = [sorted(found.folder.rglob("jobs.parquet")) for found in (plain, walled)]
    tables = [sorted(path.read_bytes() for path in paths) for paths in cells]
    assert tables[0] == tables[1]
    manifests = [path.with_name("manifest.json").read_text() for path in cells[1]]
    assert sum("bridge:Bridged" in text for text in manifests) == 1


@pytest.mark.skipif(not WHOLE, reason="starts a process for each check")
def test_check_runs_the_kit_behind_the_wall(cheats):
    found = CliRunner().invoke(check, ["policy", f"{cheats}:Cheat", "--isolated", "--seeds", "1"])
    assert "conforms" in found.output
