"""Files of others, links and locked folders lie where results are removed; only what simsched wrote goes."""

import fcntl
import os
import random
import shutil
from pathlib import Path

from benchmarks.abuse.command import here, prepared
from benchmarks.abuse.fuzz import fault
from benchmarks.abuse.tries import Ending

_EXPERIMENT = """\
name: strangers
cluster: {nodes: 2, gpus_per_node: 4}
workload: {path: jobs.csv, recipe: replay}
policies: [{name: fifo}, {name: las}, {name: srtf}]
report: {plots: false}
"""


def prepare(folder: Path) -> None:
    """Make the run among whose cells the files of others are put."""
    prepared(folder, "strangers", _EXPERIMENT, "whole")


def attempt(folder: Path, chance: random.Random) -> Ending:
    """Put files of others into a copy of the run, have its cells removed, and look whether they are still there."""
    results, outside = folder / "results", folder / "outside"
    for place in (results, outside):
        shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(folder / "whole/strangers", results / "strangers")
    outside.mkdir()
    (outside / "photo.jpg").write_text("a photo")
    (outside / "manifest.json").write_text("{}")
    cells = results / "strangers/cells"
    told = [chance.choice(WAYS)(cells, outside, chance) for _ in range(chance.randint(1, 3))]
    precious = {
        path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file() and _theirs(path, outside)
    }
    command = chance.choice(
        [
            ("verify", "results/strangers", "--remove", "--yes"),
            ("clean", "results", "--remove", "--yes"),
            ("verify", "results/strangers", "--remove"),
            ("clean", "results", "--remove"),
            ("clean", "results/strangers", "--remove", "--yes"),
        ]
    )
    before = {path for path in cells.glob("*/manifest.json") if not path.parent.is_symlink()}
    locked = chance.random() < 0.2
    with (results / "strangers/.lock").open("a") as lock:
        if locked:
            fcntl.flock(lock, fcntl.LOCK_EX)
        done = here(folder, *command)
    if wrong := fault(done):
        return Ending("", f"{' '.join(command)} with {', '.join(told)}: {wrong}")
    lost = [
        str(path.relative_to(folder))
        for path, held in precious.items()
        if not path.is_file() or path.read_bytes() != held
    ]
    if lost:
        return Ending("", f"{' '.join(command)} with {', '.join(told)}: lost {lost}")
    gone = before - set(cells.glob("*/manifest.json"))
    if gone and "--yes" not in command:
        return Ending("", f"{' '.join(command)} with {', '.join(told)}: removed without being told to")
    return Ending("cells removed, nothing of others touched" if gone else "nothing removed")


def _theirs(path: Path, outside: Path) -> bool:
    return outside in path.parents or path.name in ("thesis.txt", "notes.md")


def _file_beside(cells: Path, outside: Path, chance: random.Random) -> str:
    (cells / "thesis.txt").write_text("a thesis")
    return "a file among the cells"


def _folder_beside(cells: Path, outside: Path, chance: random.Random) -> str:
    name = chance.choice(("holidays", "0123456789abcdef", ".tmp-mine"))
    (cells / name).mkdir(exist_ok=True)
    (cells / name / "thesis.txt").write_text("a thesis")
    return f"a folder {name}"


def _link(cells: Path, outside: Path, chance: random.Random) -> str:
    target = cells / chance.choice(("0123456789abcdef0", "photos", "fedcba9876543210"))
    if not target.is_symlink() and not target.exists():
        target.symlink_to(outside)
    return "a link to a folder outside"


def _cell_replaced(cells: Path, outside: Path, chance: random.Random) -> str:
    cell = chance.choice(sorted(path for path in cells.iterdir() if path.is_dir()))
    if not cell.is_symlink():
        shutil.rmtree(cell)
        cell.symlink_to(outside)
    return "a link in the place of a cell"


def _file_in_cell(cells: Path, outside: Path, chance: random.Random) -> str:
    cell = chance.choice(sorted(path for path in cells.iterdir() if path.is_dir() and not path.is_symlink()))
    (cell / "notes.md").write_text("notes")
    _spoil(cell)
    return "notes in a damaged cell"


def _damage(cells: Path, outside: Path, chance: random.Random) -> str:
    _spoil(chance.choice(sorted(path for path in cells.iterdir() if path.is_dir() and not path.is_symlink())))
    return "a damaged cell"


def _cells_linked(cells: Path, outside: Path, chance: random.Random) -> str:
    if not cells.is_symlink():
        shutil.move(cells, outside / "cells")
        cells.symlink_to(outside / "cells")
    return "a link in the place of all cells"


def _no_index(cells: Path, outside: Path, chance: random.Random) -> str:
    (cells.parent / "run.json").write_text(chance.choice(('{"cells": []}', "{}", "[]", "")))
    return "an index that names no cell"


def _spoil(cell: Path) -> None:
    for path in sorted(cell.glob("*.parquet"))[:1]:
        path.write_bytes(b"x")


def _hard_link(cells: Path, outside: Path, chance: random.Random) -> str:
    cell = chance.choice(sorted(path for path in cells.iterdir() if path.is_dir() and not path.is_symlink()))
    if not (cell / "photo.jpg").exists():
        os.link(outside / "photo.jpg", cell / "photo.jpg")
    _spoil(cell)
    return "a hard link in a damaged cell"


WAYS = (
    _file_beside,
    _folder_beside,
    _link,
    _cell_replaced,
    _file_in_cell,
    *[_damage] * 3,
    _cells_linked,
    *[_no_index] * 2,
    _hard_link,
)
