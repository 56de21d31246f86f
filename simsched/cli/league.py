"""`simsched league`: compare all schedulers under the same physics."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from simsched.cli.output import json_option, print_json
from simsched.words import counted

if TYPE_CHECKING:
    from simsched.results.league import LeagueTable


@click.command()
@click.argument("name", metavar="[LEAGUE]", default="2026")
@click.option("--policy", "policies", multiple=True, metavar="NAME",
              help="Run only this policy, e.g. mine.py:Mine. Repeatable.")  # fmt: skip
@click.option("--against", type=click.Path(path_type=Path, exists=True), metavar="RESULTS",
              help="Compare with the policies in these results of the league. [default with --policy: the shipped "
                   "results, if any]")  # fmt: skip
@click.option("--division", default="", metavar="NAME", help="Play only this division of the league.")
@click.option("--smoke", "division", flag_value="smoke", help="Play the division 'smoke', which takes minutes.")
@click.option("--seeds", type=click.IntRange(min=2), metavar="N", help="Seeds. [default: the league's]")
@click.option("--data", type=click.Path(path_type=Path, exists=True, file_okay=False), metavar="DIR",
              help="Folder of traces that do not ship: philly.csv, itp2021/cluster*.csv.")  # fmt: skip
@click.option("--out", default="results", show_default=True, type=click.Path(path_type=Path), metavar="DIR",
              help="Folder for the results of all runs.")  # fmt: skip
@click.option("--workers", "-j", type=click.IntRange(min=1), metavar="N", help="Processes. [default: all processors]")
@click.option("--no-bounds", is_flag=True, help="Do not compute the best possible results of the contests.")
@json_option
def league(
    name: str,
    policies: tuple[str, ...],
    against: Path | None,
    division: str,
    seeds: int | None,
    data: Path | None,
    out: Path,
    workers: int | None,
    no_bounds: bool,
    as_json: bool,
) -> None:
    """Play a league: run every shipped policy, with its defaults, wherever it can run.

    LEAGUE is a shipped league (2026) or a file. With --policy but without --division, the command plays the division
    with shipped results, if any, so that it ranks the policy among the others without running these. A policy's class
    depends on the information that it reads; a policy that cannot run somewhere is listed with the reason. Finished
    cells of earlier calls are reused. Writes a page, tables for a paper (Markdown, LaTeX), figures, a CSV and
    league.json, which --against reads.
    """
    from simsched.api import progress_listener
    from simsched.cli.run import processors
    from simsched.experiment.league import read_league, shipped_results
    from simsched.files import write_text
    from simsched.operators import play
    from simsched.report.page import write_league
    from simsched.results.league import LEAGUE_FILE, league_text, read_league_table

    spec = read_league(name, division)
    if policies and against is None:
        of_divisions = (read_league(name, one) for one in reversed(spec.divisions))
        spec = next((one for one in (spec, *of_divisions) if shipped_results(one)), spec)
        against = shipped_results(spec)
        if against is not None:
            click.echo(f"with the shipped results of {spec.name}", err=True)
    stored = None if against is None else read_league_table(against)
    folder = out / spec.name
    with progress_listener() as listener:
        table = play(
            spec,
            folder,
            policies=policies or None,
            against=stored,
            seeds=seeds,
            data=data,
            workers=workers or processors(),
            listener=listener,
            began=_say,
            bounds=not no_bounds,
        )
    write_text(folder / LEAGUE_FILE, league_text(table))
    paths = [folder / LEAGUE_FILE, *write_league(table, folder, _evidence(table))]
    if as_json:
        print_json({"league": table.name, "seeds": list(table.seeds), "files": [str(path) for path in paths]})
    else:
        _print(table)
        for path in paths:
            click.echo(path)
    if policies and not _say_failures(table, stored):
        raise click.exceptions.Exit(1)


def _evidence(table: LeagueTable) -> list[tuple[str, Sequence[tuple[str, str, str]], str]]:
    """Return how each shipped policy of a league was checked, and how it deviates from its paper."""
    from simsched.experiment import policy_card
    from simsched.policy import POLICIES

    names = dict.fromkeys(entry.policy_name for entry in table.ran())
    cards = [policy_card(one) for one in names if POLICIES.is_shipped(one)]
    return [(card.name, card.evidence, " ".join(card.parts.get("Deviations", ()))) for card in cards]


def _say_failures(table: LeagueTable, stored: LeagueTable | None) -> bool:
    """Report where the newly played policies did not run, given `stored` results; return whether any of them ran."""
    known = {entry.policy for entry in stored.entries} if stored is not None else set()
    ran: dict[str, bool] = {}
    for entry in table.entries:
        if entry.policy not in known:
            ran[entry.policy] = ran.get(entry.policy, False) or not entry.reason
            if entry.reason:
                click.echo(f"simsched: {entry.policy} at {entry.contest}: {entry.reason}", err=True)
    return not ran or any(ran.values())


def _say(contest: str, number: int, of: int) -> None:
    click.echo(f"contest {number} of {of}: {contest}", err=True)


def _print(table: LeagueTable) -> None:
    from simsched.cli.output import print_table
    from simsched.report import classes, places_of, standings_table, unable_table

    for league_class in classes(table):
        where = next(iter(places_of(table, league_class)), "")
        shown = standings_table(table, league_class, where, brief=True)
        if shown is not None:
            print_table(shown)
            click.echo()
    for said in table.told:
        click.echo(said)
    unable = unable_table(table)
    missing = [place for place in table.contests if place.missing]
    if unable is not None:
        policies = counted(len({row[0] for row in unable.rows}), "policy", "policies")
        click.echo(f"{policies} cannot run everywhere; the page lists where and why.")
    for place in {one.workload: one for one in missing}.values():
        click.echo(f"{place.workload} was not run: {place.missing}")
