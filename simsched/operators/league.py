"""Plays a league: every policy at every contest where it can run, through experiments like any other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from simsched.experiment import (
    Contest,
    Grid,
    LeagueSpec,
    contests,
    digest_of_league,
    entrants,
    reason_of,
)
from simsched.experiment.fairness import run_with_fairness
from simsched.experiment.running import Listener, RunResult, prepare_grid
from simsched.operators.bound import bounds_of
from simsched.results import CPU_S, MEASURES, RUN_FILE, Cell, ContestPlace, Entry, LeagueTable, physics_of, read_run

#: Is told which contest begins, its number and how many there are.
Began = Callable[[str, int, int], None]


def play(
    spec: LeagueSpec,
    out: Path,
    *,
    policies: Sequence[str] | None = None,
    seeds: int | None = None,
    data: Path | None = None,
    workers: int = 1,
    listener: Listener | None = None,
    began: Began | None = None,
    bounds: bool = True,
    limit_s: float | None = None,
) -> LeagueTable:
    """Run a league into `out`, one results folder a contest, and return its entries; what is complete is reused.

    `policies` are the only ones to take part, by default all that ship. A contest whose data are not below `data` is
    named with the reason, and so is a policy that cannot run it or fails. `bounds` sets the best possible beside each.
    Raises `InputError` where a contest itself is wrong.
    """
    chosen = tuple(range(1, (seeds or spec.seeds) + 1))
    able = entrants(spec, policies)
    places: list[ContestPlace] = []
    entries: list[Entry] = []
    all_contests = list(contests(spec, data))
    for number, contest in enumerate(all_contests, start=1):
        if contest.missing:
            places.append(ContestPlace(contest.workload, contest.condition, contest.about, missing=contest.missing))
            continue
        if began is not None:
            began(contest.name, number, len(all_contests))
        document = contest.document(able.rows, chosen, spec.name)
        grid = prepare_grid(document, name=contest.name, leave_out=True, limit_s=limit_s)
        found = _run(grid, out, workers, listener)
        places.append(_place(contest, grid, bounds=bounds))
        entries += found
        entries += [Entry(contest.name, label, reason=reason) for label, reason in able.unable.items()]
    return LeagueTable(spec.name, digest_of_league(spec), spec.description, chosen, tuple(places), tuple(entries))


def _run(grid: Grid, out: Path, workers: int, listener: Listener | None) -> list[Entry]:
    """Run a contest and return its entries, those of policies without results last."""
    contest = grid.folder_name
    lost = {label: reason_of(problems) for label, problems in grid.refused.items()}
    found: list[Entry] = []
    if grid.cells:
        result = run_with_fairness(grid, out, workers, listener)
        wanted = {cell.label: cell for cell in grid.cells}
        failed = _failures(result)
        run = read_run(result.folder) if (result.folder / RUN_FILE).is_file() else None
        cells = [] if run is None else [cell for cell in run.cells if cell.policy in wanted]
        for label in wanted:
            own = [cell for cell in cells if cell.policy == label]
            if label in failed or not own:
                lost[label] = failed.get(label, "it has no results")
            else:
                found.append(_entry(contest, own))
    return found + [Entry(contest, label, reason=reason) for label, reason in lost.items()]


def _failures(result: RunResult) -> Mapping[str, str]:
    """Return why policies failed, by label: at the first seed that did."""
    return {one.name.rpartition(", seed ")[0]: one.message for one in reversed(result.failures)}


def _entry(contest: str, cells: Sequence[Cell]) -> Entry:
    first = cells[0]
    values: dict[str, dict[str, float]] = {}
    for cell in cells:
        measured = {**cell.summary, CPU_S: float(cell.manifest.get("timing", {}).get("cpu_s", 0.0))}
        for name in MEASURES:
            if name in measured:
                values.setdefault(name, {})[str(cell.seed)] = measured[name]
    without: Mapping[str, Any] = first.manifest.get("without") or {}
    return Entry(
        contest=contest,
        policy=first.policy,
        policy_name=first.policy_name,
        knows=first.knows,
        rigid=bool(first.manifest.get("policy_rigid", True)),
        becomes=tuple(str(one) for one in without.values()),
        jobs={str(cell.seed): str(cell.manifest.get("jobs_hash"))[:16] for cell in cells},
        values=values,
    )


def _place(contest: Contest, grid: Grid, *, bounds: bool) -> ContestPlace:
    """Describe a contest, with the bounds of its jobs where the physics allow any."""
    one = {cell.label: None for cell in grid.cells}
    loads = [float(load) for cell in grid.cells if (load := cell.task.about.get("offered_load")) is not None]
    proved = bounds_of(grid.select(list(one)[:1])) if bounds and one else []
    refused = next((bound.refused for bound in proved if bound.refused), "")
    return ContestPlace(
        contest.workload,
        contest.condition,
        contest.about,
        offered_load=sum(loads) / len(loads) if loads else None,
        physics=physics_of([cell.task.about for cell in grid.cells]),
        bounds={} if refused else {str(bound.seed): bound.mean_jct_s for bound in proved},
        unbounded=refused or ("" if proved else "no bound was asked for"),
    )
