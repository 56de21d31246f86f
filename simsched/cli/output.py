"""What commands share: arguments, tables, JSON and places of files; and `simsched validate` and `simsched schema`."""

from __future__ import annotations

import math
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simsched.cli.operator_options import RunManifests, experiment_of, refuse_manifest_options, takes_manifests
from simsched.cli.options import EXPERIMENT, JSON, OVERRIDES, command, opt
from simsched.errors import input_error
from simsched.files import write_text
from simsched.outlets import json_text, one_line, plain_stream, shortened, visible
from simsched.stops import scratch_folder

if TYPE_CHECKING:
    from simsched.report import TextTable

#: The default width, and the longest cell; longer names lose their middle.
_PAGE, _LONGEST = 100, 80


def write_file(path: Path, text: str) -> None:
    """Write a file that the user named; raises `InputError` if it cannot be written."""
    try:
        write_text(path, text)
    except OSError as error:
        raise input_error(path, f"cannot be written: {error.strerror}", "name another place") from error


def processors() -> int:
    """Return the number of processors available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def debugging() -> bool:
    """Return whether the command shows tracebacks."""
    return bool(click.get_current_context().find_root().params.get("debug"))


def hours(seconds: float | None, digits: int = 2) -> str:
    """Format seconds as hours, None as a dash."""
    return "-" if seconds is None else f"{seconds / 3600:.{digits}f}"


def say_figures(paths: Iterable[Path], word: str = "Figure") -> None:
    """Print the paths of figures in formats for the screen."""
    for path in paths:
        if path.suffix == ".png":
            click.echo(f"{word}: {path}")


def print_json(content: object) -> None:
    """Print JSON with keys in order; non-finite numbers become null."""
    click.echo(json_text(_plain(content), indent=2, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, str | bool | int | None):
        return value
    if isinstance(value, Mapping):
        return {
            key if isinstance(key, str | int | float) else str(_plain(key)): _plain(part) for key, part in value.items()
        }
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return _plain(value.item()) if hasattr(value, "item") else str(value)


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1, folded: bool = False) -> str:
    """Align a table, the first `left` columns to the left; see `TextTable.text`."""
    from simsched.report import TextTable

    return TextTable("", tuple(headers), tuple(map(tuple, rows)), (), left).text(folded=folded)


def print_table(shown: TextTable) -> None:
    """Print a table and its notes in blocks that fit: framed by rich on a terminal, aligned text elsewhere."""
    on_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size((_PAGE, 24)).columns if on_terminal else _PAGE
    if shown.title:
        click.echo(one_line(shown.title))
    rows = tuple(tuple(shortened(one_line(cell), _LONGEST) for cell in row) for row in shown.rows)
    for number, block in enumerate(replace(shown, rows=rows).blocks(width)):
        if number:
            click.echo()
        if on_terminal:
            _print_framed(block)
        else:
            click.echo(block.text())
    for note in shown.notes:
        click.echo(one_line(note))


def _print_framed(block: TextTable) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    framed = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for i, header in enumerate(block.headers):
        justify: Any = "left" if i < block.text_columns else "right"
        framed.add_column(Text(visible(header)), justify=justify, no_wrap=True)
    for row in block.rows:
        framed.add_row(*map(Text, row))
    Console(file=plain_stream(sys.stdout)).print(framed)


@command()
def validate(
    experiment: str = EXPERIMENT,
    overrides: tuple[str, ...] = OVERRIDES,
    *,
    manifests: RunManifests,
    policy: tuple[str, ...] = opt("Manifests only: the policy. [default: kueue]", metavar="NAME"),
    as_json: bool = JSON,
) -> None:
    """Check an experiment, its data and its jobs, without running it.

    If a policy relies on physics that the experiment lacks, the command says what the policy becomes without them.

    If there are many cells, or seeds that each draw from a separate generated trace, the command creates only some:
    every policy at every point for the first seed. It prints their number. Other seeds are checked by the hardest jobs
    that the recipe can make; if these do not fit, the jobs of up to 200 cells are drawn as in a run.

    EXPERIMENT is a YAML file or the name of a shipped experiment, or a file or folder of Kubernetes manifests. All
    errors are reported at once; the exit code is 2 if there are any.
    """
    from simsched.api import check, grid_progress
    from simsched.experiment import find_experiment
    from simsched.results import what_policies_become
    from simsched.words import counted

    if experiment != "-" and not takes_manifests(Path(experiment)):
        refuse_manifest_options(experiment, {"policy": policy})
    with scratch_folder() as folder:
        path = find_experiment(experiment_of(experiment, folder, policy, manifests))
        checked = check(path, overrides, grid_progress())
    path = Path(experiment) if path.is_relative_to(folder) else path
    cells, whole = checked.cells, len(checked.cells) == checked.total
    without = what_policies_become((cell.label, cell.task.about["without"]) for cell in cells)
    distinct = len({cell.task.key for cell in cells})
    if as_json:
        content = {"experiment": checked.name, "file": str(path), "count": checked.total, "looked_into": len(cells)}
        rows = [{"policy": cell.label, "seed": cell.seed, "point": cell.point} for cell in cells]
        print_json(content | {"without": without} | ({"cells": rows, "distinct": distinct} if whole else {}))
        return
    jobs = sorted({len(cell.task.jobs) for cell in cells})
    number = f"{jobs[0]} jobs" if len(jobs) == 1 else f"{jobs[0]} to {jobs[-1]} jobs"
    rest = "" if whole else f", {len(cells)} of them checked"
    click.echo(f"{path}: valid; {counted(distinct if whole else checked.total, 'cell')} of {number}{rest}")
    for sentence in without:
        click.echo(sentence)


@command()
def schema(*, protocol: bool = opt("The messages of schedulers in other processes (docs/external.md).")) -> None:
    """Print the JSON Schema of experiment files, for editors that complete and check YAML."""
    from simsched.experiment import json_schema

    print_json(import_module("simsched_policies.external.messages").json_schema() if protocol else json_schema())
