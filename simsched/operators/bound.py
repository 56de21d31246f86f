"""Bounds on the best possible schedule of an experiment's cells, and the gaps of a run's policies to them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from math import nextafter
from pathlib import Path
from typing import Any

from simsched.bounds import Certificate, digest_of, lower_bound, problem_of
from simsched.documents import yaml_lines, yaml_text
from simsched.errors import InputError, input_error
from simsched.experiment import Grid, GridCell, Task, key_of
from simsched.experiment.running import Store, describe_environment, make_cell, prepare_grid
from simsched.operators.relaxed import FITTED, HARMLESS, Relaxed, least_gpu_cost, refuse_processes, relaxed
from simsched.results import Cell, Run, read_json
from simsched.results.integrity import SUMMARY_FILE, seal
from simsched.results.league import share_of_way
from simsched.results.writer import json_text

#: The baseline for progress towards the bound.
_FIRST_COME = "fifo"
#: The times that a bound claims.
TIMES = ("mean_jct_s", "makespan_s", "mean_wait_s")
#: Sections of an experiment that no bound depends on.
_RESULTS_ONLY = frozenset({"diagnostics", "published", "published_by", "published_source", "report", "sequential"})
#: The file of a cell with the result of a search.
_FILE = "bound.json"


@dataclass(frozen=True)
class Bound:
    """Lower bounds on any schedule of a cell's jobs, in seconds.

    `mean_wait_s` is None if waits have no separate bound. `gpu_cost` bounds the dollars of schedules that meet all
    deadlines, None if nothing does. `relaxed` names the physics left out, and `refused` says why
    there is no bound. `problems_of` checks the `certificate`, whose times are in units of `unit_s` seconds.
    """

    point: Mapping[str, Any]
    seed: int
    workload: str
    policies: tuple[str, ...]
    jobs: int = 0
    mean_jct_s: float = 0.0
    makespan_s: float = 0.0
    mean_wait_s: float | None = None
    gpu_cost: float | None = None
    unit_s: float = 1.0
    jobs_hash: str = ""
    relaxed: tuple[str, ...] = ()
    refused: str = ""
    certificate: Mapping[str, Any] = field(default_factory=dict)

    @property
    def loose(self) -> bool:
        """Whether physics are relaxed that may leave the bounds far from any schedule."""
        return not HARMLESS.issuperset(self.relaxed)


@dataclass(frozen=True)
class Distance:
    """Relative gaps of one cell's policy above the bound; None if unknown.

    `way` is the fraction of the distance from FIFO's mean JCT to the bound that the policy covers.
    """

    policy: str
    bound: Bound
    mean_jct_s: float
    jct: float | None = None
    makespan: float | None = None
    wait: float | None = None
    gpu_cost: float | None = None
    way: float | None = None
    unknown: str = ""


@dataclass(frozen=True)
class BoundTask(Task):
    """The search for bounds of a task's jobs, run and stored like a cell; see `lower_bound` for `quick`."""

    quick: bool = False


def bound_cells(grid: Grid, *, quick: bool = False) -> list[GridCell]:
    """Return the searches for bounds to run with an experiment's cells, without duplicates."""
    return [
        GridCell("bound", "bound", cell.seed, cell.point, _search_for(cell.task, quick=quick))
        for cell in {_physics(cell.task): cell for cell in reversed(grid.wanted)}.values()
    ][::-1]


def bounds_of(grid: Grid, kept: Path | None = None, *, quick: bool = False) -> list[Bound]:
    """Return the bounds of an experiment's cells, once for equal jobs and physics.

    With `kept`, they are read from that folder of a run that included `bound_cells`. If nothing bounds a cell's
    physics, `refused` says so.
    """
    solved: dict[str, dict[str, Any]] = {}
    found = []
    for cell, labels in _groups(grid):
        what = _physics(cell.task)
        if what not in solved:
            key = _search_for(cell.task, quick=quick).key
            solved[what] = _solve(cell.task, quick=quick) if kept is None else _read(Store(kept), key)
        found.append(Bound(dict(cell.point), cell.seed, _workload(cell), labels, **solved[what]))
    return found


def problems_of(claims: Sequence[Mapping[str, Any]], grid: Grid) -> list[str]:
    """Return what is wrong with bounds in the form of their JSON, each compared with its cell; "" if it is proved.

    A refused bound claims nothing.
    """
    places: dict[str, list[GridCell]] = {}
    for cell, labels in _groups(grid):
        for label in labels:
            places.setdefault(_place(label, cell.point, cell.seed, _workload(cell)), []).append(cell)
    known: dict[str, list[dict[str, Any]]] = {}
    return [_problem_of(claim, places, known) for claim in claims]


