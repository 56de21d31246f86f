"""Plays a league: every policy on the lists of jobs of every contest, with the time of its decisions, and bounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from simsched.engine import MemoryRecorder, simulate
from simsched.errors import input_error
from simsched.experiment import Grid, GridCell, HeldJobs, Task, digest_of
from simsched.experiment.league import (
    Division,
    LeagueSpec,
    Lists,
    code_now,
    code_of,
    read_lists,
    reason_of,
    unable,
)
from simsched.experiment.physics import applications_of, settings_of
from simsched.experiment.running import Listener, Store, blamed, describe_environment, make_cell, prepare_grid, run_grid
from simsched.model import JobSpec
from simsched.operators.bound import bound_cells, bounds_of
from simsched.policy import Decision, Policy, View
from simsched.results import read_json
from simsched.results.integrity import SUMMARY_FILE, seal
from simsched.results.league import ContestPlace, Entry, LeagueTable, joined
from simsched.results.writer import json_text

#: The policy from which the way to the bound is measured, and which is run again beside results of other code.
FIRST = "fifo"
#: The file of a cell with what is measured.
_FILE = "played.json"
#: Simulations that look for the spread of submissions, and the error of the logarithm of FIFO's wait that ends it.
_MOST_TRIES, _NEAR = 14, 0.12
#: Jobs that a cell lists as those that lost most.
_MOST_LOST = 5


@dataclass(frozen=True)
class LeagueTask(Task):
    """A cell of a league: only the jobs from place `first` to before `end`, by submission, count."""

    first: int = 0
    end: int = 0


class _Timed:
    """Delegates to a policy, and keeps the seconds of each decision."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.seconds: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Decide."""
        began_s = time.perf_counter()
        made = self._policy.decide(view, rng)
        self.seconds.append(time.perf_counter() - began_s)
        return made


@make_cell.register
def _(task: LeagueTask, folder: Path, *_: object) -> float:
    began_s = time.perf_counter()
    with Store(folder).staged(task.key) as path:
        with blamed(task):
            found = _played(task)
        content = {_FILE: json_text(found).encode(), SUMMARY_FILE: b"{}\n"}
        about = {"cell": task.key, "environment": describe_environment()}
        seal(path, about, content)
    return time.perf_counter() - began_s


def _played(task: LeagueTask) -> dict[str, Any]:
    """Return what a task's policy makes of its jobs: `values` follow from the code, `timing` from the machine too."""
    policy, recorder, cpu_s = _Timed(task.policy.make()), MemoryRecorder(), time.process_time()
    simulate(
        task.cluster, tuple(task.jobs), applications_of(task), policy,  # type: ignore[arg-type]
        task.engine, task.seed, recorder, **settings_of(task),
    )  # fmt: skip
    cpu_s = time.process_time() - cpu_s
    places = {job.id: place for place, job in enumerate(task.jobs)}
    counted = [one for one in recorder.jobs if task.first <= places[one.job_id] < task.end]
    if len(counted) != task.end - task.first:
        raise input_error("league", f"{task.end - task.first - len(counted)} jobs did not run to their end")
    worst = sorted(counted, key=lambda one: (-_lost_s(one), one.job_id))[:_MOST_LOST]
    jct_s = [float(one.end_time_s - one.submit_time_s) for one in counted]
    return {
        "values": {
            "jct_mean_s": sum(jct_s) / len(jct_s),
            "wait_mean_s": sum(float(one.queueing_s) for one in counted) / len(counted),
            "restarts": sum(one.restarts for one in counted) / len(counted),
        },
        "lost": [f"{one.job_id} ({one.num_gpus} GPUs, held {one.held_s:.0f} s) {_why(one)}" for one in worst],
        "timing": {"decision_p99_s": float(np.quantile(policy.seconds, 0.99)), "cpu_s": cpu_s},
    }


def _lost_s(one: Any) -> float:
    return float(one.end_time_s - one.submit_time_s - one.held_s + one.restart_s)


def _why(one: Any) -> str:
    """Say in what a finished job lost its time."""
    before_s = one.start_time_s - one.submit_time_s
    after_s = one.end_time_s - one.start_time_s - one.held_s
    told = [f"waited {before_s:.0f} s for its first start"] if before_s else []
    told += [f"{after_s:.0f} s while it was stopped"] if after_s > 0 else []
    told += [f"{one.restart_s:.0f} s in {one.restarts} restarts"] if one.restarts else []
    return ", ".join(told) or "lost nothing"


