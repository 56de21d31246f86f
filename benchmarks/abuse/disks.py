"""The disk is full after a random number of bytes: what is said is true, and nothing that is whole is lost."""

import errno
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.abuse.command import environment, here, prepared, tables
from benchmarks.abuse.fuzz import fault
from benchmarks.abuse.tries import Ending

_EXPERIMENT = """\
name: disks
cluster: {nodes: 2, gpus_per_node: 4}
workload: {path: jobs.csv, recipe: replay}
policies: [{name: fifo}, {name: las}]
seeds: 2
"""
_FULL = """\
import sys
from benchmarks.abuse.disks import fill_after
fill_after(int(sys.argv[1]))
del sys.argv[1]
from simsched.cli.entry import main
main()
"""


def prepare(folder: Path) -> None:
    """Run the experiment on a disk with room, to compare with."""
    prepared(folder, "disks", _EXPERIMENT, "whole")


def fill_after(size: int) -> None:
    """Have every file that this process opens for writing be full after `size` bytes, as far as Linux can.

    A limit on the size of files stands in for a full disk: `write` fails in the same way but for its errno.
    """
    import resource
    import signal

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def attempt(folder: Path, chance: random.Random) -> Ending:
    """Run, show or report on a disk that fills, then again on one with room."""
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    size = int(10 ** chance.uniform(0, 5.3))
    command = chance.choice(
        (("run", "disks.yaml", "--out", "out", "--in-process"), ("report", "out/disks"), ("plot", "out/disks"))
    )
    if command[0] != "run":
        shutil.copytree(folder / "whole", out)
    scratch = environment(folder)
    try:
        done = subprocess.run(
            [sys.executable, "-c", _FULL, str(size), *command],
            cwd=folder,
            env={**scratch, "MPLCONFIGDIR": str(folder)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Ending("", f"{command[0]} on a disk full after {size} bytes: no end")
    told = f"{command[0]} on a disk full after {size} bytes"
    if wrong := fault(done):
        return Ending("", f"{told}: {wrong}")
    if done.returncode == 0:
        outcome = "there was room"
    elif os.strerror(errno.EFBIG) in done.stderr or "written" in done.stderr or "disk" in done.stderr:
        outcome = "said so"
    else:
        return Ending("", f"{told}: does not say so: {done.stderr[-300:]}")
    if command[0] != "run" and tables(out / "disks") != tables(folder / "whole/disks"):
        return Ending("", f"{told}: cells are others than before")
    again = here(folder, "run", "disks.yaml", "--out", "out", "--in-process", "--no-plots")
    if again.returncode or tables(out / "disks") != tables(folder / "whole/disks"):
        return Ending("", f"{told}: the next run does not mend it: {again.stderr[-300:]}")
    return Ending(f"{outcome}, and the next run gave the same bytes")
