"""A sweep that is stopped at random moments gives the same result as an undisturbed one."""

import json
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

from benchmarks.abuse.command import TRACE, command, environment, run, tables
from benchmarks.abuse.tries import Ending

EXPERIMENT = """\
name: kill
cluster: {nodes: 2, gpus_per_node: 4}
workload: {path: jobs.csv, recipe: replay}
policies: [{name: fifo}, {name: tiresias, params: {interval_s: 1}}, {name: las}]
seeds: 5
report: {plots: false}
"""
WAYS = {
    "SIGKILL": [signal.SIGKILL],
    "SIGTERM": [signal.SIGTERM],
    "Ctrl-C": [signal.SIGINT],
    "Ctrl-C twice": [signal.SIGINT, signal.SIGINT],
}


def prepare(folder: Path) -> None:
    """Run the sweep undisturbed, and measure its duration."""
    (folder / "jobs.csv").write_text(TRACE)
    (folder / "kill.yaml").write_text(EXPERIMENT)
    begin = time.monotonic()
    run(folder, "run", "kill.yaml", "--out", "undisturbed", "--workers", "2")
    (folder / "lasts.json").write_text(json.dumps(time.monotonic() - begin))


def _hear_interrupts() -> None:
    """Restore the signals that a shell ignores for background jobs."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def attempt(folder: Path, chance: random.Random) -> Ending:
    """Stop the sweep once, finish it, and compare the tables."""
    lasts_s = json.loads((folder / "lasts.json").read_text())
    way, out, scratch = chance.choice(sorted(WAYS)), folder / "out", folder / "scratch"
    shutil.rmtree(out, ignore_errors=True)
    process = subprocess.Popen(
        command("run", "kill.yaml", "--out", "out", "--workers", "2"), cwd=folder, env=environment(folder),
        start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        preexec_fn=_hear_interrupts,
    )  # fmt: skip
    time.sleep(chance.uniform(0, lasts_s))
    for number in WAYS[way]:
        if process.poll() is None:
            os.killpg(process.pid, number)
            time.sleep(0.1)
    begin = time.monotonic()
    said = process.communicate(timeout=300)[1]
    took_s = time.monotonic() - begin
    left = [path.name for path in scratch.glob("simsched-*")]
    for path in scratch.glob("simsched-*"):
        shutil.rmtree(path, ignore_errors=True)
    if took_s > max(30, lasts_s):
        return Ending("", f"{way}: ended after {took_s:.1f} s")
    if "Traceback" in said or (left and way != "SIGKILL"):
        return Ending("", f"{way}: left {left}, said {said[-300:]}")
    whole = len(list((out / "kill/cells").glob("[!.]*"))) if out.exists() else 0
    run(folder, "run", "kill.yaml", "--out", "out", "--workers", "1")
    if tables(out / "kill") != tables(folder / "undisturbed/kill"):
        return Ending("", f"{way}: the tables differ")
    return Ending(f"{way}, finished with the same bytes" if whole else f"{way} before any cell, same bytes")
