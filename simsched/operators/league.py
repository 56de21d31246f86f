"""Plays a league: runs every policy in every contest where it can run, and tunes rows on seeds of their own first."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simsched.experiment import Grid, GridCell, run_with_fairness
from simsched.experiment.league import (
    Contest,
    LeagueSpec,
    code_now,
    code_of,
    contests,
    digest_of_league,
    entrants,
    reason_of,
)
from simsched.experiment.running import Listener, RunResult, prepare_grid, run_grid
from simsched.operators.bound import Bound, bound_cells, bounds_of
from simsched.results import RUN_FILE, Cell, physics_of, read_run
from simsched.results.league import CPU_S, MEASURES, ContestPlace, Entry, LeagueTable, joined, require_same_league

#: Receives the contest that begins, its number and the total.
Began = Callable[[str, int, int], None]
#: The policy that is rerun to check whether stored results of other code are still valid.
_AGAIN = "fifo"
#: The folder of tuning runs, below that of the league.
_FOLDER = "tuning"
#: The logarithms of the mean JCTs of the seeds, by candidate and contest.
_Logs = dict[str, dict[str, list[float]]]


def play(
    spec: LeagueSpec,
    out: Path,
    *,
    policies: Sequence[str] | None = None,
    against: LeagueTable | None = None,
    seeds: int | None = None,
    data: Path | None = None,
    workers: int = 1,
    listener: Listener | None = None,
    began: Began | None = None,
    bounds: bool = True,
) -> LeagueTable:
    """Run a league into `out`, one results folder per contest, and return its entries; complete cells are reused.

    Only `policies` take part, by default all shipped ones and the league's own rows. They are compared with `against`,
    results of others in the same contests, which include the bounds. A contest without its data below `data` is named
    with the reason, as is a policy that cannot run in it or fails. `bounds` adds the best possible to each contest.
    Raises `InputError` if a contest is invalid, or `against` has other jobs or another semantics.
    """
    told: tuple[str, ...] = ()
    if against is not None:
        require_same_league(against, digest_of_league(spec))
        seeds = len(against.seeds) if seeds is None else seeds
        changed = made_by_other_code(against)
        if changed and policies is not None and _AGAIN in against.policies:
            policies = list(dict.fromkeys((*policies, _AGAIN)))
        told = _other_code(changed)
    all_contests = list(contests(spec, data))
    tuned = tune(spec, all_contests, out, workers, listener) if policies is None else {}
    able = entrants(spec, policies, tuple(one.row for one in tuned.values() if one.row is not None))
    chosen = tuple(range(1, (seeds or spec.seeds) + 1))
    places: list[ContestPlace] = []
    entries: list[Entry] = []
    for number, contest in enumerate(all_contests, start=1):
        if contest.missing:
            places.append(ContestPlace(contest.workload, contest.condition, contest.about, missing=contest.missing))
            continue
        if began is not None:
            began(contest.name, number, len(all_contests))
        grid = prepare_grid(contest.document(able.rows, chosen, spec.name), name=contest.name, leave_out=True)
        bounded = grid.select([cell.label for cell in grid.cells[:1]]) if bounds and against is None else None
        found = _run(grid, out, workers, listener, [] if bounded is None else bound_cells(bounded))
        places.append(_place(contest, grid, [] if bounded is None else bounds_of(bounded, out / grid.folder_name)))
        entries += found
        entries += [Entry(contest.name, label, reason=reason) for label, reason in able.unable.items()]
    told += tuple(one.said for one in tuned.values())
    head = (spec.name, digest_of_league(spec), spec.description, chosen)
    table = LeagueTable(*head, tuple(places), tuple(entries), told)
    return table if against is None else joined(table, against)


def made_by_other_code(table: LeagueTable) -> list[str]:
    """List the policies of stored results, by label, whose code has changed since.

    Ignores policies from users' files.
    """
    codes = {one.policy_name: one.code for one in table.ran() if ":" not in one.policy_name}
    other = {name for name, code in codes.items() if code_now(name) != code}
    return list(dict.fromkeys(one.policy for one in table.ran() if one.policy_name in other))


def _other_code(changed: Sequence[str]) -> tuple[str, ...]:
    if not changed:
        return ()
    said = f"Other code than this version's made the rows of {', '.join(changed)}"
    return (f"{said}; {_AGAIN} was run again and came out the same." if _AGAIN in changed else f"{said}.",)


def _run(grid: Grid, out: Path, workers: int, listener: Listener | None, beside: Sequence[GridCell]) -> list[Entry]:
    """Run a contest and return its entries; policies without results come last."""
    contest = grid.folder_name
    lost = {label: reason_of(problems) for label, problems in grid.refused.items()}
    found: list[Entry] = []
    if grid.cells:
        result = run_with_fairness(grid, out, workers, listener, beside=beside)
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
    """Return why policies failed by label, for the first failed seed."""
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
        code=code_of(first.manifest),
        jobs={str(cell.seed): str(cell.manifest.get("jobs_hash"))[:16] for cell in cells},
        values=values,
    )


def _place(contest: Contest, grid: Grid, proved: Sequence[Bound]) -> ContestPlace:
    """Describe a contest, with the bounds of its jobs if the physics allow any."""
    loads = [float(load) for cell in grid.cells if (load := cell.task.about.get("offered_load")) is not None]
    refused = next((bound.refused for bound in proved if bound.refused), "")
    return ContestPlace(
        contest.workload,
        contest.condition,
        contest.about,
        offered_load=sum(loads) / len(loads) if loads else None,
        physics=physics_of([cell.task.about for cell in grid.cells]),
        bounds={} if refused else {str(bound.seed): bound.mean_jct_s for bound in proved},
        unbounded=refused or ("" if proved else "no bound was requested"),
    )


@dataclass(frozen=True)
class Tuned:
    """A row with its best parameters, None if no candidate ran, and a sentence on how they were found."""

    row: Mapping[str, Any] | None
    said: str


def tune(
    spec: LeagueSpec, contests: Sequence[Contest], out: Path, workers: int, listener: Listener | None
) -> dict[str, Tuned]:
    """Tune the rows of a league's `tuning`, by label; candidates that cannot run anywhere are left out."""
    if spec.tuning is None:
        return {}
    usual = next(iter(spec.conditions))
    found = {row.label: row.candidates() for row in spec.tuning.rows}
    logs: _Logs = {}
    for contest in contests:
        if contest.condition != usual or contest.missing:
            continue
        document = contest.document([one for rows in found.values() for one in rows], spec.tuning.seeds, spec.name)
        grid = prepare_grid(document, name=contest.name, leave_out=True)
        if grid.cells:
            result = run_grid(grid, out / _FOLDER, workers, listener)
            _gather(logs, contest.name, result.folder, len(spec.tuning.seeds))
    return {label: _tuned(label, rows, logs, spec.tuning.seeds) for label, rows in found.items()}


