"""`simsched plot`: the figures of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from simsched.cli.compare import metrics_option
from simsched.errors import input_error, nearest

if TYPE_CHECKING:
    from simsched.results import Run


def complete_figure(context: click.Context, option: click.Option, begun: str) -> list[str]:
    """Complete names of figures."""
    from simsched.report.figures import FIGURES

    return [name for name in FIGURES if name.startswith(begun) and not name.endswith("-KEY")]


@click.command()
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--out", metavar="DIR", type=click.Path(path_type=Path), help="Folder. [default: RUN/figures]")
@click.option("--job", "job_id", metavar="ID", help="Draw the timeline of this job.")
@click.option("--seed", type=int, metavar="N", help="Seed whose job is drawn. [default: the first]")
@click.option(
    "--figure",
    "figure",
    metavar="NAME",
    help="Draw only this figure (see `simsched list figures`).",
    shell_complete=complete_figure,
)
@click.option(
    "--style",
    type=click.Choice(["page", "one-column", "two-columns"]),
    default="page",
    show_default=True,
    help="Use the width of one or two columns of a paper (3.33 or 7 in), no title, and write the LaTeX to include it.",
)
@metrics_option
def plot(
    folder: Path,
    out: Path | None,
    job_id: str | None,
    seed: int | None,
    figure: str | None,
    style: str,
    metrics: tuple[str, ...],
) -> None:
    """Redraw the figures of a run, one of them, or the timeline of one job, and print their paths.

    With -m, bars and sweeps show these metrics. Fonts are embedded in PDF; lines also differ by dashes.
    """
    from simsched.results import read_run

    run = read_run(folder)
    where = out or folder / "figures"
    if figure is not None or metrics:
        from simsched.report.figures import draw_figure, save

        name = figure or "bars"
        paths = save(*draw_figure(run, name, run.replicated_over, metrics), where, name, style=style)
    elif job_id is None:
        from simsched.report.figures import draw_run

        paths = draw_run(run, where, run.replicated_over, style=style)
    else:
        paths = _draw_job(run, job_id, seed, where, style)
    for path in paths:
        click.echo(path)


def _draw_job(run: Run, job_id: str, seed: int | None, folder: Path, style: str) -> list[Path]:
    """Plot a job's timeline under each policy that ran it with one seed."""
    from simsched.report.figures import job_timeline, save
    from simsched.results.compare import row_name

    chosen = run.cells[0].seed if seed is None else seed
    cells = {row_name(cell.policy, cell.point): cell for cell in run.cells if cell.seed == chosen}
    if not cells:
        seeds = ", ".join(str(one) for one in sorted({cell.seed for cell in run.cells}))
        raise input_error(run.folder, f"has no seed {chosen}", f"its seeds are {seeds}")
    known: set[str] = set()
    lives = {}
    for name, cell in cells.items():
        ids = set(cell.table("jobs", ["job_id"])["job_id"])
        known |= ids
        if job_id in ids:
            lives[name] = (cell.jobs, cell.allocations)
    if not lives:
        raise input_error(run.folder, f"no job is called '{job_id}' with seed {chosen}", _some(job_id, known))
    title = f"{run.name}: {job_id} (seed {chosen})"
    return save(*job_timeline(lives, job_id, title=title), folder, f"job-{job_id}", style=style)


def _some(name: str, known: set[str]) -> str:
    hint = nearest(name, known)
    return hint if hint.startswith("did") else f"there are {len(known)} jobs, for instance '{min(known, default='')}'"
