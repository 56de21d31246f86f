"""`simsched show`: a run, a cell, the groups of their jobs, or a policy."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from simsched.cli.compare import comparison_json, layout_options, metrics_option, print_comparison
from simsched.cli.output import json_option, print_json, table
from simsched.errors import input_error

if TYPE_CHECKING:
    from simsched.report import TextTable
    from simsched.results import Cell
    from simsched.results.analyses import By, Groups


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
        _show_groups(folder, by, as_json=as_json)
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


def _show_policy(what: Path, name: str, *, as_json: bool) -> None:
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


def _show_groups(folder: Path, by: str, *, as_json: bool) -> None:
    """Print a table for each policy of a run (first seed), or for a cell."""
    from simsched.cli.output import print_table
    from simsched.knowledge import legend
    from simsched.results import RUN_FILE, read_cell, read_run
    from simsched.results.analyses import by_group
    from simsched.results.compare import row_name

    cells = read_run(folder).cells if (folder / RUN_FILE).is_file() else (read_cell(folder),)
    found: dict[str, Groups] = {}
    told: dict[str, Cell] = {}
    for cell in cells:
        name = row_name(cell.policy, cell.point)
        if by == "queue" and "queue" not in cell.jobs:
            raise input_error(folder, "its jobs name no queue", "group by tenant, user or size")
        if cell.jobs.empty:
            raise input_error(cell.folder, "it has no finished jobs", "run the experiment with more jobs or more time")
        if name not in found:
            found[name] = by_group(cell.jobs, cast("By", by))
            told[name] = cell
    if as_json:
        print_json({name: asdict(groups) for name, groups in found.items()})
        return
    for number, (name, groups) in enumerate(found.items()):
        if number:
            click.echo()
        cell = told[name]
        shown = groups_table(groups, title=row_name(cell.shown_policy, cell.point))
        print_table(replace(shown, notes=(*shown.notes, *legend({cell.policy: cell.knows}))))


def groups_table(groups: Groups, *, title: str) -> TextTable:
    """Tabulate groups, times in hours."""
    from simsched.report import TextTable

    headers = (
        groups.by, "jobs", "users", "mean wait (h)", "median wait (h)", "p90 wait (h)", "slow-down", "GPU hours",
        "share of GPU time (%)",
    )  # fmt: skip
    rows = tuple(
        (
            row.group, f"{row.jobs}", f"{row.users}", hours(row.mean_wait_s), hours(row.median_wait_s),
            hours(row.p90_wait_s), f"{row.slowdown:.2f}", f"{row.gpu_hours:.1f}", f"{100 * row.share:.1f}",
        )
        for row in groups.rows
    )  # fmt: skip
    note = f"Fairness of mean slow-downs (Jain's index, 1 is even): {groups.fairness:.3f}."
    return TextTable(title, headers, rows, (note,))


def hours(seconds: float | None) -> str:
    """Format seconds as hours, None as a dash."""
    return "-" if seconds is None else f"{seconds / 3600:.2f}"
