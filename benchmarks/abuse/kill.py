"""A sweep that is stopped at random moments ends the same as one that is not."""

import os
import random
import signal
import subprocess
import time
from pathlib import Path

from benchmarks.abuse.command import TRACE, command, environment, run, tables

EXPERIMENT = """\
name: kill
cluster: {nodes: 2, gpus_per_node: 4}
workload: {path: jobs.csv, recipe: replay}
policies: [{name: fifo}, {name: tiresias, params: {interval_s: 1}}, {name: las}]
seeds: 10
report: {plots: false}
"""
WAYS = {
    "SIGKILL": [signal.SIGKILL],
    "SIGTERM": [signal.SIGTERM],
    "Ctrl-C": [signal.SIGINT],
    "Ctrl-C twice": [signal.SIGINT, signal.SIGINT],
}


def attack(folder: Path, rounds: int, chance: random.Random) -> list[str]:
    """Stop a sweep `rounds` times; returns what broke."""
    (folder / "jobs.csv").write_text(TRACE)
    (folder / "kill.yaml").write_text(EXPERIMENT)
    begin = time.monotonic()
    run(folder, "run", "kill.yaml", "--out", "undisturbed", "--workers", "2")
    lasts_s = time.monotonic() - begin
    expected = tables(folder / "undisturbed/kill")
    print(f"kill: undisturbed {lasts_s:.1f} s", flush=True)
    broken: list[str] = []
    for number in range(rounds):
        way, out = chance.choice(sorted(WAYS)), f"out{number}"
        process = subprocess.Popen(
            command("run", "kill.yaml", "--out", out, "--workers", "2"), cwd=folder, env=environment(folder),
            start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        time.sleep(chance.uniform(0, lasts_s))
        for number_of_signal in WAYS[way]:
            if process.poll() is None:
                os.killpg(process.pid, number_of_signal)
                time.sleep(0.1)
        begin = time.monotonic()
        said = process.communicate(timeout=600)[1]
        took_s = time.monotonic() - begin
        left = [path.name for path in (folder / "scratch").glob("simsched-*")]
        if way == "Ctrl-C twice" and took_s > max(2, lasts_s / 5):  # two seconds where nothing else keeps the machine
            broken.append(f"{way}: ended after {took_s:.1f} s")
        if "Traceback" in said or (left and way != "SIGKILL"):
            broken.append(f"{way}: left {left}, said {said[-200:]}")
        for path in (folder / "scratch").glob("simsched-*"):
            subprocess.run(["rm", "-rf", str(path)], check=False)
        run(folder, "run", "kill.yaml", "--out", out, "--workers", "1")
        if tables(folder / out / "kill") != expected:
            broken.append(f"{way}: the tables differ")
        print(f"kill: {number + 1}: {way}, ended {took_s:.1f} s later, {len(broken)} broken", flush=True)
    return broken
