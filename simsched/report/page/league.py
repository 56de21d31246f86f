"""The page of a league: standings by class and workload with filters, pairwise wins, and what could not run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from simsched.files import write_text
from simsched.report.figures.league import critical_differences, way_to_the_bound
from simsched.report.figures.output import Picture, inline_svg, save
from simsched.report.figures.style import FORMATS
from simsched.report.league import (
    beats_table,
    becomes_notes,
    classes,
    contests_table,
    league_csv,
    places_of,
    standings_table,
    unable_table,
)
from simsched.report.page.template import filled, page_of
from simsched.report.table import TextTable
from simsched.results.league import LeagueTable, standings

#: How a policy was checked: its name; kinds of check, results and places; and its differences from its paper.
Evidence = tuple[str, Sequence[tuple[str, str, str]], str]


def write_league(table: LeagueTable, folder: Path, evidence: Sequence[Evidence] = ()) -> list[Path]:
    """Write a league's page, its tables for a paper, its figures and its CSV; returns the paths, the page first.

    `evidence` lists how the policies were checked. The same results give the same bytes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    brief = [standings_table(table, name, where, brief=True) for name, where in _tables(table)]
    texts = {
        "league.html": league_page(table, evidence),
        "league.md": "\n".join(f"## {one.title}\n\n{one.markdown()}" for one in brief if one is not None),
        "league.tex": "\n".join(f"% {one.title}\n{one.latex()}" for one in brief if one is not None),
        "league.csv": league_csv(table),
    }
    paths = []
    for name, text in texts.items():
        write_text(folder / name, text)
        paths.append(folder / name)
    way = way_to_the_bound(table, title=f"{table.name}: the way to the best possible")
    if way is not None:
        paths += save(*way, folder / "figures", "way-to-the-bound", FORMATS)
    return paths


def _tables(table: LeagueTable) -> Iterator[tuple[str, str]]:
    for league_class in classes(table):
        for where in places_of(table, league_class):
            yield league_class, where


def league_page(table: LeagueTable, evidence: Sequence[Evidence] = ()) -> str:
    """Compose the page of a league."""
    places = list(_tables(table))
    way = way_to_the_bound(table, title="The way from FIFO to the best possible")
    beats = [(name, beats_table(table, name), f"beats{number}") for number, name in enumerate(classes(table), start=1)]
    main = filled(
        "league.html",
        league=table,
        menus=(("class", classes(table)), ("workload", dict.fromkeys(where for _, where in places))),
        way=None if way is None else inline_svg(way[0], "way-"),
        standings=[
            (*place, shown, f"standing{number}", _differences(table, *place, f"cd{number}-"))
            for number, place in enumerate(places, start=1)
            if (shown := standings_table(table, *place)) is not None
        ],
        beats=[one for one in beats if one[1] is not None],
        contests=contests_table(table),
        remarks=(*table.told, *becomes_notes(table)),
        unable=unable_table(table),
        checked=_checked(evidence),
    )
    return page_of(table.name, "A league of schedulers on one physics, played by simsched", main, script="league.js")


def _differences(table: LeagueTable, league_class: str, where: str, prefix: str) -> Picture:
    found = standings(table, league_class, places_of(table, league_class)[where])
    drawn = critical_differences(found, title=f"{league_class}, {where}: mean JCT over that of the first")
    return inline_svg(drawn[0], prefix)


def _checked(evidence: Sequence[Evidence]) -> TextTable:
    rows = tuple(
        (policy, "; ".join(f"{kind}: {said} ({shown})" for kind, said, shown in how) or "-", differs or "-")
        for policy, how, differs in sorted(evidence)
    )
    notes = ("Places are in simsched's repository. Differences are those that a policy's own module declares.",)
    return TextTable("How each was checked", ("policy", "checked by", "differs from its paper"), rows, notes, 3)
