"""A league as tables: standings, pairwise wins, contests and what could not run, for a terminal, a paper or a page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from simsched.knowledge import legend
from simsched.report.table import TextTable, csv_text
from simsched.report.tables import estimate_text
from simsched.report.units import number, shown_unit
from simsched.results import METRICS, Cell, Estimate, estimate, find_metric, what_policies_become, who_cannot_differ
from simsched.results.league import (
    CPU_S,
    MEASURES,
    Beside,
    Entry,
    LeagueTable,
    Standings,
    beside_the_bound,
    standings,
    who_beats_whom,
)

HEADLINE = "jct_mean_s"
#: The key for all contests of a class.
EVERYWHERE = "all contests"
_LEVEL = "the chance of any false separation in the table is at most 5 %"
_FEWEST = 2


def classes(table: LeagueTable) -> tuple[str, ...]:
    """Return the classes with any policy, those with the least information first."""
    order = ("non-clairvoyant", "learned", "oracle")
    found = {one.league_class for one in table.ran()}
    return tuple(sorted(found, key=lambda name: ([name.startswith(one) for one in order].index(True), "el" in name)))


def places_of(table: LeagueTable, league_class: str) -> dict[str, tuple[str, ...]]:
    """Return the contests that at least two policies of a class ran: all of them, and those of each workload."""
    shared = [
        place
        for place in table.contests
        if sum(one.league_class == league_class for one in table.ran(place.name)) >= _FEWEST
    ]
    by_workload: dict[str, tuple[str, ...]] = {}
    for place in shared:
        by_workload[place.workload] = (*by_workload.get(place.workload, ()), place.name)
    whole = {EVERYWHERE: tuple(place.name for place in shared)} if len(by_workload) > 1 else {}
    return whole | by_workload


def standings_table(table: LeagueTable, league_class: str, where: str, *, brief: bool = False) -> TextTable | None:
    """Show the standings of a class in all its contests or those of a workload; None if fewer than two ran them.

    `brief` leaves out all measures but the mean JCT, for a paper.
    """
    contests = places_of(table, league_class).get(where, ())
    found = standings(table, league_class, contests, HEADLINE)
    if len(found.rows) < _FEWEST:
        return None
    entries = _entries(table, found)
    measures = [name for name in MEASURES if any(name in one.values for group in entries.values() for one in group)]
    measures = [HEADLINE] if brief else measures
    above = _above(beside_the_bound(table), contests)
    units = {name: shown_unit(_unit(name), [_mean(group, name) for group in entries.values()]) for name in measures}
    rows = tuple(
        (
            row.policy,
            f"{row.best}" if row.best == row.worst else f"{row.best} to {row.worst}",
            _interval(row.ratio),
            *(_number(_mean(entries[row.policy], name) * units[name].factor) for name in measures),
            *([above.get(row.policy, "-")] if above else []),
        )
        for row in found.rows
    )
    headers = ("policy", "rank", "mean JCT / first's", *(units[name].title(_title(name)) for name in measures))
    headers += ("above the best possible, at most (%)",) if above else ()
    return TextTable(f"{league_class}: {where}", headers, rows, _notes(table, found, where), 1)


def _entries(table: LeagueTable, found: Standings) -> dict[str, list[Entry]]:
    ranked = {row.policy: [] for row in found.rows}  # type: dict[str, list[Entry]]
    for one in table.ran():
        if one.contest in found.contests and one.league_class == found.league_class and one.shown_policy in ranked:
            ranked[one.shown_policy].append(one)
    return ranked


def _notes(table: LeagueTable, found: Standings, where: str) -> tuple[str, ...]:
    contests = f"{len(found.contests)} contest{'s' * (len(found.contests) > 1)}"
    notes = [
        f"{contests} ({where}), {len(table.seeds)} seeds. Ratio of geometric means, with intervals that hold for all "
        f"pairs at once (Bonferroni); rank: who is separated from whom by Holm's procedure on paired logarithms: "
        f"{_LEVEL}. Other columns: means over contests and seeds."
    ]
    if found.elsewhere:
        said = ", ".join(f"{policy} ({count})" for policy, count in sorted(found.elsewhere.items()))
        notes.append(f"Not ranked here, as they ran only some of these contests: {said}.")
    knows = {one.policy: one.knows for group in _entries(table, found).values() for one in group}
    return (*notes, *legend(knows))


def beats_table(table: LeagueTable, league_class: str) -> TextTable | None:
    """Show the share of contests in which the policy of a row is separated from that of a column as the better one."""
    wins = who_beats_whom(table, league_class, HEADLINE)
    names = sorted({one for pair in wins for one in pair}, key=lambda name: (-_share(wins, name), name))
    if len(names) < _FEWEST:
        return None
    rows = tuple((name, *(_wins(wins.get((name, other))) for other in names)) for name in names)
    note = "Per cent of the contests that both ran at which the row's mean JCT is separately lower than the column's."
    return TextTable(f"{league_class}: who beats whom", ("policy", *names), rows, (note,), 1)


def _share(wins: dict[tuple[str, str], tuple[int, int]], name: str) -> float:
    own = [count for (one, _), count in wins.items() if one == name]
    return sum(won for won, _ in own) / max(1, sum(of for _, of in own))


def _wins(found: tuple[int, int] | None) -> str:
    return "" if found is None else f"{100 * found[0] / found[1]:.0f}"


def contests_table(table: LeagueTable) -> TextTable:
    """List the contests: their jobs, their offered load, how many policies ran and whether a bound is known."""
    rows = tuple(
        (
            place.name,
            place.about if not place.missing else f"not run: {place.missing}",
            place.physics or "-",
            "-" if place.offered_load is None else f"{place.offered_load:.2f}",
            f"{len(table.ran(place.name))}",
            _hours(place.bounds.values()) if place.bounds else "-",
        )
        for place in table.contests
    )
    why: dict[str, list[str]] = {}
    for place in table.contests:
        if place.unbounded and not place.missing:
            why.setdefault(place.unbounded, []).append(place.name)
    notes = tuple(f"No bound for {', '.join(names)}: {reason}." for reason, names in why.items())
    notes += tuple(who_cannot_differ(one for entry in table.ran() for one in _cells(entry)))
    headers = ("contest", "jobs", "physics", "offered load", "policies", "best possible mean JCT (h)")
    return TextTable("Contests", headers, rows, notes, 3)


def _cells(entry: Entry) -> list[Cell]:
    """Return an entry's values by seed, at the point of its contest."""
    point = {"contest": entry.contest}
    return [
        Cell(
            Path(),
            {},
            {name: by_seed[seed] for name, by_seed in entry.values.items()},
            entry.policy,
            "",
            int(seed),
            point,
        )
        for seed in entry.jobs
    ]


