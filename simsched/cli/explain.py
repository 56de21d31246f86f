"""`simsched why` and `simsched explain`: the history of a job, and a scheduler's reasons for each decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from simsched.cli.output import json_option, print_json
from simsched.words import clock

if TYPE_CHECKING:
    from simsched.artifacts import ReasonRow
    from simsched.results import Cell


@click.command()
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--workload", "name", metavar="NAME", help="Namespace and name, or a part of them. [default: all]")
@click.option("--policy", metavar="LABEL", help="Policy, if a run has several.")
@click.option("--seed", type=int, metavar="N", help="Seed, if a run has several.")
@json_option
def explain(folder: Path, name: str | None, policy: str | None, seed: int | None, as_json: bool) -> None:
    """Show for each cycle why workloads waited, were admitted, borrowed or were preempted, in the scheduler's words.

    RUN is the folder of a run of manifests, or of an experiment run with --diagnostics reasons. A workload that keeps
    waiting for the same reason is not repeated.
    """
    rows = _of_workload(_recorded(folder, policy, seed), name, folder)
    if as_json:
        print_json({"rows": [row._asdict() for row in rows]})
        return
    by_job: dict[str, list[ReasonRow]] = {}
    for row in rows:
        by_job.setdefault(row.job_id, []).append(row)
    for job, mine in by_job.items():
        click.echo(f"{job} ({_summary(mine)})")
        for row in mine:
            click.echo(
                f"  {clock(float(row.time_s)):>10}  {f'cycle {row.cycle}' if row.cycle else '':<10}  {_said(row)}"
            )


def _said(row: ReasonRow) -> str:
    takes = f" [{row.takes}{f', borrowing at {row.borrows}' if row.borrows else ''}]" if row.takes else ""
    return f"{row.event}{takes}{f': {row.message}' if row.message else ''}"


def _summary(rows: list[ReasonRow]) -> str:
    """Count the events of one workload."""
    events = [row.event for row in rows]
    queue = next((row.queue for row in rows if row.queue), "")
    counts = ", ".join(f"{what} {_times(events.count(event))}" for event, what in _COUNTED if events.count(event))
    return f"queue {queue}: {counts}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


_COUNTED = (("Admitted", "admitted"), ("Preempted", "preempted"), ("Lost", "lost its nodes"))


def _recorded(folder: Path, policy: str | None, seed: int | None) -> list[ReasonRow]:
    from simsched.artifacts import REASONS_FILE, ReasonRow
    from simsched.errors import input_error
    from simsched.reading import read_records

    kept = [cell for cell in _cells(folder, policy, seed) if (cell.folder / REASONS_FILE).is_file()]
    if not kept:
        remedy = "run it again with --diagnostics reasons; of the shipped policies `kueue` keeps them"
        raise input_error(folder, "keeps no reasons", remedy)
    if len(kept) > 1:
        named = _named(kept)
        raise input_error(folder, f"has the reasons of several cells: {named}", "choose with --policy and --seed")
    return [ReasonRow(**cells) for _, cells in read_records(kept[0].folder / REASONS_FILE, ReasonRow._fields)]


def _cells(folder: Path, policy: str | None, seed: int | None) -> list[Cell]:
    from simsched.results import read_run

    return [cell for cell in read_run(folder).cells if policy in (None, cell.policy) and seed in (None, cell.seed)]


def _named(cells: Sequence[Cell]) -> str:
    return ", ".join(dict.fromkeys(f"{cell.policy}, seed {cell.seed}" for cell in cells))


def _of_workload(rows: list[ReasonRow], name: str | None, folder: Path) -> list[ReasonRow]:
    """Return the rows of a workload, given by its name or a unique part of it."""
    from simsched.errors import input_error, nearest

    names = sorted({row.job_id for row in rows})
    if name is None:
        return rows
    found = [name] if name in names else [one for one in names if one.rpartition("/")[2] == name]
    found = found or [one for one in names if name in one]
    if not found:
        raise input_error(folder, f"has no workload '{name}'", nearest(name, names))
    if len(found) > 1:
        raise input_error(folder, f"'{name}' may be {', '.join(found[:8])}", "give the whole name")
    return [row for row in rows if row.job_id == found[0]]


@click.command()
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--job", required=True, metavar="ID", help="The job.")
@click.option("--at", "at_s", type=float, metavar="SECOND", help="Show only the state at this second of the workload.")
@click.option("--policy", metavar="LABEL", help="Policy, if a run has several.")
@click.option("--seed", type=int, metavar="N", help="Seed, if a run has several.")
@json_option
def why(folder: Path, job: str, at_s: float | None, policy: str | None, seed: int | None, as_json: bool) -> None:
    """Show the history of a job: when it waited and why, where it ran, and when it was stopped.

    While a job waits, there is no room for it, or not on a single node, or the policy does not use the room for it.
    This follows from the tables of a run for any policy, as does the number of later jobs that hold GPUs. For a run
    with --explain, the command adds the policy's reason and the job's rank and score.
    """
    from simsched.results import at, story

    cell = _cell(folder, policy, seed)
    told = story(cell, job)
    if at_s is not None:
        told = [at(told, at_s)]
    if as_json:
        print_json({"job": job, "policy": cell.policy, "seed": cell.seed, "story": [asdict(one) for one in told]})
        return
    click.echo(f"{job} ({cell.shown_policy}, seed {cell.seed})")
    for one in told:
        until = f" (until {clock(one.until_s)})" if one.until_s > one.time_s else ""
        place = f", place {one.rank} in line{f' (score {one.score})' if one.score else ''}" if one.rank else ""
        click.echo(f"  {clock(one.time_s):>10}  {one.event}{f' {one.why}' if one.why else ''}{place}{until}")


def _cell(folder: Path, policy: str | None, seed: int | None) -> Cell:
    from simsched.errors import input_error

    cells = _cells(folder, policy, seed)
    if len(cells) != 1:
        named = _named(cells) or "none of these"
        raise input_error(folder, f"there are several cells: {named}", "choose with --policy and --seed")
    return cells[0]