def _problem_of(
    claim: Mapping[str, Any], places: Mapping[str, Sequence[GridCell]], known: dict[str, list[dict[str, Any]]]
) -> str:
    if claim.get("refused"):
        return "it is refused, and yet claims times" if any(map(claim.get, TIMES)) else ""
    labels = claim.get("policies")
    if not isinstance(labels, list) or not labels:
        return "it names no policies"
    for label in labels:
        problem = "there is no such cell"
        for cell in places.get(_place(label, *map(claim.get, ("point", "seed", "workload"))), ()):
            what = _physics(cell.task)
            if what not in known:
                known[what] = _cells(cell.task)
            problems = [problem_of(claim, one) for one in known[what]] or ["nothing bounds its cell"]
            problem = ("" if "" in problems else problems[-1]) or _cost_problem(claim.get("gpu_cost"), cell.task)
            if not problem:
                break
        if problem:
            return f"{label}: {problem}"
    return ""


def _cost_problem(claimed: object, task: Task) -> str:
    """Return what is wrong with a claimed least cost, which is searched for again."""
    if claimed is None:
        return ""
    least = least_gpu_cost(task)
    if least is None or not isinstance(claimed, float) or not 0 <= claimed <= least:
        return f"its least cost is {'not bounded' if least is None else least}, not {claimed}"
    return ""


def _place(label: object, point: object, seed: object, workload: object) -> str:
    return json_text([label, dict(point) if isinstance(point, Mapping) else point, seed, workload])


def _groups(grid: Grid) -> list[tuple[GridCell, tuple[str, ...]]]:
    """Return a cell of each place and physics, and the policies that have cells like it."""
    found: dict[tuple[str, ...], tuple[GridCell, list[str]]] = {}
    for cell in grid.wanted:
        place = (_place("", cell.point, cell.seed, _workload(cell)), _physics(cell.task))
        found.setdefault(place, (cell, []))[1].append(cell.label)
    return [(cell, tuple(labels)) for cell, labels in found.values()]


def _search_for(task: Task, *, quick: bool) -> BoundTask:
    """Return the search for a task's bounds, which do not depend on its policy and seed."""
    own = dict.fromkeys(("policy", "agent", "seed", "losses", "costs"), "bound")
    values = {one.name: getattr(task, one.name) for one in fields(task)}
    return BoundTask(**{**values, "quick": quick, "key": key_of(task, {**own, "quick": f"{quick}"})})


@make_cell.register
def _(task: BoundTask, folder: Path, *_: object) -> float:
    began_s = time.perf_counter()
    with Store(folder).staged(task.key) as path:
        found = _solve(task, quick=task.quick)
        summary = {name: value for name, value in found.items() if isinstance(value, float)}
        content = {_FILE: json_text(found).encode(), SUMMARY_FILE: json_text(summary).encode()}
        about = {"cell": task.key, "environment": describe_environment()}
        seal(path, about, content)
    return time.perf_counter() - began_s


def _read(store: Store, key: str) -> dict[str, Any]:
    if not store.has(key):
        return {"refused": "the search for it has failed"}
    found: dict[str, Any] = read_json(store.cell(key) / _FILE)
    return found | {"relaxed": tuple(found.get("relaxed", ()))}


def _physics(task: Task) -> str:
    shared = id(task.jobs), id(task.cluster)  # the same objects for equal ones of a grid
    parts = task.engine, task.applications, task.sharing, task.failures, sorted(task.gpu_speed.items())
    return repr((shared, parts, task.tuning, task.cuts is None, task.processes == ()))


def _ways(task: Task) -> list[Relaxed]:
    """Return the relaxations of a task, each of which bounds it; raises `InputError` if there is none."""
    first = relaxed(task)
    return [first, relaxed(task, on_one_gpu=True)] if FITTED in first.said else [first]


def _cells(task: Task) -> list[dict[str, Any]]:
    try:
        return [way.cell(_jobs_hash(task)) for way in _ways(task)]
    except InputError:
        return []


def _solve(task: Task, *, quick: bool = False) -> dict[str, Any]:
    try:
        ways = _ways(task)
    except InputError as error:
        return {"refused": "; ".join(f"{one.where} {one.message}" for one in error.problems), "jobs": len(task.jobs)}
    way, found = max(((way, lower_bound(way.jobs, quick=quick)) for way in ways), key=lambda pair: _flow_s(*pair))
    flow_s, cell = _flow_s(way, found), way.cell(_jobs_hash(task))
    cost = least_gpu_cost(task)
    wait_s = None if way.served_s is None else max(Fraction(0), flow_s - Fraction(way.served_s)) / way.count
    return {
        "jobs": way.count,
        "mean_jct_s": _rounded_down(flow_s / way.count),
        "makespan_s": _rounded_down(Fraction(found.makespan, cell["ticks_per_s"])),
        "mean_wait_s": None if wait_s is None else _rounded_down(wait_s),
        "gpu_cost": cost,
        "unit_s": way.unit_s,
        "jobs_hash": cell["jobs_hash"],
        "relaxed": way.said,
        "certificate": {"cell": digest_of(cell), **found.to_json()},
    }


