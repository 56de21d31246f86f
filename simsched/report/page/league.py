"""The page of a league: its two tables, each contest, what was played, and how each policy was checked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from simsched.files import write_text
from simsched.report.figures.operators import way_to_the_bound
from simsched.report.figures.output import inline_svg, save
from simsched.report.figures.style import FORMATS
from simsched.report.league import contests_table, league_csv, standings_table, unable_table
from simsched.report.page.template import filled, page_of
from simsched.report.table import TextTable
from simsched.results.league import LeagueTable

#: How a policy was checked: its name; kinds of check, results and places; and its differences from its paper.
Evidence = tuple[str, Sequence[tuple[str, str, str]], str]


def write_league(table: LeagueTable, folder: Path, evidence: Sequence[Evidence] = ()) -> list[Path]:
    """Write a league's page, its tables for a paper, its figure and its CSV; returns the paths, the page first.

    `evidence` lists how the policies were checked. The same results give the same bytes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    both = [standings_table(table, oracles=oracles) for oracles in (False, True)]
    texts = {
        "league.html": league_page(table, evidence),
        "league.md": "\n".join(f"## {one.title}\n\n{one.markdown()}" for one in both if one is not None),
        "league.tex": "\n".join(f"% {one.title}\n{one.latex()}" for one in both if one is not None),
        "league.csv": league_csv(table),
    }
    for name, text in texts.items():
        write_text(folder / name, text)
    drawn = way_to_the_bound(table, title=f"{table.name}: the way to the best possible")
    figures = [] if drawn is None else save(*drawn, folder / "figures", "way-to-the-bound", FORMATS)
    return [*(folder / name for name in texts), *figures]


def league_page(table: LeagueTable, evidence: Sequence[Evidence] = ()) -> str:
    """Compose the page of a league."""
    drawn = way_to_the_bound(table, title="The way from FIFO to the best possible")
    places: list[tuple[str, ...]] = [(), *((one.name,) for one in table.contests if len(table.contests) > 1)]
    shown = [
        standings_table(table, where, oracles=oracles, by_contest=not where)
        for where in places
        for oracles in (False, True)
    ]
    main = filled(
        "league.html",
        league=table,
        way=None if drawn is None else inline_svg(drawn[0], "way-"),
        standings=[(one, f"standing{place}") for place, one in enumerate(shown) if one is not None],
        contests=contests_table(table),
        unable=unable_table(table),
        checked=_checked(evidence),
    )
    return page_of(table.name, "A league of schedulers on one physics, played by simsched", main)


def _checked(evidence: Sequence[Evidence]) -> TextTable:
    rows = tuple(
        (policy, "; ".join(f"{kind}: {said} ({shown})" for kind, said, shown in how) or "-", differs or "-")
        for policy, how, differs in sorted(evidence)
    )
    notes = ("Places are in simsched's repository. Differences are those that a policy's own module declares.",)
    return TextTable("How each was checked", ("policy", "checked by", "differs from its paper"), rows, notes, 3)