def make_lists(spec: LeagueSpec, contest: str, seeds: Sequence[int]) -> Lists:
    """Draw a contest's jobs for these seeds, each list spread so that FIFO waits as the league says."""
    found: dict[int, Sequence[JobSpec]] = {}
    for seed in seeds:
        (cell,) = prepare_grid(spec.document(contest, [{"name": FIRST}]), seeds=(seed,)).cells
        first_s = cell.task.jobs[0].submit_time_s
        jobs = [replace(job, id=f"job-{place}", submit_time_s=job.submit_time_s - first_s, status="", duration_s=(
            round(job.duration_s) if job.duration_s == int(job.duration_s) else job.duration_s))
            for place, job in enumerate(cell.task.jobs)]  # fmt: skip
        found[seed] = _spread(spec, cell.task, jobs, seed, f"{spec.name}, {contest}")
    return found


def _spread(spec: LeagueSpec, task: Task, jobs: Sequence[JobSpec], seed: int, where: str) -> Sequence[JobSpec]:
    """Bisect for the factor on the times of submission; deadlines go with them."""
    low, high, factor = 0.0, 0.0, 1.0
    nearest, error = None, float("inf")
    for _ in range(_MOST_TRIES):
        made = [replace(job, submit_time_s=round(job.submit_time_s * factor)) for job in jobs]
        values = _played(_task(task, made, seed, spec.counted))["values"]
        share = values["wait_mean_s"] / values["jct_mean_s"]
        off = abs(np.log(max(share, 1e-9) / spec.wait))
        if off < error and spec.between[0] <= share <= spec.between[1]:
            nearest, error = made, off
        if error < _NEAR:
            break
        if share > spec.wait:
            low = factor
        else:
            high = factor
        factor = float(np.sqrt(low * high)) if low and high else factor * (1.25 if low else 0.8)
    if nearest is not None:
        return nearest
    raise input_error(where, f"no spread of the jobs of seed {seed} lets FIFO wait {spec.wait:.0%} of its JCT",
                      "declare other jobs")  # fmt: skip


def _task(task: Task, jobs: Sequence[JobSpec], seed: int, counted: tuple[int, int]) -> LeagueTask:
    held, digest = HeldJobs(jobs), digest_of(tuple(jobs))
    about = {**task.about, "jobs_hash": digest, "jobs": len(jobs)}
    told = {**vars(task), "jobs": held, "seed": seed, "about": about, "first": counted[0], "end": counted[1]}
    return LeagueTask(**{**told, "key": digest_of((task.key, digest, seed, counted))[:20]})


@dataclass(frozen=True)
class _Contest:
    """A prepared contest: its rows that can run, with one task each, the others with reasons, and its jobs."""

    name: str
    grid: Grid
    lost: Mapping[str, str]
    jobs: Lists

    def cells(self, spec: LeagueSpec) -> Iterator[GridCell]:
        """Yield the cells of all rows and seeds."""
        for cell in self.grid.cells:
            for seed, jobs in self.jobs.items():
                task = _task(cell.task, jobs, seed, spec.counted)
                yield replace(cell, label=f"{cell.label} at {self.name}", seed=seed, task=task)

    def counted(self, spec: LeagueSpec) -> Grid:
        """Return a cell for each seed with the jobs that count alone, which bound every schedule of all of them."""
        first, end = spec.counted
        cells = []
        for seed, jobs in self.jobs.items() if self.grid.cells else ():
            some = HeldJobs(jobs[first:end])
            about = {**self.grid.cells[0].task.about, "jobs_hash": digest_of(tuple(some))}
            task = replace(self.grid.cells[0].task, jobs=some, seed=seed, about=about)
            cells.append(replace(self.grid.cells[0], seed=seed, task=task))
        return replace(self.grid, cells=tuple(cells))


