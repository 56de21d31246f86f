"""`simsched show`, `compare`, `validate-run` and `plot`: commands for results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simsched.cli.output import json_option, print_json, table
from simsched.errors import input_error, nearest

if TYPE_CHECKING:
    from simsched.report import TextTable
    from simsched.results import Agreement, Cell, DifferenceRow, Estimate, Row, Run

_DIFFERENT = 1
_MOST_LISTED = 10


def complete_figure(context: click.Context, option: click.Option, begun: str) -> list[str]:
    """Complete names of figures."""
    from simsched.report.figures import FIGURES

    return [name for name in FIGURES if name.startswith(begun) and not name.endswith("-KEY")]


metrics_option = click.option(
    "-m", "--metric", "metrics", multiple=True, metavar="NAME",
    help="Show this metric (see `simsched list metrics`; makespan_h asks for hours). Repeatable.",
)  # fmt: skip


def layout_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the option to print tables for other programs."""
    for layout, told in (
        ("latex", "LaTeX (booktabs)"),
        ("markdown", "Markdown"),
        ("csv", "CSV, one row per metric"),
    ):
        command = click.option(f"--{layout}", "layout", flag_value=layout, help=f"Print as {told}.")(command)
    return command


@click.command()
@click.argument("folder", metavar="RUN_OR_CELL|policy", type=click.Path(path_type=Path))
@click.argument("name", required=False, metavar="[POLICY]")
@metrics_option
@click.option(
    "--by", type=click.Choice(["tenant", "queue", "user", "size"]), help="Show waits and usage by group instead."
)
@layout_options
@json_option
def show(
    folder: Path, name: str | None, metrics: tuple[str, ...], by: str | None, layout: str | None, as_json: bool
) -> None:
    """Show the results of a run or of one of its cells; `simsched show policy NAME` describes a policy."""
    if name is not None:
        _show_policy(folder, name, as_json=as_json)
        return
    if by is not None:
        from simsched.cli.groups import show_groups

        show_groups(folder, by, as_json=as_json)
        return
    from simsched.results import RUN_FILE, read_cell, read_run

    if (folder / RUN_FILE).is_file() or not (folder / "manifest.json").is_file():
        run = read_run(folder)
        if as_json:
            print_json(comparison_json(run, None))
        else:
            print_comparison(run, None, metrics, layout, differences=False)
        return
    cell = read_cell(folder)
    if as_json:
        print_json({"manifest": cell.manifest, "summary": cell.summary})
    else:
        _print_cell(cell, metrics)


@click.command()
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--reference", metavar="LABEL", help="Policy to compare the others with. [default: the first]")
@metrics_option
@layout_options
@json_option
def compare(folder: Path, reference: str | None, metrics: tuple[str, ...], layout: str | None, as_json: bool) -> None:
    """Compare the policies of a run with a reference, seed by seed."""
    from simsched.results import read_run

    run = read_run(folder)
    if as_json:
        print_json(comparison_json(run, reference))
    else:
        print_comparison(run, reference, metrics, layout)


def _show_policy(what: Path, name: str, *, as_json: bool) -> None:
    from dataclasses import asdict

    from simsched.experiment import policy_card

    if str(what) != "policy":
        raise input_error(str(what), "is followed by another word", "name one run, or `policy` and a policy's name")
    card = policy_card(name)
    if as_json:
        print_json({**asdict(card), "group": card.group, "answers": sorted(card.answers)})
        return
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    if console.is_terminal:
        console.print(Markdown(card.markdown()))
    else:
        click.echo(card.markdown())


@click.command("validate-run")
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.argument("expected", metavar="EXPECTED.csv", type=click.Path(path_type=Path))
@click.option("--policy", metavar="LABEL", help="Check only the cells of this policy.")
@json_option
def validate_run(folder: Path, expected: Path, policy: str | None, as_json: bool) -> None:
    """Compare the completion time of every job with a CSV of expected ones (workload,job,jct_s).

    The exit code is 0 if all jobs are equal, and 1 if any differs. A list with other jobs than the run's is rejected.
    """
    from simsched.results import compare_expected

    found = compare_expected(folder, expected)
    if policy is not None:
        labels = {agreement.cell.policy for agreement in found}
        found = [agreement for agreement in found if agreement.cell.policy == policy]
        if not found:
            raise input_error(folder, f"no policy is labelled '{policy}'", nearest(policy, labels))
    if as_json:
        print_json([_agreement_json(agreement) for agreement in found])
    else:
        _print_agreements(found)
    if not all(agreement.exact for agreement in found):
        click.get_current_context().exit(_DIFFERENT)


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
    from simsched.results import row_name

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


