"""Every kind of command ends soon after a signal, whatever it does and however it was started, and leaves nothing."""

from __future__ import annotations

import importlib.util
import os
import random
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.campaigns import WHOLE, tries
from tests.campaigns.command import COMMAND, environment

#: A policy whose decisions take long, and which leaves temporary files where simsched gives it a folder for them.
SLOW = """\
import multiprocessing, tempfile, time
from simsched.policy import Decision, Policy
from simsched.toolkit.gang import run_in_order

class Slow(Policy):
    name = "slow"
    forgets = True

    def decide(self, view, rng):
        if multiprocessing.parent_process() is not None:
            tempfile.mkstemp()
        time.sleep(0.05)
        return Decision(run_in_order(list(view.jobs.values()), view))
"""
EXPERIMENT = """\
name: sweep
cluster: {nodes: 2, gpus_per_node: 4}
workload: {path: jobs.csv, recipe: replay}
policies: [{name: fifo}, {name: 'slow.py:Slow'}, {name: las}, {name: tiresias, params: {interval_s: 1}}]
seeds: 3
report: {plots: false}
"""
LEAGUE = """\
format: simsched-league/2
name: small
jobs: 200
usual: {cluster: {nodes: 2, gpus_per_node: 4}}
contests:
  drawn:
    about: some jobs
    good: end soon
    workload: {recipe: log-normal, jobs: 200, median_s: 200, mean_s: 900, mean_gpus: 2, widest: 8, offered_load: 0.9}
divisions:
  closed: {about: All., seeds: 2, contests: [drawn], policies: [fifo]}
"""
NODES = "".join(
    f"NodeName=n{i} CPUTot=64 RealMemory=1000 Gres=gpu:a100:4 Partitions=batch State=IDLE\n" for i in range(4)
)
RUN = ("run", "sweep.yaml", "--out", "out", "--no-plots")
LOG = ("log.txt", "--cluster", "cluster.txt", "--no-plots")
KINDS = {
    "plain": (*RUN, "-j", "2"),
    "here": (*RUN, "--in-process"),
    "shards": (*RUN, "-j", "2", "--shards", "4"),
    "slow shards": (*RUN, "-j", "2", "--shards", "4", "--policy", "slow"),
    "dask": ("run", "sweep.yaml", "--out", "out-of-dask", "--no-plots", "--dask", "ADDRESS"),
    "profile": (*RUN, "--profile", "--policy", "slow"),
    "report": ("run", "sweep.yaml", "--in-process", "--policy", "fifo"),
    "validate": ("validate", "sweep.yaml"),
    "league": ("league", "small.yaml", "--policy", "fifo", "--policy", "slow.py:Slow", "-j", "2"),
    "bound": ("bound", "sweep.yaml", "-o", "workload.path=large.csv"),
    "calibrate": ("calibrate", *LOG, "-j", "2"),
    "what-if": ("what-if", *LOG, "--change", "cluster.groups.0.nodes=6", "--trust-anyway"),
    "capacity": ("capacity", *LOG, "--target", "queueing_p90_h<=0.01", "--trust-anyway", "-j", "2"),
    "forecast": ("forecast", "--log", *LOG, "--backtest", "--trust-anyway", "-j", "2"),
    "pack": ("pack", "--example", "--seeds", "200"),
    "check": ("check", "policy", "slow.py:Slow"),
    "trace": ("trace", "convert", "large.csv", "out.csv"),
    "info": ("trace", "info", "large.csv"),
}
#: The signals that a command is started to ignore: by a script's `&`, and by nohup.
WAYS = {"foreground": (), "background": (signal.SIGINT,), "nohup": (signal.SIGHUP,)}
#: Seconds after a signal by which a command has to end.
LONGEST_S = 3.0
NEEDS = {"dask": "distributed"}


def trace(jobs: int) -> str:
    chance = random.Random(7)
    rows = (f"{30 * i},{chance.choice((1, 1, 2, 4))},{chance.randint(60, 1500)}\n" for i in range(jobs))
    return "submit_time,num_gpus,duration\n" + "".join(rows)


