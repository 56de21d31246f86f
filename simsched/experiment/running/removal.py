"""Removes cells from a run: only folders written by simsched, never through links.

A folder is a cell's if its name is a key that its manifest repeats; with a damaged manifest, if it lies in a run of
simsched and holds only files with simsched's names. Everything else stays.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simsched.errors import InputError
from simsched.experiment.running.cell import OWN_FILES
from simsched.experiment.running.store import Store
from simsched.results import RUN_FILE
from simsched.results.integrity import MANIFEST_FILE

#: The folder of the shards of unfinished cells in that of a run, and the suffix of their jobs.
SHARDS, JOBS = ".shards", ".jobs"
#: A key is the start of a SHA-256.
_KEY = re.compile(r"[0-9a-f]{20,64}")


@dataclass(frozen=True)
class Removal:
    """What was removed, and what was kept and why, by path."""

    removed: tuple[Path, ...]
    left: Mapping[Path, str]


def runs_below(folder: Path) -> list[Path]:
    """List the folder if it is a run's, else the runs in it, without following links."""
    if _is_run(folder):
        return [folder]
    inside = sorted(folder.iterdir()) if folder.is_dir() else []
    return [path for path in inside if not path.is_symlink() and _is_run(path)]


def _is_run(folder: Path) -> bool:
    cells = folder / "cells"
    return cells.is_dir() and not cells.is_symlink()


def why_not_ours(cell: Path) -> str:
    """Return why a folder must not be removed as a cell, empty if it may be."""
    if cell.is_symlink() or cell.parent.is_symlink():
        return "it is reached through a link"
    if not cell.is_dir() or not _KEY.fullmatch(cell.name):
        return "its name is not that of a cell"
    if cell.parent.name == SHARDS:
        strange = sorted(one.name for one in cell.iterdir() if one.name != "cells" and one.suffix != JOBS)
        return f"it holds '{strange[0]}', which simsched has not written" if strange else ""
    manifest = _json(cell / MANIFEST_FILE)
    if manifest is not None and manifest.get("cell") != cell.name:
        return f"its {MANIFEST_FILE} is not that of this cell"
    if manifest is None and not _is_index(_json(cell.parent.parent / RUN_FILE)):
        return f"nothing shows that simsched has written it: it has no {MANIFEST_FILE}, and the run no {RUN_FILE}"
    listed = {} if manifest is None else manifest.get("files")
    known = OWN_FILES | (listed.keys() if isinstance(listed, dict) else set())
    with os.scandir(cell) as entries:
        strange = sorted(one.name for one in entries if one.name not in known or not one.is_file(follow_symlinks=False))
    return f"it holds '{strange[0]}', which simsched has not written" if strange else ""


def remove(cells: Iterable[Path]) -> Removal:
    """Remove cells, except foreign folders and those of a run in use."""
    removed: list[Path] = []
    left: dict[Path, str] = {}
    by_run: dict[Path, list[Path]] = {}
    for cell in cells:
        by_run.setdefault(cell.parent.parent, []).append(cell)
    for run, inside in by_run.items():
        try:
            with Store(run).unused():
                for cell in inside:
                    reason = why_not_ours(cell)
                    if reason:
                        left[cell] = reason
                    else:
                        _remove(cell)
                        removed.append(cell)
        except InputError:
            left.update(dict.fromkeys(inside, "a run is using its folder"))
    return Removal(tuple(removed), left)


def _remove(cell: Path) -> None:
    """Remove a folder of files, manifest first: an interrupt leaves no seemingly whole cell; shards as they are."""
    if cell.parent.name == SHARDS:
        shutil.rmtree(cell)
        return
    for file in sorted(cell.iterdir(), key=lambda path: path.name != MANIFEST_FILE):
        file.unlink()
    cell.rmdir()


def _json(path: Path) -> dict[str, Any] | None:
    """Read an object from a file that is not a link, None if there is none."""
    if path.is_symlink() or not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _is_index(content: Mapping[str, Any] | None) -> bool:
    return (
        content is not None and isinstance(content.get("cells"), list) and isinstance(content.get("experiment"), dict)
    )
