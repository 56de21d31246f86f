"""`simsched league` and `simsched score`: all schedulers on the same jobs and physics, and one number for one's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simsched.cli.options import JSON, WORKERS, arg, command, opt
from simsched.cli.output import print_json, print_table, processors
from simsched.errors import input_error

if TYPE_CHECKING:
    from simsched.results.league import LeagueTable

_SEEDS = opt(
    "The first N seeds, or a JSON file with a list of your own, whose jobs are drawn as the league's were. "
    "[default: the division's]",
    metavar="N|FILE",
)
_ISOLATED = ("Run policies that do not ship behind a wall (docs/external.md).", "--isolated/--no-isolated")
_OUT = opt("Folder for the results.", metavar="DIR", default=Path("results"))


@command()
def league(
    name: str = arg("[LEAGUE]", default="2026"),
    *,
    policies: tuple[str, ...] = opt("Run only this policy, e.g. mine.py:Mine. Repeatable.", "--policy", metavar="NAME"),
    against: Path | None = opt(
        "Compare with the policies in these results of the league. [default with --policy: the shipped results, "
        "if any]",
        metavar="RESULTS",
        type=click.Path(path_type=Path, exists=True),
    ),
    division: str = opt(
        "Division to play.",
        metavar="NAME",
        default="closed",
        switches={"--smoke": ("smoke", "Play the division 'smoke', which takes a minute.")},
    ),
    seeds: str | None = _SEEDS,
    verify: Path | None = opt(
        "Play a submission again, compare its cells to the byte; exit code 1 if they differ.",
        metavar="ENTRY",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
    ),
    out: Path = _OUT,
    workers: int | None = WORKERS,
    isolated: bool = opt(*_ISOLATED),
    as_json: bool = JSON,
) -> None:
    """Play a division of a league: every policy on the same lists of jobs, beside the best possible.

    LEAGUE is a shipped league (2026) or a file. With --policy only that policy is run, and stands beside the shipped
    results. A policy that cannot run somewhere is listed with the reason. Finished cells of earlier calls are reused.
    Writes a page, tables for a paper (Markdown, LaTeX), a figure, a CSV and league.json, which --against reads.
    """
    from simsched.files import write_text
    from simsched.report.page import write_league
    from simsched.results.league import LEAGUE_FILE, league_text

    if verify is not None:
        _verify(verify, out, workers, isolated=isolated, as_json=as_json)
        return
    rows = [{"name": one} for one in policies] or None
    table, stored = _play(name, division, out, rows, against, seeds, workers, isolated=isolated)
    folder = out / f"{table.name}-{division}"
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


@command()
def score(
    policy: str = arg(),
    *,
    division: str = opt("Division to play.", metavar="NAME", default="closed"),
    seeds: str | None = _SEEDS,
    unseen: str | None = opt(
        "A JSON file with as many seeds that the policy was not tuned on: tells how much less it covers of them.",
        metavar="FILE",
    ),
    out: Path = _OUT,
    workers: int | None = WORKERS,
    isolated: bool = opt(*_ISOLATED, default=True),
    as_json: bool = JSON,
) -> None:
    """Score a policy: the share of the way from FIFO to the certified bound that it covers, over a division.

    1 is optimal, 0 is FIFO, below 0 is worse. Prints the number with its interval, its parts, the time of a decision,
    and the jobs that lost most.
    """
    from simsched.operators import score as scoring

    found = scoring.score(policy, division=division, seeds=_listed(seeds), unseen=_listed(unseen), out=out,
                   workers=workers or processors(), isolated=isolated)  # fmt: skip
    if as_json:
        print_json(found)
        return
    low, high = found["interval"] or (None, None)
    interval = "no interval" if low is None else f"95 % interval {low:.3f} to {high:.3f}"
    click.echo(f"{found['score']:.3f} of the way from FIFO to the bound ({interval}, {found['seeds']} seeds)")
    for name, share in found["contests"].items():
        click.echo(f"  {name}: {share:.3f}")
    click.echo(f"a decision takes at most {1000 * found['decision_p99_s']:.2f} ms (99th percentile)")
    for said in (*found["overfits"], *found["lost_most"]):
        click.echo(said)


def _play(
    name: str,
    division: str,
    out: Path,
    rows: Sequence[Mapping[str, Any]] | None,
    against: Path | None,
    seeds: str | None,
    workers: int | None,
    *,
    isolated: bool,
) -> tuple[LeagueTable, LeagueTable | None]:
    from simsched.api import progress_listener
    from simsched.experiment.league import read_league, shipped_results
    from simsched.operators import play
    from simsched.results.league import read_league_table

    spec, few = read_league(name, division)
    chosen = _listed(seeds)
    if rows is not None and against is None and not isinstance(chosen, list):
        against = shipped_results(spec, division)
        if against is not None:
            click.echo(f"with the shipped results of {spec.name}, {division}", err=True)
    stored = None if against is None else read_league_table(against)
    own = chosen if isinstance(chosen, list) else list(range(1, (chosen or few.seeds) + 1))
    if stored is not None and chosen is None:
        own = list(stored.seeds)
    with progress_listener() as listener:
        table = play(
            name, spec, few, out, name=division, rows=rows, against=stored, seeds=own,
            workers=workers or processors(), isolated=isolated, listener=listener,
            began=lambda contest: click.echo(f"contest {contest}", err=True),
        )  # fmt: skip
    return table, stored


def _listed(seeds: str | None) -> int | list[int] | None:
    """Return the number of seeds, or the seeds of a file; raises `InputError` for others."""
    from simsched.reading import read_json

    if seeds is None:
        return None
    if seeds.isdigit():
        if int(seeds) < 1:
            raise input_error("--seeds", "at least one seed is needed", "give a number of seeds or a file")
        return int(seeds)
    found = read_json(Path(seeds), "write a list of whole numbers, such as [9001, 9002]")
    good = isinstance(found, list) and found and all(type(one) is int and one >= 0 for one in found)
    if not good or len(set(found)) < len(found):
        raise input_error(seeds, "is no list of different seeds", "write whole numbers, such as [9001, 9002]")
    return list(found)


def _verify(path: Path, out: Path, workers: int | None, *, isolated: bool, as_json: bool) -> None:
    """Play a submission again; the first time, write the digest of its cells into it."""
    from simsched.experiment.league import read_entry
    from simsched.results.league import cells_digest

    made = read_entry(path)
    entry, label = made.entry, str(made.row["label"])
    table, _ = _play(entry.league, entry.division, out, [made.row], None, f"{entry.seeds}", workers, isolated=isolated)
    failed = next((one for one in table.entries if one.policy == label and one.reason), None)
    if failed is not None:
        raise input_error(path, f"it cannot run at {failed.contest}: {failed.reason}", "mend the policy")
    digest = cells_digest(table, label)
    if not entry.cells:
        made.with_cells(digest)
    same = entry.cells in ("", digest)
    if as_json:
        print_json({"entry": label, "cells": digest, "reproduced": same})
    else:
        new = "its digest is written down" if not entry.cells else "as submitted" if same else "not as submitted"
        click.echo(f"{label}: cells {digest[:16]}, {new}")
        _print(table)
    if not same:
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
    known = {entry.policy for entry in stored.entries} if stored is not None else {"fifo"}
    ran: dict[str, bool] = {}
    for entry in table.entries:
        if entry.policy not in known:
            ran[entry.policy] = ran.get(entry.policy, False) or not entry.reason
            if entry.reason:
                click.echo(f"simsched: {entry.policy} at {entry.contest}: {entry.reason}", err=True)
    return not ran or any(ran.values())


def _print(table: LeagueTable) -> None:
    from simsched.report import standings_table, unable_table

    for oracles in (False, True):
        shown = standings_table(table, oracles=oracles)
        if shown is not None:
            print_table(shown)
            click.echo()
    for said in table.told:
        click.echo(said)
    if (cannot := unable_table(table)) is not None:
        click.echo(f"{len({row[0] for row in cannot.rows})} cannot run everywhere; the page lists where and why.")