def log(jobs: int) -> str:
    def clock(seconds: int) -> str:
        return (
            f"2024-03-{1 + seconds // 86400:02d}T{seconds // 3600 % 24:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
        )

    chance, lines = random.Random(8), ["JobID|Submit|Start|End|State|AllocTRES|Timelimit|Partition|Account|User"]
    for i in range(jobs):
        submit, runs = 300 * i, chance.randint(60, 3000)
        times = "|".join(map(clock, (submit, submit + 10, submit + 10 + runs)))
        lines.append(f"{100 + i}|{times}|COMPLETED|gres/gpu={chance.choice((1, 2, 4))}|01:00:00|batch|a|u{i % 3}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the inputs of all kinds."""
    folder = tmp_path_factory.mktemp("stops")
    texts = {
        "sweep.yaml": EXPERIMENT, "slow.py": SLOW, "small.yaml": LEAGUE, "cluster.txt": NODES, "jobs.csv": trace(400),
        "large.csv": trace(60_000), "log.txt": log(4000),
    }  # fmt: skip
    for name, text in texts.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Start a dask cluster."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50
    ) as cluster:
        yield cluster.scheduler_address


def ended(folder: Path, kind: str, way: str, numbers: list[int], moment_s: float, *, address: str = "") -> str:
    """Stop a command by signals at a moment of its life; returns how it ended, after checking what it leaves."""
    scratch = Path(tempfile.mkdtemp(prefix="scratch-", dir=folder))
    ignored = WAYS[way]
    command = [*COMMAND, *(part.replace("ADDRESS", address) for part in KINDS[kind])]

    def prepare() -> None:
        with suppress(PermissionError):
            os.nice(-19)  # so that what else runs on the machine changes no times
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)

    process = subprocess.Popen(
        command, cwd=folder, env={**environment(folder), "TMPDIR": str(scratch)}, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=prepare,
    )  # fmt: skip
    time.sleep(moment_s)
    sent = []
    for number in numbers:
        if process.poll() is None:
            os.killpg(process.pid, number)
            sent.append((number, time.monotonic()))
            time.sleep(0.1)
    deadly = [number for number, _ in sent if number not in ignored]
    if not deadly and process.poll() is None:  # it goes on, until it is told properly
        os.kill(process.pid, signal.SIGTERM)
        deadly = [signal.SIGTERM]
        sent.append((signal.SIGTERM, time.monotonic()))
    case = (kind, way, numbers, moment_s)
    said = process.communicate(timeout=60)[1]
    took_s = time.monotonic() - sent[0][1] if sent else 0.0
    assert "Traceback" not in said, (case, said)
    assert "internal error" not in said, (case, said)
    codes = {code for one in deadly for code in (128 + one, -one)}  # the latter before Python hears signals
    assert process.returncode in codes | {0, 1, 2}, (case, process.returncode, said)
    assert not processes_of(process.pid), case
    assert not list(scratch.iterdir()), case
    left = [*folder.glob("**/.tmp-*"), *folder.glob("**/.*.partial")]
    assert not [path for path in left if "out-of-dask" not in path.parts], case  # dask's workers end their cells
    if process.returncode not in codes:
        return f"ended by itself with {process.returncode}"
    return f"ended by the signal{' late' if took_s > LONGEST_S else ''}"


def processes_of(session: int) -> list[str]:
    """Return the living processes of a session, a moment after its first process ended."""
    for _ in range(100):
        left = []
        for status in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = status.read_text().rpartition(")")[2].split()
            except OSError:  # it has just ended
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                left.append((status.parent / "cmdline").read_text().replace("\0", " "))
        if not left:
            return []
        time.sleep(0.1)
    return left


@pytest.mark.parametrize("kind", KINDS if WHOLE else ["plain", "here", "slow shards", "bound"])
@tries(1, 1)
def test_every_kind_of_command_ends_by_a_signal_and_leaves_nothing(place, kind, chance, request, record_property):
    if kind in NEEDS and importlib.util.find_spec(NEEDS[kind]) is None:
        pytest.skip(f"needs {NEEDS[kind]}")
    address = request.getfixturevalue("address") if kind == "dask" else ""
    numbers = [
        chance.choice((signal.SIGTERM, signal.SIGINT, signal.SIGHUP)) for _ in range(chance.choice((1, 1, 1, 2)))
    ]
    way, moment_s = chance.choice(list(WAYS)), chance.uniform(0.2, 5)
    record_property("outcome", f"{kind}: {ended(place, kind, way, numbers, moment_s, address=address)}")
