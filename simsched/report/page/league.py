"""The page of a league: standings by class and workload with filters, pairwise wins, and what could not run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path

from simsched.files import write_text
from simsched.outlets import html_text
from simsched.report.figures.league import critical_differences, way_to_the_bound
from simsched.report.figures.saving import save
from simsched.report.figures.style import FORMATS
from simsched.report.figures.svg import inline_svg
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
from simsched.report.page.html import figure_block, page_of, table_block
from simsched.report.tables import TextTable, to_latex, to_markdown
from simsched.results import LeagueTable, standings

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
        "league.md": "\n".join(f"## {one.title}\n\n{to_markdown(one)}" for one in brief if one is not None),
        "league.tex": "\n".join(f"% {one.title}\n{to_latex(one)}" for one in brief if one is not None),
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
    parts = [
        f"<p>{html_text(table.description)}</p>",
        _filters(table),
        _way(table),
        *(_standing(table, number, *one) for number, one in enumerate(_tables(table), start=1)),
        *(_beats(table, number, name) for number, name in enumerate(classes(table), start=1)),
        '<section class="run" id="conditions"><h2>What was run</h2>',
        table_block(contests_table(table), "contests"),
        "".join(f"<p>{html_text(one)}</p>" for one in (*table.told, *becomes_notes(table))),
        _unable(table),
        _evidence(evidence),
        "</section>",
    ]
    kind = "A league of schedulers on one physics, played by simsched"
    script = files("simsched.report.page").joinpath("league.js").read_text(encoding="utf-8")
    return page_of(table.name, kind, "\n".join(filter(None, parts)), script=f"<script>\n{script}</script>")


def _filters(table: LeagueTable) -> str:
    """Return two menus that show the tables of one class, or of one workload, only."""
    menus = []
    for name, values in (
        ("class", classes(table)),
        ("workload", tuple(dict.fromkeys(where for _, where in _tables(table)))),
    ):
        options = "".join(f'<option value="{html_text(one)}">{html_text(one)}</option>' for one in values)
        menus.append(
            f'<label>{name} <select data-filter="{name}"><option value="">all</option>{options}</select></label>'
        )
    return f'<p class="filters">{" ".join(menus)}</p>'


def _way(table: LeagueTable) -> str:
    drawn = way_to_the_bound(table, title="The way from FIFO to the best possible")
    return "" if drawn is None else figure_block(inline_svg(drawn[0], "way-"))


def _standing(table: LeagueTable, number: int, league_class: str, where: str) -> str:
    shown = standings_table(table, league_class, where)
    if shown is None:
        return ""
    found = standings(table, league_class, places_of(table, league_class)[where])
    drawn = critical_differences(found, title=f"{league_class}, {where}: mean JCT over that of the first")
    picture = figure_block(inline_svg(drawn[0], f"cd{number}-"))
    marks = f'data-class="{html_text(league_class)}" data-workload="{html_text(where)}"'
    return f'<section class="run" {marks}>\n{table_block(shown, f"standing{number}")}\n{picture}\n</section>'


def _beats(table: LeagueTable, number: int, league_class: str) -> str:
    shown = beats_table(table, league_class)
    if shown is None:
        return ""
    block = table_block(shown, f"beats{number}")
    return f'<section class="run" data-class="{html_text(league_class)}">\n{block}\n</section>'


def _unable(table: LeagueTable) -> str:
    shown = unable_table(table)
    return "" if shown is None else table_block(shown, "unable")


def _evidence(evidence: Sequence[Evidence]) -> str:
    rows = tuple(
        (policy, "; ".join(f"{kind}: {said} ({shown})" for kind, said, shown in how) or "-", differs or "-")
        for policy, how, differs in sorted(evidence)
    )
    notes = ("Places are in simsched's repository. Differences are those that a policy's own module declares.",)
    headers = ("policy", "checked by", "differs from its paper")
    return table_block(TextTable("How each was checked", headers, rows, notes, 3), "checked") if rows else ""