def _gather(logs: _Logs, contest: str, folder: Path, seeds: int) -> None:
    if not (folder / RUN_FILE).is_file():
        return
    by_label: dict[str, list[float]] = {}
    for cell in read_run(folder).cells:
        by_label.setdefault(cell.policy, []).append(math.log(cell.summary["jct_mean_s"]))
    for label, values in by_label.items():
        if len(values) == seeds:
            logs.setdefault(label, {})[contest] = values


def _tuned(label: str, rows: Sequence[Mapping[str, Any]], logs: _Logs, seeds: Sequence[int]) -> Tuned:
    """Take the best candidate at the contests that all of them ran."""
    able = [row for row in rows if row["label"] in logs]
    ran = [logs[row["label"]] for row in able]
    shared = [name for name in ran[0] if all(name in one for one in ran)] if ran else []
    if not shared:
        return Tuned(None, f"{label}: left out, as its candidates ran in no contest.")
    means = [_mean(value for name in shared for value in one[name]) for one in ran]
    best = able[means.index(min(means))]
    given = ", ".join(f"{name}={json.dumps(value)}" for name, value in best["params"].items())
    unable = f" ({len(rows) - len(able)} more cannot run)" if len(able) < len(rows) else ""
    said = (
        f"{label}: {given}, the best of {len(able)}{unable} by the geometric mean of mean JCTs at {', '.join(shared)} "
        f"on seeds {', '.join(map(str, seeds))}, not the league's; the worst took "
        f"{math.exp(max(means) - min(means)):.2f} times as long."
    )
    return Tuned({**best, "label": label}, said)


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return math.fsum(found) / len(found)
