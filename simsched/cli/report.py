"""`simsched report`: results as one HTML page."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from simsched.cli.run import processors
from simsched.errors import InputError, Problem, input_error
from simsched.files import absolute

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from simsched.report.page import Part, Wanted

#: With fewer sections, starting processes takes longer than composing them.
_LEAST_EACH = 3


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--out", metavar="FILE", type=click.Path(path_type=Path), help="The page. [default: DIR/report.html]")
@click.option("--workers", "-j", type=click.IntRange(min=1), metavar="N", help="Processes. [default: all processors]")
def report(folder: Path, out: Path | None, workers: int | None) -> None:
    """Gather results into one HTML page, to read on a phone, at a desk or on paper.

    DIR is the folder of a run, or a folder of runs (such as results/). The page is self-contained: it has tables with
    intervals and published values, figures, the commands that reproduce them, and the manifest. Prints its path.
    """
    from simsched.report.page import write_report

    parts = _parts(run_folders(folder))
    title = parts[0].run.name if len(parts) == 1 else f"Results in {absolute(folder).name}"
    path = out or folder / "report.html"
    if path.is_dir():
        raise input_error(path, "is a folder", "name a file with --out")
    try:
        write_report(parts, title, path, partial(_composed, workers or processors()))
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
    """Read all runs; raise all their errors at once."""
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


def _composed(workers: int, wanted: Sequence[Wanted]) -> list[str]:
    """Compose the sections of a page, some in this process and the others in separate ones."""
    from simsched.experiment.running import end, start
    from simsched.report.page import compose

    each = max(min(workers, len(wanted) // _LEAST_EACH), 1)
    begun = [start(_serve) for _ in range(1, each)]
    try:
        for place, (_, pipe) in enumerate(begun, start=1):
            with suppress(OSError):  # it has already ended
                pipe.send(wanted[place::each])
        found = [""] * len(wanted)
        found[::each] = compose(wanted[::each])
        for place, (_, pipe) in enumerate(begun, start=1):
            try:
                found[place::each] = pipe.recv()
            except (EOFError, OSError):  # an exception there is raised again here
                found[place::each] = compose(wanted[place::each])
    finally:
        for process, _ in begun:
            end(process)
    return found


def _serve(pipe: Connection) -> None:
    """Compose the sections that the pipe requests; end without an answer on any exception or warning."""
    from simsched.report.page import compose

    with suppress(Exception), warnings.catch_warnings():  # the other end raises it again
        warnings.simplefilter("error")
        pipe.send(compose(pipe.recv()))
