"""Bits flipped in stored results are noticed by `verify`, and by whoever reads the tables."""

import random
from pathlib import Path

from benchmarks.abuse.command import prepared
from benchmarks.abuse.tries import Ending
from simsched.errors import InputError
from simsched.results import faults, quick_fault, read_cell

EXPERIMENT = """\
name: flip
cluster: {nodes: 2, gpus_per_node: 4}
workload: {path: jobs.csv, recipe: replay}
policies: [{name: fifo}]
report: {plots: false}
"""


def prepare(folder: Path) -> None:
    """Run an experiment of one cell."""
    prepared(folder, "flip", EXPERIMENT, "results")


def attempt(folder: Path, chance: random.Random) -> Ending:
    """Flip a bit, have it noticed, and flip it back."""
    cell = next((folder / "results/flip/cells").iterdir())
    path = chance.choice(sorted(cell.iterdir()))
    before = path.read_bytes()
    after = bytearray(before)
    at, bit = chance.randrange(len(after)), chance.randrange(8)
    after[at] ^= 1 << bit
    path.write_bytes(bytes(after))
    try:
        if not faults(cell):
            return Ending("", f"{path.name}, byte {at}, bit {bit}: not noticed")
        if quick_fault(cell):
            return Ending("noticed by the quick check")
        return Ending("noticed on reading" if _refused(cell) else "noticed by `verify`")
    finally:
        path.write_bytes(before)


def _refused(cell: Path) -> bool:
    try:
        found = read_cell(cell)
        _ = found.jobs, found.allocations, found.rounds
    except InputError:
        return True
    return False