def _flow_s(way: Relaxed, found: Certificate) -> Fraction:
    return max(Fraction(0), Fraction(found.flow_sum, round(1 / way.unit_s)) - Fraction(way.ahead_s))


def _rounded_down(number: Fraction) -> float:
    found = float(number)
    return found if Fraction(found) <= number else nextafter(found, 0.0)


def _jobs_hash(task: Task) -> str:
    return str(task.about["jobs_hash"])


def _workload(cell: GridCell) -> str:
    return str(cell.task.about["workload"]["name"])


def grid_of(run: Run) -> Grid:
    """Return the grid of a run from the specification in its results, without the policies that could not run.

    Raises `InputError` if it cannot be read any more.
    """
    refuse_processes(run.experiment.get("processes", ()))
    document = yaml_lines.parse(yaml_text(_physics_only(run.experiment)), f"{run.name}.yaml")
    return prepare_grid(document, [], name=run.name, leave_out=True)


def _physics_only(experiment: Mapping[str, Any]) -> dict[str, Any]:
    """Return an experiment without what no bound depends on, such as code of users that may have moved."""
    rows = [dict(row, agent=None) for row in experiment["policies"]]
    for row in (row for row in rows if ":" in row["name"]):
        row |= {"label": row["label"] or row["name"], "name": _FIRST_COME, "params": {}}
    kept = {key: value for key, value in experiment.items() if key not in _RESULTS_ONLY} | {"policies": rows}
    if kept["cluster"].get("groups"):
        kept["cluster"] = {k: v for k, v in kept["cluster"].items() if k not in ("nodes", "gpus_per_node", "gpu_type")}
    return kept


def distances(run: Run, bounds: Sequence[Bound]) -> list[Distance]:
    """Compare a run's cells with the bounds of their jobs; raises `InputError` if a cell has none."""
    by_place = {(label, repr(dict(one.point)), one.seed, one.workload): one for one in bounds for label in one.policies}
    means: dict[tuple[str, int, str], float] = {}
    found = []
    for cell in run.cells:
        place = (repr(dict(cell.point)), cell.seed, cell.workload_name)
        bound = by_place.get((cell.policy, *place))
        if bound is None:
            raise input_error(cell.folder, "is not a cell of the experiment that its run names", "run it again")
        one = _distance(cell, bound)
        found.append(one)
        if cell.policy_name == _FIRST_COME:
            means[place] = one.mean_jct_s
    return [_with_way(one, means) for one in found]


def _distance(cell: Cell, bound: Bound) -> Distance:
    jobs = cell.jobs
    mean_s = float(jobs["jct_s"].mean())
    if bound.refused:
        return Distance(cell.policy, bound, mean_s, unknown=bound.refused)
    if cell.manifest.get("jobs_hash") != bound.jobs_hash:
        return Distance(cell.policy, bound, mean_s, unknown="its jobs are no longer those that the experiment draws")
    if len(jobs) != bound.jobs or (jobs["status"] == "Cancelled").any():
        return Distance(cell.policy, bound, mean_s, unknown="it did not run all jobs to their end")
    wait_s = float(jobs["queueing_s"].mean())
    return Distance(
        cell.policy,
        bound,
        mean_s,
        jct=_above(mean_s, bound.mean_jct_s),
        makespan=_above(float(jobs["end_time_s"].max()), bound.makespan_s),
        wait=_above(wait_s, bound.mean_wait_s),
        gpu_cost=None if cell.summary.get("deadlines_missed") else _above(_cost(cell), bound.gpu_cost),
    )


def _cost(cell: Cell) -> float:
    return cell.summary.get("gpu_cost", 0.0)


def _above(value: float, least: float | None) -> float | None:
    return value / least - 1 if least else None


def _with_way(one: Distance, means: Mapping[tuple[str, int, str], float]) -> Distance:
    first_s = means.get((repr(dict(one.bound.point)), one.bound.seed, one.bound.workload))
    if first_s is None or one.jct is None or first_s <= one.bound.mean_jct_s:
        return one
    return replace(one, way=share_of_way([one.mean_jct_s], [first_s], [one.bound.mean_jct_s]))
