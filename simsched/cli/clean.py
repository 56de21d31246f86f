"""`simsched clean` and `simsched verify`: remove cells that no run uses, and find damaged cells."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from simsched.cli.options import JSON, RUN_FOLDER, arg, command, opt
from simsched.cli.output import print_json
from simsched.errors import input_error
from simsched.words import counted

if TYPE_CHECKING:
    from simsched.experiment.running import Removal


_YES = opt("Remove without asking.")


def remove_asked(cells: Sequence[Path], *, yes: bool) -> Removal:
    """List cells, confirm on stderr unless `yes`, and remove them; raises `InputError` if it cannot ask."""
    from simsched.experiment.running import Removal, remove, why_not_ours

    mine = [cell for cell in cells if not why_not_ours(cell)]
    if mine and not yes:
        if not sys.stdin.isatty():
            raise input_error("--remove", "asks for confirmation, but there is no terminal", "add --yes")
        for cell in mine:
            click.echo(cell, err=True)
        if not click.confirm(f"Remove {counted(len(mine), 'cell')}?", err=True):
            return Removal((), dict.fromkeys(cells, "you said no"))
    done = remove(cells)
    for cell, reason in done.left.items():
        click.echo(f"simsched: {cell} stays: {reason}", err=True)
    return done


@command()
def clean(
    folder: Path = arg("DIR", default=Path("results")),
    *,
    remove: bool = opt("Remove the cells instead of only listing them."),
    yes: bool = _YES,
) -> None:
    """List or remove the cells below DIR that no run uses, such as those of abandoned settings or unfinished shards.

    DIR is the folder of one or several runs. A cell is used if the run.json next to it names it. Files that simsched
    has not written, targets of links, and the folder of an active run are left untouched.
    """
    from simsched.experiment.running import runs_below

    runs = runs_below(folder)
    if not runs:
        raise input_error(
            folder, "holds no results", "name the folder that `simsched run` made, or that given as --out"
        )
    unused = [cell for run in runs for cell in _unused(run)]
    sizes = {cell: sum(file.stat().st_size for file in cell.rglob("*") if file.is_file()) for cell in unused}
    for cell in unused:
        click.echo(cell)
    gone = remove_asked(unused, yes=yes).removed if remove else unused
    what = "removed" if remove else "unused; remove them with --remove"
    size = sum(sizes[cell] for cell in gone) / 1e6
    click.echo(f"{counted(len(gone), 'cell')} {what} ({size:.1f} MB)" if unused else "Every cell is in use.")


def _unused(run: Path) -> list[Path]:
    """Return a run's cells that are not in its index, none without an index, and the shards of unfinished cells."""
    from simsched.experiment.running import SHARDS, why_not_ours
    from simsched.results import RUN_FILE, read_json
    from simsched.results.integrity import MANIFEST_FILE

    shards = [path for path in sorted((run / SHARDS).glob("*")) if not why_not_ours(path)]
    if not (run / RUN_FILE).is_file():
        return shards
    content = read_json(run / RUN_FILE)
    used = {str(entry.get("cell")) for entry in content.get("cells", []) if isinstance(entry, dict)}
    if content.get("fairness"):  # solo runs are not in the index
        return shards
    candidates = [cell for cell in sorted((run / "cells").iterdir()) if cell.name not in used]
    reasons = {cell: why_not_ours(cell) for cell in candidates if not cell.name.startswith(".")}
    for cell, reason in reasons.items():
        if reason:
            click.echo(f"simsched: {cell} stays: {reason}", err=True)
    return shards + [cell for cell, reason in reasons.items() if not reason and (cell / MANIFEST_FILE).is_file()]


_DAMAGED = 1


@command()
def verify(
    folder: Path = RUN_FOLDER,
    *,
    remove: bool = opt("Remove damaged cells, so that the next run repeats them."),
    yes: bool = _YES,
    as_json: bool = JSON,
) -> None:
    """Compare every file of a run with the hashes in its cells' manifests.

    The exit code is 0 if all are as written, and 1 otherwise. The command removes only what simsched has written, never
    targets of links, and nothing while a run uses the folder.
    """
    from simsched.results.integrity import problems_of

    if not (folder / "cells").is_dir():
        raise input_error(folder, "is not the folder of a run", "name the folder that `simsched run` made")
    cells = {path.name: path for path in sorted((folder / "cells").iterdir()) if not path.name.startswith(".")}
    problems = problems_of(cells)
    damaged = [path for path in cells.values() if str(path) in {problem.where for problem in problems}]
    if not as_json:
        for problem in problems:
            click.echo(str(problem))
    done = remove_asked(damaged, yes=yes) if remove and damaged else None
    if as_json:
        content = {"cells": len(cells), "damaged": damaged, "problems": problems}
        print_json(content | ({} if done is None else {"removed": done.removed, "left": done.left}))
    else:
        removed = "" if done is None else f", {len(done.removed)} removed"
        click.echo(f"{len(cells)} cells, {len(damaged)} of them damaged{removed}")
    if damaged:
        click.get_current_context().exit(_DAMAGED)
