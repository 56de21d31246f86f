"""Bits flipped in stored results are noticed by `verify`, and by whoever reads the tables."""

import random
from pathlib import Path

from benchmarks.abuse.command import TRACE, run
from simsched.errors import InputError
from simsched.results.integrity import faults, quick_fault
from simsched.results.reader import read_cell

EXPERIMENT = """\
name: flip
cluster: {nodes: 2, gpus_per_node: 4}
workload: {path: jobs.csv, recipe: replay}
policies: [{name: fifo}]
report: {plots: false}
"""
_EACH = 50  # flips in a round


def attack(folder: Path, rounds: int, chance: random.Random) -> list[str]:
    """Flip bits one at a time; returns what went unnoticed by the full check."""
    (folder / "jobs.csv").write_text(TRACE)
    (folder / "flip.yaml").write_text(EXPERIMENT)
    run(folder, "run", "flip.yaml", "--workers", "1")
    cell = next((folder / "results/flip/cells").iterdir())
    files = sorted(cell.iterdir())
    broken, quick, read = [], 0, 0
    for _ in range(rounds * _EACH):
        path = chance.choice(files)
        before = path.read_bytes()
        after = bytearray(before)
        after[chance.randrange(len(after))] ^= 1 << chance.randrange(8)
        path.write_bytes(bytes(after))
        if not faults(cell):
            broken.append(f"{path.name}: not noticed")
        quick += bool(quick_fault(cell))
        read += _refused(cell)
        path.write_bytes(before)
    print(f"flip: of {rounds * _EACH} bits the quick check noticed {quick}, reading the results {read}")
    return broken


def _refused(cell: Path) -> bool:
    try:
        found = read_cell(cell)
        _ = found.jobs, found.allocations, found.rounds
    except InputError:
        return True
    return False
