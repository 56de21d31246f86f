"""`simsched report`, `plot` and `export`: results as one HTML page, as figures, and as files for other tools."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

import click

from simsched.cli.options import METRICS, RUN_FOLDER, WORKERS, arg, command, opt
from simsched.cli.output import processors
from simsched.errors import InputError, Problem, input_error, nearest
from simsched.files import absolute

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from simsched.report.page import Part, Wanted
    from simsched.results import Cell, Run

#: With fewer sections, starting processes takes longer than composing them.
_LEAST_EACH = 3


@command()
def report(
    folder: Path = arg("DIR"),
    *,
    out: Path | None = opt("The page. [default: DIR/report.html]"),
    workers: int | None = WORKERS,
) -> None:
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
        message = f"cannot be written ({error.strerror or error})"
        raise input_error(path, message, "name another file with --out") from error
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
    from simsched.experiment.running import reproduction_of
    from simsched.report.page import Part
    from simsched.results import read_run

    parts: list[Part] = []
    problems: list[Problem] = []
    for folder in folders:
        try:
            run = read_run(folder)
            parts.append(Part(run, reproduction_of(run), run.replicated_over))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(*problems)
    return parts


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


def complete_figure(context: click.Context, option: click.Option, begun: str) -> list[str]:
    """Complete names of figures."""
    from simsched.report.figures import FIGURES

    return [name for name in FIGURES if name.startswith(begun) and not name.endswith("-KEY")]


@command()
def plot(
    folder: Path = RUN_FOLDER,
    *,
    out: Path | None = opt("Folder. [default: RUN/figures]", metavar="DIR"),
    job: str | None = opt("Draw the timeline of this job.", metavar="ID"),
    seed: int | None = opt("Seed whose job is drawn. [default: the first]"),
    figure: str | None = opt(
        "Draw only this figure (see `simsched list figures`).", metavar="NAME", shell_complete=complete_figure
    ),
    style: Literal["page", "one-column", "two-columns"] = opt(
        "Use the width of one or two columns of a paper (3.33 or 7 in), no title, and write the LaTeX to include it.",
        default="page",
    ),
    metrics: tuple[str, ...] = METRICS,
) -> None:
    """Redraw the figures of a run, one of them, or the timeline of one job, and print their paths.

    With -m, bars and sweeps show these metrics. Fonts are embedded in PDF; lines also differ by dashes.
    """
    from simsched.report.figures import draw_figure, draw_run, save
    from simsched.results import read_run

    run = read_run(folder)
    where = out or folder / "figures"
    if figure is not None or metrics:
        name = figure or "bars"
        paths = save(*draw_figure(run, name, run.replicated_over, metrics), where, name, style=style)
    elif job is None:
        paths = draw_run(run, where, run.replicated_over, style=style)
    else:
        paths = _draw_job(run, job, seed, where, style)
    for path in paths:
        click.echo(path)


def _draw_job(run: Run, job_id: str, seed: int | None, folder: Path, style: str) -> list[Path]:
    """Plot a job's timeline under each policy that ran it with one seed."""
    from simsched.report.figures import job_timeline, save
    from simsched.results.compare import row_name

    chosen = run.cells[0].seed if seed is None else seed
    cells = {row_name(cell.policy, cell.point): cell for cell in _chosen(run, None, chosen)}
    ids = {name: set(cell.table("jobs", ["job_id"])["job_id"]) for name, cell in cells.items()}
    lives = {name: (cell.jobs, cell.allocations) for name, cell in cells.items() if job_id in ids[name]}
    if not lives:
        known = set().union(*ids.values())
        raise input_error(run.folder, f"no job is called '{job_id}' with seed {chosen}", _some(job_id, known))
    title = f"{run.name}: {job_id} (seed {chosen})"
    return save(*job_timeline(lives, job_id, title=title), folder, f"job-{job_id}", style=style)


