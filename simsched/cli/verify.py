"""`simsched verify`: whether results are still the ones that were written."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from simsched.cli.output import json_option, print_json

_DAMAGED = 1


@click.command()
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--remove", is_flag=True, help="Remove damaged cells, so that the next run makes them anew.")
@json_option
def verify(folder: Path, remove: bool, as_json: bool) -> None:
    """Read every file of a run and set it against the hashes in its cells' manifests.

    The exit code is 0 if all are as they were written, and 1 if any is not.
    """
    from simsched.errors import input_error
    from simsched.results.integrity import problems_of

    if not (folder / "cells").is_dir():
        raise input_error(folder, "is not the folder of a run", "name the folder that `simsched run` made")
    cells = {path.name: path for path in sorted((folder / "cells").iterdir()) if not path.name.startswith(".")}
    problems = problems_of(cells)
    damaged = sorted({problem.where for problem in problems})
    for place in damaged if remove else ():
        shutil.rmtree(place)
    if as_json:
        print_json({"cells": len(cells), "damaged": damaged, "problems": [str(problem) for problem in problems]})
    else:
        for problem in problems:
            click.echo(str(problem))
        click.echo(
            f"{len(cells)} cells, {len(damaged)} of them damaged" + (" and removed" if remove and damaged else "")
        )
    if damaged:
        click.get_current_context().exit(_DAMAGED)
