"""`simsched show --by`: waits and usage by group."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from simsched.cli.output import print_json

if TYPE_CHECKING:
    from simsched.report import TextTable
    from simsched.results import By, Cell, Groups


def show_groups(folder: Path, by: str, *, as_json: bool) -> None:
    """Print a table for each policy of a run (first seed), or for a cell."""
    from simsched.cli.tables import print_table
    from simsched.errors import input_error
    from simsched.knowledge import legend
    from simsched.results import RUN_FILE, by_group, read_cell, read_run, row_name

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