def unable_table(table: LeagueTable) -> TextTable | None:
    """List which policies could not run where, and why; None if all ran everywhere."""
    why: dict[tuple[str, str], list[str]] = {}
    for one in table.entries:
        if one.reason:
            why.setdefault((one.policy, one.reason), []).append(one.contest)
    if not why:
        return None
    by_workload = [(policy, _grouped(table, contests), reason) for (policy, reason), contests in why.items()]
    rows = tuple(sorted(by_workload))
    return TextTable("Where policies cannot run", ("policy", "contests", "reason"), rows, (), 3)


def _grouped(table: LeagueTable, contests: Sequence[str]) -> str:
    """Name contests, those of a whole workload by its name."""
    said = []
    for workload in dict.fromkeys(place.workload for place in table.contests):
        own = [place.name for place in table.contests if place.workload == workload]
        some = [name for name in own if name in contests]
        said += [workload] if some == own else some
    return ", ".join(said)


def becomes_notes(table: LeagueTable) -> list[str]:
    """Describe what policies reduce to without the physics that they rely on, one sentence each."""
    told = ((one.shown_policy, {words: words for words in one.becomes}) for one in table.ran())
    return what_policies_become(told)


def league_csv(table: LeagueTable) -> str:
    """Write every measure of every policy at every contest as CSV, in the units of the summaries."""
    above = {(one.contest, one.policy): one.above for one in beside_the_bound(table)}
    lines: list[list[object]] = []
    for one in table.entries:
        if one.reason:
            lines.append([one.contest, one.policy, *[""] * 8, one.reason])
            continue
        for name, by_seed in one.values.items():
            found = estimate(by_seed.values())
            bound = above.get((one.contest, one.shown_policy), "") if name == HEADLINE else ""
            ends = ["" if end is None else end for end in (found.low, found.high)]
            who = [one.contest, one.policy, one.league_class, name]
            lines.append([*who, _unit(name), found.mean, *ends, found.n, bound, ""])
    headers = ["contest", "policy", "class", "metric", "unit", "mean", "low", "high", "seeds", "above_bound", "reason"]
    return csv_text(headers, lines)


def _above(beside: Sequence[Beside], contests: Sequence[str]) -> dict[str, str]:
    """Return for each policy the smallest and largest percentage above the bounds of these contests."""
    found: dict[str, list[float]] = {}
    for one in beside:
        if one.contest in contests:
            found.setdefault(one.policy, []).append(100 * one.above)
    return {
        policy: number(values[0]) if len(values) == 1 else f"{number(min(values))} to {number(max(values))}"
        for policy, values in found.items()
    }


def _interval(ratio: Estimate) -> str:
    if ratio.low is None or ratio.high is None or ratio.low == ratio.high:
        return estimate_text(Estimate(ratio.mean, ratio.n))
    return f"{number(ratio.mean)} [{number(ratio.low)} to {number(ratio.high)}]"


def _mean(entries: Sequence[Entry], name: str) -> float:
    """Average a measure over the contests and seeds that have it; NaN if none has."""
    values = [value for one in entries for value in one.values.get(name, {}).values()]
    return sum(values) / len(values) if values else math.nan


def _number(value: float) -> str:
    return "-" if math.isnan(value) else number(value)


def _hours(seconds: object) -> str:
    values = list(seconds)  # type: ignore[call-overload]
    return number(sum(values) / len(values) / 3600)


def _unit(name: str) -> str:
    return "s" if name == CPU_S else METRICS[name].unit


def _title(name: str) -> str:
    return "CPU time of a run" if name == CPU_S else find_metric(name).title
