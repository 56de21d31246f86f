"""`simsched verify`: whether results are unchanged since they were written."""

from __future__ import annotations

from pathlib import Path

import click

from simsched.cli.clean import remove_asked, yes_option
from simsched.cli.output import json_option, print_json

_DAMAGED = 1


@click.command()
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--remove", is_flag=True, help="Remove damaged cells, so that the next run makes them anew.")
@yes_option
@json_option
def verify(folder: Path, remove: bool, yes: bool, as_json: bool) -> None:
    """Read every file of a run and set it against the hashes in its cells' manifests.

    The exit code is 0 if all are as they were written, and 1 if any is not. Only what simsched has written is removed,
    never what a link leads to, and nothing while a run uses the folder.
    """
    from simsched.errors import input_error
    from simsched.results import problems_of

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
        said = {"cells": len(cells), "damaged": [str(path) for path in damaged]}
        removal = (
            {} if done is None else {"removed": [str(path) for path in done.removed],
                                     "left": {str(path): reason for path, reason in done.left.items()}}
        )  # fmt: skip
        print_json({**said, "problems": [str(problem) for problem in problems], **removal})
    else:
        removed = "" if done is None else f", {len(done.removed)} removed"
        click.echo(f"{len(cells)} cells, {len(damaged)} of them damaged{removed}")
    if damaged:
        click.get_current_context().exit(_DAMAGED)