def play(
    league: str,
    spec: LeagueSpec,
    division: Division,
    out: Path,
    *,
    name: str = "",
    rows: Sequence[Mapping[str, Any]] | None = None,
    against: LeagueTable | None = None,
    seeds: Sequence[int] | None = None,
    workers: int = 1,
    isolated: bool = False,
    listener: Listener | None = None,
    began: Callable[[str], None] | None = None,
) -> LeagueTable:
    """Play a division into `out` and return its entries; complete cells are reused.

    Only `rows` take part, by default the division's. They stand beside `against`, which includes the bounds: results of
    others in the same contests. Without it, FIFO takes part too, and the contests are bounded. Lists of `seeds` that
    are not frozen are drawn. With `isolated`, policies that do not ship run behind a wall. Raises `InputError` for
    wrong rows, or if `against` has other jobs.
    """
    chosen = tuple(seeds or range(1, division.seeds + 1))
    digest = spec.digest(division.contests)
    own = [{"name": one} for one in (FIRST,)] if rows is not None and _needs_first(against) else []
    given = [one.model_dump(exclude_none=True) for one in division.policies] if rows is None else [*rows, *own]
    lost = unable(given)
    apart = ("isolated=true",) * isolated
    able = [row for row in given if str(row.get("label") or row["name"]) not in lost]
    contests = []
    for contest in division.contests:
        if began is not None:
            began(contest)
        grid = prepare_grid(spec.document(contest, able), apart, name=spec.name, leave_out=True)
        refused = {label: reason_of(problems) for label, problems in grid.refused.items()}
        contests.append(_Contest(contest, grid, lost | refused, _lists(league, spec, contest, chosen, grid)))
    bounded = {one.name: one.counted(spec) for one in contests} if against is None else {}
    cells = [cell for one in contests for cell in one.cells(spec)]
    beside = [*cells, *(search for grid in bounded.values() for search in bound_cells(grid, quick=True))]
    empty = replace(contests[0].grid, cells=(), results_name=spec.name)
    beside.sort(key=lambda cell: cell.seed)  # so that a part of a run has whole seeds
    result = run_grid(empty, out, workers, listener, beside=beside)
    failures = {one.name.rpartition(", seed ")[0]: one.message for one in reversed(result.failures)}
    store = Store(result.folder)
    entries = [entry for one in contests for entry in _entries(spec, one, store, failures)]
    places = tuple(_place(spec, one, bounded.get(one.name), result.folder) for one in contests)
    head = (spec.name, name, digest, division.about, chosen)
    table = LeagueTable(*head, places, tuple(entries), tuple(_told(division, against)))
    return table if against is None else joined(table, against)


def _needs_first(against: LeagueTable | None) -> bool:
    return against is None or bool(made_by_other_code(against))


def _told(division: Division, against: LeagueTable | None) -> Iterator[str]:
    changed = made_by_other_code(against) if against is not None else []
    if changed:
        yield f"Other code than this version's made the rows of {', '.join(changed)}; {FIRST} came out the same again."
    for reason in dict.fromkeys(division.left_out.values()):
        names = ", ".join(one for one, why in division.left_out.items() if why == reason)
        yield f"Not in this division: {names} ({reason})."


def made_by_other_code(table: LeagueTable) -> list[str]:
    """List the policies of stored results, by label, whose code has changed since; those of users' files have none."""
    codes = {one.policy_name: one.code for one in table.ran() if ":" not in one.policy_name}
    other = {name for name, code in codes.items() if code_now(name) != code}
    return list(dict.fromkeys(one.policy for one in table.ran() if one.policy_name in other))


def _lists(league: str, spec: LeagueSpec, contest: str, seeds: Sequence[int], grid: Grid) -> Lists:
    declared = spec.contests[contest].lists
    frozen = read_lists(league, contest, declared) if declared else {}
    drawn = make_lists(spec, contest, [seed for seed in seeds if seed not in frozen])
    speedup = grid.cells[0].task.jobs[0].speedup if grid.cells else None
    return {
        seed: drawn[seed] if seed in drawn else [replace(job, speedup=speedup) for job in frozen[seed]]
        for seed in seeds
    }


def _entries(spec: LeagueSpec, contest: _Contest, store: Store, failures: Mapping[str, str]) -> Iterator[Entry]:
    """Yield the entries of a contest; rows without results come last."""
    lost = dict(contest.lost)
    cells = list(contest.cells(spec))
    for row in contest.grid.cells:
        own = [cell for cell in cells if cell.label == f"{row.label} at {contest.name}"]
        missing = [cell for cell in own if not store.has(cell.task.key)]
        if missing:
            lost[row.label] = failures.get(own[0].label, "it has no results")
            continue
        played = {str(cell.seed): read_json(store.cell(cell.task.key) / _FILE) for cell in own}
        about = row.task.about
        yield Entry(
            contest.name, row.label, row.policy, about["policy"]["params"], about["policy_knows"],
            code=code_of(about["policy_source"]),
            jobs={seed: str(cell.task.about["jobs_hash"])[:16] for seed, cell in zip(played, own, strict=True)},
            values=_by_name({seed: one["values"] for seed, one in played.items()}),
            timing=_by_name({seed: one["timing"] for seed, one in played.items()}),
            lost={seed: one["lost"] for seed, one in played.items()},
        )  # fmt: skip
    yield from (Entry(contest.name, label, reason=reason) for label, reason in lost.items())


def _by_name(by_seed: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    names = next(iter(by_seed.values()))
    return {name: {seed: values[name] for seed, values in by_seed.items()} for name in names}


def _place(spec: LeagueSpec, contest: _Contest, bounded: Grid | None, folder: Path) -> ContestPlace:
    one = spec.contests[contest.name]
    proved = bounds_of(bounded, folder, quick=True) if bounded is not None and bounded.cells else []
    refused = next((bound.refused for bound in proved if bound.refused), "")
    bounds = {} if refused else {str(bound.seed): bound.mean_jct_s for bound in proved}
    return ContestPlace(contest.name, one.about, one.good, bounds, refused)
