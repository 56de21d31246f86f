"""Confirms and reports the removal of cells."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from simsched.errors import input_error
from simsched.words import counted

if TYPE_CHECKING:
    from simsched.experiment.running import Removal

yes_option = click.option("--yes", is_flag=True, help="Remove without asking.")


def remove_asked(cells: Sequence[Path], *, yes: bool) -> Removal:
    """List cells, confirm on stderr unless `yes`, and remove them; raises `InputError` if it cannot ask."""
    from simsched.experiment.running import Removal, remove, why_not_ours

    mine = [cell for cell in cells if not why_not_ours(cell)]
    if mine and not yes:
        if not sys.stdin.isatty():
            raise input_error("--remove", "asks first, and there is no terminal to ask in", "add --yes")
        for cell in mine:
            click.echo(cell, err=True)
        if not click.confirm(f"Remove {counted(len(mine), 'cell')}?", err=True):
            return Removal((), dict.fromkeys(cells, "you said no"))
    done = remove(cells)
    for cell, reason in done.left.items():
        click.echo(f"simsched: {cell} stays: {reason}", err=True)
    return done
