"""`simsched why`: the story of a job of a run."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from simsched.cli.output import json_option, print_json
from simsched.words import clock

if TYPE_CHECKING:
    from simsched.results import Cell


@click.command()
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--job", required=True, metavar="ID", help="The job.")
@click.option("--at", "at_s", type=float, metavar="SECOND", help="Say only what held at this second of the workload.")
@click.option("--policy", metavar="LABEL", help="Under this policy, where a run has several.")
@click.option("--seed", type=int, metavar="N", help="Under this seed, where a run has several.")
@json_option
def why(folder: Path, job: str, at_s: float | None, policy: str | None, seed: int | None, as_json: bool) -> None:
    """Tell the story of a job: when it waited and what stood in its way, where it ran, when it was stopped.

    While a job waits there is no room for it, room but not on one node, or room that the policy did not give it, for a
    reason of its own. That is read from the tables of a run, whatever the policy; jobs that came later and hold GPUs
    are counted. Of a run made with --explain it says why in the policy's words, with the job's rank and score.
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
    from simsched.results import read_run

    cells = [cell for cell in read_run(folder).cells if policy in (None, cell.policy) and seed in (None, cell.seed)]
    if len(cells) != 1:
        named = ", ".join(dict.fromkeys(f"{cell.policy}, seed {cell.seed}" for cell in cells)) or "none of these"
        raise input_error(folder, f"one cell is meant, and there are: {named}", "choose with --policy and --seed")
    return cells[0]
