"""A league as tables: who stands where, contest by contest, what was played and what could not run."""

from __future__ import annotations

import math
from collections.abc import Sequence

from simsched.knowledge import legend
from simsched.report.table import TextTable, csv_text
from simsched.report.units import number
from simsched.results import Estimate, estimate
from simsched.results.league import LEVEL, Entry, LeagueTable, Standings, standings

_LEVEL = f"the probability of any false separation in the table is at most {LEVEL:.0%}"
_FEWEST = 2


def share_text(found: Estimate) -> str:
    """Format a share with its interval; without one, it does not look exact."""
    if found.low is None or found.high is None:
        return f"about {found.mean:.1g} (no interval)"
    return f"{found.mean:.3f} [{found.low:.3f} to {found.high:.3f}]" if found.low < found.high else f"{found.mean:.3f}"


def standings_table(
    table: LeagueTable, contests: Sequence[str] = (), *, oracles: bool = False, by_contest: bool = False
) -> TextTable | None:
    """Show who stands where in some contests (default: all), oracles apart; None if nobody ran them all.

    With `by_contest` there is a column for each contest.
    """
    found = standings(table, contests, oracles=oracles)
    if not found.rows:
        return None
    parts = {name: standings(table, (name,), oracles=oracles) for name in found.contests} if by_contest else {}
    single = {name: {row.policy: row.share for row in one.rows} for name, one in parts.items()}
    rows = tuple(
        (
            row.policy,
            _rank(found, row.best, row.worst),
            share_text(row.share),
            *(f"{single[name][row.policy].mean:.2f}" for name in single),
            number(_mean(own, "restarts")),
            number(1000 * _worst(own, "decision_p99_s")),
            ", ".join(sorted(own[0].knows)) or "-",
        )
        for row in found.rows
        for own in ([one for one in table.ran() if one.shown_policy == row.policy and one.contest in found.contests],)
    )
    headers = ("policy", "rank", "share of the way from FIFO to the bound", *single, "restarts per job",
               "decision, 99th percentile (ms)", "what it is told")  # fmt: skip
    where = ", ".join(found.contests) if contests else "all contests"
    who = "oracles" if oracles else "policies"
    return TextTable(f"{table.name}, {table.division}: {who}, {where}", headers, rows, _notes(table, found), 1)


def _rank(found: Standings, best: int, worst: int) -> str:
    if not found.apart:
        return "-"
    return f"{best}" if best == worst else f"{best} to {worst}"


def _notes(table: LeagueTable, found: Standings) -> tuple[str, ...]:
    notes = [
        f"{len(found.contests)} contest{'s' * (len(found.contests) > 1)}, {len(table.seeds)} seeds. 1 is at the bound, "
        "below which no schedule comes, 0 as FIFO (by definition), below 0 worse. Mean and 95 % interval over seeds."
    ]
    notes += (
        [f"Ranks are groups: equal ranks are not separated by Holm's procedure on paired seeds; {_LEVEL}."]
        if found.apart
        else ["No ranks, as no two rows are separated."]
    )
    if found.elsewhere:
        said = ", ".join(f"{policy} ({count})" for policy, count in sorted(found.elsewhere.items()))
        notes.append(f"Ranked only in the contests that they ran: {said}.")
    shown = {row.policy for row in found.rows}
    return (*notes, *legend({one.policy: one.knows for one in table.ran() if one.shown_policy in shown}, signals=False))


def contests_table(table: LeagueTable) -> TextTable:
    """List the contests: their jobs, what a good policy must do, FIFO's wait, what is separated, and the bound."""
    rows = []
    for place in table.contests:
        found = standings(table, (place.name,))
        pairs = len(found.rows) * (len(found.rows) - 1) // 2
        first = next((one for one in table.ran(place.name) if one.policy == "fifo"), None)
        waits = [] if first is None else [
            first.values["wait_mean_s"][seed] / jct_s for seed, jct_s in first.values["jct_mean_s"].items()
        ]  # fmt: skip
        rows.append((
            place.name, place.about, place.good,
            f"{min(waits):.0%} to {max(waits):.0%}" if waits else "-",
            f"{len(found.apart)} of {pairs}",
            _hours(place.bounds.values()) if place.bounds else f"none: {place.unbounded or 'it was not asked for'}",
        ))  # fmt: skip
    headers = ("contest", "jobs", "a good policy must", "FIFO's wait / its JCT", "pairs separated",
               "best possible mean JCT (h)")  # fmt: skip
    return TextTable("Contests", headers, tuple(rows), (), 3)


def unable_table(table: LeagueTable) -> TextTable | None:
    """List which policies could not run where, and why; None if all ran everywhere."""
    why: dict[tuple[str, str], list[str]] = {}
    for one in table.entries:
        if one.reason:
            why.setdefault((one.policy, one.reason), []).append(one.contest)
    rows = tuple(sorted((policy, ", ".join(contests), reason) for (policy, reason), contests in why.items()))
    return TextTable("Where policies cannot run", ("policy", "contests", "reason"), rows, (), 3) if rows else None


def league_csv(table: LeagueTable) -> str:
    """Write every measure of every policy at every contest as CSV, in seconds and numbers per job."""
    lines: list[list[object]] = []
    for one in table.entries:
        if one.reason:
            lines.append([one.contest, one.policy, *[""] * 6, one.reason])
        for name, by_seed in {**one.values, **one.timing}.items():
            found = estimate(by_seed.values())
            ends = ["" if end is None else end for end in (found.low, found.high)]
            lines.append(
                [one.contest, one.policy, "oracle" if one.oracle else "", name, found.mean, *ends, found.n, ""]
            )
    return csv_text(["contest", "policy", "oracle", "metric", "mean", "low", "high", "seeds", "reason"], lines)


def _mean(entries: Sequence[Entry], name: str) -> float:
    values = [value for one in entries for value in one.values.get(name, {}).values()]
    return sum(values) / len(values) if values else math.nan


def _worst(entries: Sequence[Entry], name: str) -> float:
    """Return the largest over contests of the median over seeds."""
    by_contest = [sorted(one.timing[name].values()) for one in entries if one.timing.get(name)]
    return max((values[len(values) // 2] for values in by_contest), default=math.nan)


def _hours(seconds: object) -> str:
    values = list(seconds)  # type: ignore[call-overload]
    return number(sum(values) / len(values) / 3600)