def _some(name: str, known: set[str]) -> str:
    hint = nearest(name, known)
    return hint if hint.startswith("did") else f"there are {len(known)} jobs, for instance '{min(known, default='')}'"


def _perfetto(cell: Cell, path: Path) -> str:
    from simsched.report import write_perfetto

    return f"{write_perfetto(cell, path):,} slices"


def _swf(cell: Cell, path: Path) -> str:
    from simsched.workload import write_swf

    jobs = cell.jobs.sort_values("submit_time_s", kind="stable")
    fields = {
        "submit time": jobs["submit_time_s"],
        "wait time": jobs["start_time_s"] - jobs["submit_time_s"],
        "run time": jobs["held_s"],
        "allocated processors": (jobs["attained_gpu_s"] / jobs["held_s"]).round().where(jobs["held_s"] > 0, -1),
        "requested processors": jobs["num_gpus"],
        "status": jobs["status"].where(jobs["status"] != "", "Pass"),
    }
    groups = cell.manifest.get("cluster") or []
    about = {
        "Computer": "simulated",
        "Preemption": "TS" if (jobs["restarts"] > 0).any() else "No",
        "MaxNodes": sum(group["nodes"] for group in groups),
        "MaxProcs": sum(group["nodes"] * group["gpus_per_node"] for group in groups),
        "Note": "a processor is a GPU",
    }
    write_swf(jobs.assign(**fields), path, about=about)
    return f"{len(jobs):,} jobs"


def _batsim(cell: Cell, path: Path) -> str:
    from simsched.files import write_text
    from simsched.report import batsim_jobs

    write_text(path, batsim_jobs(cell))
    return f"{len(cell.jobs):,} jobs"


#: The ending of each format's files, and the function that writes a cell and describes the content.
_FORMATS: Mapping[str, tuple[str, Callable[[Cell, Path], str]]] = MappingProxyType(
    {"perfetto": (".json.gz", _perfetto), "swf": (".swf", _swf), "batsim": ("_jobs.csv", _batsim)}
)


@command()
def export(
    folder: Path = RUN_FOLDER,
    *,
    to: str = opt("Format of the files.", type=click.Choice(list(_FORMATS))),
    policy: str | None = opt("Only the cells of this policy.", metavar="LABEL"),
    seed: int | None = opt("Only the cells of this seed."),
    out: Path | None = opt("Folder. [default: RUN/exports]", metavar="DIR"),
) -> None:
    """Write the schedules or jobs of a run for other tools, one file per cell, and print their paths.

    perfetto: trace events, for ui.perfetto.dev or chrome://tracing (a process per node, a thread per GPU, a slice per
    job). swf: jobs in the Standard Workload Format. batsim: jobs as Batsim's _jobs.csv.
    """
    from simsched.outlets import file_name
    from simsched.results import read_run
    from simsched.results.compare import row_name

    run = read_run(folder)
    ending, write = _FORMATS[to]
    where = out or folder / "exports"
    for cell in _chosen(run, policy, seed):
        path = where / f"{file_name(f'{row_name(cell.policy, cell.point)}-seed-{cell.seed}')}{ending}"
        try:
            where.mkdir(parents=True, exist_ok=True)
            held = write(cell, path)
        except OSError as error:
            raise input_error(path, f"cannot be written: {error.strerror}", "name another folder with --out") from None
        click.echo(f"{path}: {held}")


def _chosen(run: Run, policy: str | None, seed: int | None) -> list[Cell]:
    """Return the cells of a policy and a seed; raises `InputError` if the run has none."""
    if policy is not None and policy not in run.policies:
        raise input_error(run.folder, f"no policy is labelled '{policy}'", nearest(policy, run.policies))
    seeds = sorted({cell.seed for cell in run.cells})
    if seed is not None and seed not in seeds:
        raise input_error(run.folder, f"has no seed {seed}", f"its seeds are {', '.join(map(str, seeds))}")
    return [cell for cell in run.cells if policy in (None, cell.policy) and seed in (None, cell.seed)]
