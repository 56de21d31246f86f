"""`simsched why` and `simsched step`: the history of a job with reasons, and decisions one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from simsched.cli.options import EXPERIMENT, JSON, OVERRIDES, RUN_FOLDER, SEED, command, opt
from simsched.cli.output import print_json
from simsched.errors import input_error, nearest
from simsched.words import clock

if TYPE_CHECKING:
    from simsched.artifacts import ReasonRow
    from simsched.results import Cell


@command()
def why(
    folder: Path = RUN_FOLDER,
    *,
    job: str | None = opt("Show the history of this job.", metavar="ID"),
    at: float | None = opt("Show only the state at this second of the workload.", metavar="SECOND"),
    workload: str | None = opt("Manifests only: namespace and name, or a part of them. [default: all]", metavar="NAME"),
    policy: str | None = opt("Policy, if a run has several.", metavar="LABEL"),
    seed: int | None = opt("Seed, if a run has several."),
    as_json: bool = JSON,
) -> None:
    """Show the history of a job: when it waited and why, where it ran, and when it was stopped.

    While a job waits, there is no room for it, or not on a single node, or the policy does not use the room for it.
    This follows from the tables of a run for any policy, as does the number of later jobs that hold GPUs. For a run
    with --explain, the command adds the policy's reason and the job's rank and score.

    Without --job, shows for each cycle why workloads waited, were admitted, borrowed or were preempted, in the
    scheduler's words. RUN is then the folder of a run of manifests, or of an experiment run with --diagnostics reasons.
    A workload that keeps waiting for the same reason is not repeated.
    """
    if job is None and at is not None:
        raise input_error("--at", "needs a job", "name one with --job")
    if job is not None and workload is not None:
        raise input_error("--workload", "cannot be combined with --job", "leave one of them out")
    if job is None:
        _print_reasons(_of_workload(_recorded(folder, policy, seed), workload, folder), as_json=as_json)
    else:
        _print_story(_cell(folder, policy, seed), job, at, as_json=as_json)


def _print_reasons(rows: Sequence[ReasonRow], *, as_json: bool) -> None:
    if as_json:
        print_json({"rows": [row._asdict() for row in rows]})
        return
    by_job: dict[str, list[ReasonRow]] = {}
    for row in rows:
        by_job.setdefault(row.job_id, []).append(row)
    for job, mine in by_job.items():
        click.echo(f"{job} ({_summary(mine)})")
        for row in mine:
            cycle = f"cycle {row.cycle}" if row.cycle else ""
            click.echo(f"  {clock(float(row.time_s)):>10}  {cycle:<10}  {_said(row)}")


def _print_story(cell: Cell, job: str, at_s: float | None, *, as_json: bool) -> None:
    from simsched.results.stays import at, story

    events = story(cell, job)
    if at_s is not None:
        events = [at(events, at_s)]
    if as_json:
        events_json = [asdict(event) for event in events]
        print_json({"job": job, "policy": cell.policy, "seed": cell.seed, "story": events_json})
        return
    click.echo(f"{job} ({cell.shown_policy}, seed {cell.seed})")
    for event in events:
        until = f" (until {clock(event.until_s)})" if event.until_s > event.time_s else ""
        score = f" (score {event.score})" if event.score else ""
        place = f", place {event.rank} in line{score}" if event.rank else ""
        reason = f" {event.why}" if event.why else ""
        click.echo(f"  {clock(event.time_s):>10}  {event.event}{reason}{place}{until}")


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


def _cell(folder: Path, policy: str | None, seed: int | None) -> Cell:
    cells = _cells(folder, policy, seed)
    if len(cells) != 1:
        named = _named(cells) or "none of these"
        raise input_error(folder, f"there are several cells: {named}", "choose with --policy and --seed")
    return cells[0]


_HELP = "Enter: next decision; a number: to that second; the id of a job: to its next placement; q: quit"


@command()
def step(
    experiment: str = EXPERIMENT,
    overrides: tuple[str, ...] = OVERRIDES,
    *,
    policy: str | None = opt("Policy to run. [default: the first]", metavar="LABEL"),
    seed: int = SEED,
) -> None:
    """Step through a simulation interactively; show queue and cluster after each decision.

    At the prompt, Enter shows the next decision, a number skips to the first decision at or after that second, the id
    of a job skips to its next placement, and q quits. Nothing is written.
    """
    from simsched.api import steps, task_of
    from simsched.cli.check import changes_of
    from simsched.experiment import find_experiment

    task = task_of(find_experiment(experiment), changes_of(overrides), seed, [policy] if policy else [])
    known = {job.id for job in task.jobs}
    click.echo(f"{task.policy.name}, seed {seed}, {len(known)} jobs. {_HELP}.", err=True)
    wanted = ""
    for one in steps(task):
        if wanted in known and wanted not in one.placed:
            continue
        if wanted not in known and wanted and one.time_s < float(wanted):
            continue
        click.echo(one.text)
        wanted = _asked(known)
        if wanted == "q":
            return
    if wanted:
        click.echo(f"'{wanted}' does not occur any more", err=True)
    click.echo("all jobs are complete")


def _asked(known: set[str]) -> str:
    """Ask until the answer is valid; the end of the input quits."""
    while True:
        try:
            answer: str = click.prompt(">", default="", show_default=False, prompt_suffix=" ", err=True).strip()
        except click.Abort:
            return "q"
        if answer in {"", "q"} or answer in known or answer.replace(".", "", 1).isdecimal():
            return answer
        click.echo(f"there is no job '{answer}'. {_HELP}.", err=True)