def print_comparison(
    run: Run,
    reference: str | None,
    metrics: tuple[str, ...] = (),
    layout: str | None = None,
    *,
    differences: bool = True,
) -> None:
    """Print a run's metrics, and differences from the reference if there are several policies."""
    from simsched.cli.tables import print_table
    from simsched.report import comparison_table, difference_table, pivoted, to_csv, to_latex, to_markdown
    from simsched.results import comparison

    rows = comparison(run, run.replicated_over)
    if layout == "csv":
        click.echo(to_csv(rows, metrics or None, run.lost), nl=False)
        return
    own = run.name if run.folder.name.startswith(run.name) else f"{run.folder.name} ({run.name})"
    shown = [_with_source(comparison_table(rows, metrics or None, title=own, run=run), run)]
    found = _differences(rows, reference) if differences else []
    if found:
        shown.append(difference_table(found, metrics or None))
    for number, one in enumerate(map(pivoted, shown)):
        if number:
            click.echo()
        if layout is None:
            print_table(one)
        else:
            click.echo((to_latex if layout == "latex" else to_markdown)(one), nl=False)


def _with_source(shown: TextTable, run: Run) -> TextTable:
    from dataclasses import replace

    source = run.experiment.get("published_source")
    return replace(shown, notes=(*shown.notes, f"Published: {source}.")) if source and run.published else shown


def _differences(rows: list[Row], reference: str | None) -> list[DifferenceRow]:
    from simsched.results import paired_differences

    return paired_differences(rows, rows[0].policy if reference is None else reference)


def comparison_json(run: Run, reference: str | None) -> dict[str, Any]:
    """Return a run's rows, with each metric's estimate, and paired differences as plain data."""
    from simsched.results import comparison, what_was_run

    rows = comparison(run, run.replicated_over)
    return {
        "name": run.name,
        "folder": str(run.folder),
        "what_was_run": what_was_run(run.cells, run.changed),
        "changed": list(run.changed),
        "failed": dict(run.failed),
        "published_left_out": run.published_left_out,
        "rows": [
            {
                "policy": row.policy,
                "point": dict(row.point),
                "copies": row.copies,
                "metrics": {name: _estimate_json(row.estimate(name)) for name in sorted(row.values)},
                "published": dict(row.published),
                "knows": dict(row.knows),
            }
            for row in rows
        ],
        "differences": [
            {
                "policy": one.row.policy,
                "point": dict(one.row.point),
                "reference": one.reference.policy,
                "relative": {name: _estimate_json(pair.relative) for name, pair in sorted(one.differences.items())},
            }
            for one in _differences(rows, reference)
        ],
    }


def _estimate_json(estimate: Estimate | None) -> dict[str, Any] | None:
    if estimate is None:
        return None
    return {"mean": estimate.mean, "low": estimate.low, "high": estimate.high, "n": estimate.n}


def _print_cell(cell: Cell, metrics: tuple[str, ...]) -> None:
    from simsched.knowledge import legend
    from simsched.results import METRICS, find_metric

    click.echo(f"{cell.shown_policy}, seed {cell.seed}, workload {cell.workload_name or '-'}")
    readings = [find_metric(name) for name in metrics or METRICS]
    rows = [
        (reading.title, f"{cell.summary[reading.key] * reading.factor:.6g}", reading.unit)
        for reading in readings
        if reading.key in cell.summary
    ]
    click.echo(table(("metric", "value", "unit"), rows))
    for note in legend({cell.policy: cell.knows}):
        click.echo(note)


def _agreement_json(one: Agreement) -> dict[str, Any]:
    return {
        "policy": one.cell.policy,
        "workload": one.workload,
        "seed": one.cell.seed,
        "equal": one.equal,
        "different": [{"job": job.job, "expected_s": job.expected_s, "found_s": job.found_s} for job in one.different],
        "largest_difference_s": one.largest_difference_s,
        "expected_mean_s": one.expected_mean_s,
        "found_mean_s": one.found_mean_s,
    }


def _print_agreements(found: list[Agreement]) -> None:
    headers = ("policy", "workload", "equal", "different", "largest (s)", "mean (s)", "expected (s)")
    rows = [
        (
            one.cell.policy,
            one.workload,
            str(one.equal),
            str(len(one.different)),
            str(one.largest_difference_s),
            f"{one.found_mean_s:.2f}",
            f"{one.expected_mean_s:.2f}",
        )
        for one in found
    ]
    click.echo(table(headers, rows, left=2))
    jobs = sum(one.equal + len(one.different) for one in found)
    click.echo(f"{sum(one.equal for one in found)} of {jobs} jobs equal")
    for one in found:
        for job in one.different[:_MOST_LISTED]:
            click.echo(f"  {one.cell.policy}, {one.workload}, {job.job}: {job.found_s} s, expected {job.expected_s} s")
        if len(one.different) > _MOST_LISTED:
            click.echo(f"  ... and {len(one.different) - _MOST_LISTED} more of {one.workload}")
