"""`simsched report`: results as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from simsched.cli.run import processors
from simsched.errors import InputError, Problem, input_error
from simsched.files import absolute

if TYPE_CHECKING:
    from simsched.report.page import Part


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--out", metavar="FILE", type=click.Path(path_type=Path), help="The page. [default: DIR/report.html]")
@click.option("--workers", "-j", type=click.IntRange(min=1), metavar="N", help="Processes. [default: all processors]")
def report(folder: Path, out: Path | None, workers: int | None) -> None:
    """Gather results into one HTML page, to read on a phone, at a desk or on paper.

    DIR is the folder of a run, or a folder of runs (such as results/). The page needs no other file: it holds tables
    with intervals and published values, figures, the commands that reproduce them and the manifest. Prints its path.
    """
    from simsched.report.page import write_report

    parts = _parts(run_folders(folder))
    title = parts[0].run.name if len(parts) == 1 else f"Results in {absolute(folder).name}"
    path = out or folder / "report.html"
    if path.is_dir():
        raise input_error(path, "is a folder", "name a file with --out")
    try:
        write_report(parts, title, path, workers or processors())
    except OSError as error:
        raise input_error(
            path, f"cannot be written ({error.strerror or error})", "name another file with --out"
        ) from error
    click.echo(path)


def run_folders(folder: Path) -> list[Path]:
    """Return the runs by name: the folder itself, or those in it."""
    from simsched.results import RUN_FILE

    if (folder / RUN_FILE).is_file():
        return [folder]
    runs = sorted(path.parent for path in folder.glob(f"*/{RUN_FILE}")) if folder.is_dir() else []
    if not runs:
        message = f"holds no results: neither it nor a folder in it has a {RUN_FILE}"
        raise input_error(folder, message, "name the folder that `simsched run` made, or the one given as --out")
    return runs


def _parts(folders: list[Path]) -> list[Part]:
    """Read all runs, raising all their errors at once."""
    parts: list[Part] = []
    problems: list[Problem] = []
    for folder in folders:
        try:
            parts.append(_part(folder))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(*problems)
    return parts


def _part(folder: Path) -> Part:
    from simsched.experiment.running import reproduction_of
    from simsched.report.page import Part
    from simsched.results import read_run

    run = read_run(folder)
    return Part(run, reproduction_of(run), run.replicated_over)
