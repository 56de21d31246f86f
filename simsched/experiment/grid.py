"""The grid of an experiment: its cells, with their keys and names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from simsched.applications import with_speeds
from simsched.errors import InputError, Problem, input_error, nearest
from simsched.experiment.checks import Checks, Conditions, lacking
from simsched.experiment.cluster import ClusterSpec, check_horizon, market_of
from simsched.experiment.failures import failure_options
from simsched.experiment.inputs import CellInputs, Gathered, leave_out_large, offered_load
from simsched.experiment.physics import colocation_of
from simsched.experiment.spec import ExperimentSpec, PolicySpec, WorkloadSpec
from simsched.experiment.task import (
    AgentChoice,
    Choice,
    Chosen,
    PolicyChoice,
    ProcessChoice,
    Task,
    about_task,
    costs_of,
    digest_by_name,
    digest_of,
    key_of,
)
from simsched.experiment.validation import Experiment, Point
from simsched.model import ApplicationSource, Cluster
from simsched.policy import Policy
from simsched.results.stored import WORKLOAD_FILE

_MOST_CELLS = 1_000_000
#: Most cells that a check creates.
_MOST_CHECKED = 200
#: Most cells whose workloads are drawn for a check if bounds are inconclusive.
_MOST_DRAWN = 200


@dataclass(frozen=True)
class GridCell:
    """A cell as the experiment names it; several may share one task if a swept key does not concern a policy.

    `own` are its policy's own conditions by dotted key.
    """

    label: str
    policy: str
    seed: int
    point: Mapping[str, Any]
    task: Task
    own: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name the cell in messages: `pollux, seed 3, load=2.0`."""
        parts = [self.label, f"seed {self.seed}", *(f"{key.rsplit('.', 1)[-1]}={v}" for key, v in self.point.items())]
        return ", ".join(parts)


@dataclass(frozen=True)
class Grid:
    """All cells of an experiment in order: sweep points, then workload files, policies, seeds.

    `refused` has the policies, by label, whose cells were left out because they cannot run, with the reasons.
    """

    experiment: Experiment
    cells: Sequence[GridCell]
    labels: tuple[str, ...] = ()
    results_name: str = ""
    refused: Mapping[str, tuple[Problem, ...]] = field(default_factory=dict)

    @property
    def folder_name(self) -> str:
        """Name the run's folder, by default after the experiment."""
        return self.results_name or self.experiment.spec.name

    def select(self, labels: Sequence[str]) -> Grid:
        """Restrict the grid to policies with these labels (none given: all); raises `InputError` for unknown labels."""
        _check_labels(self.experiment, labels)
        return replace(self, labels=tuple(labels))

    @property
    def wanted(self) -> tuple[GridCell, ...]:
        """List the cells to run."""
        return tuple(cell for cell in self.cells if not self.labels or cell.label in self.labels)

    @property
    def tasks(self) -> tuple[Task, ...]:
        """List the distinct tasks of the wanted cells, in order."""
        return tuple({cell.task.key: cell.task for cell in self.wanted}.values())


def _check_labels(experiment: Experiment, labels: Sequence[str]) -> None:
    known = {policy.shown_as for point in experiment.points for policy in point.spec.policies}
    unknown = [label for label in labels if label not in known]
    if unknown:
        message = f"no policy of this experiment is called '{unknown[0]}'"
        raise input_error("--policy", message, nearest(unknown[0], known))


def make_grid(
    experiment: Experiment,
    progress: Callable[[int, int], None] | None = None,
    *,
    labels: Sequence[str] = (),
    leave_out: bool = False,
) -> Grid:
    """Create the cells of an experiment: read data, draw workloads, hash what determines results.

    All cells are created, those of policies with other `labels` too. `progress` receives the cells done and the total.
    Raises `InputError` for unknown labels, unreadable data and jobs that can never run; with `leave_out` the policies
    that cannot run them are left out instead, and named in `refused`.
    """
    _check_labels(experiment, labels)
    maker = _Maker(experiment, CellInputs(), Checks(failures=leave_out))
    places = maker.places()
    made: list[GridCell] = []
    refused: dict[str, tuple[Problem, ...]] = {}
    for place in places:
        made.append(maker.cell(place))
        if leave_out and maker.checks.problems:
            refused.setdefault(made[-1].label, maker.checks.problems)
            maker.checks = Checks(failures=True)
        if progress is not None:
            progress(len(made), len(places))
    maker.checks.raise_problems()
    cells = tuple(cell for cell in made if cell.label not in refused)
    return Grid(experiment, cells, tuple(labels), refused=refused)


def spread(length: int, most: int) -> list[int]:
    """Pick at most `most` evenly spread indices below `length`, first and last included."""
    if length <= most:
        return list(range(length))
    return sorted({round(step * (length - 1) / (most - 1)) for step in range(most)})


def look_into(
    experiment: Experiment, progress: Callable[[int, int], None] | None = None
) -> tuple[int, tuple[GridCell, ...]]:
    """Check an experiment without creating all cells; returns their number and that of the created ones.

    On a recorded trace, creates up to `_MOST_CHECKED` cells; otherwise only the first seed's cell of each point, policy
    and workload file, from the first weeks of a generated year if those hold enough jobs. Other seeds are checked by
    bounds over the recipe, and by drawing if the bounds are inconclusive. Reads no sources: the tasks' keys distinguish
    these cells but name no folder, and `about` has only `without`. Raises `InputError` as `make_grid` does, and for any
    exception of a policy before its first decision.
    """
    maker = _Maker(experiment, CellInputs(alike=True), Checks(failures=True), with_sources=False)
    places = maker.places()
    seeds = len(experiment.spec.seeds)
    drawn = experiment.spec.workload.file is None
    step = seeds if drawn or len(places) > _MOST_CHECKED else 1
    chosen = [step * index for index in spread(len(places) // step, _MOST_CHECKED)]
    made: list[GridCell] = []
    for index in chosen:
        made.append(maker.cell(places[index]))
        if progress is not None:
            progress(len(made), len(chosen))
    if drawn and maker.checks.problems:  # other jobs of a run need not have it
        maker = _Maker(experiment, CellInputs(), Checks(failures=True), with_sources=False)
        made = [maker.cell(places[index]) for index in chosen]
    maker.checks.raise_problems()
    if drawn or step > 1:
        firsts = [index // seeds * seeds for index in chosen]
        _check_unseen(maker, [places[first : first + seeds] for first in firsts])
    return len(places), tuple(made)


def _check_unseen(maker: _Maker, groups: Sequence[Sequence[_Place]]) -> None:
    """Check groups of cells that differ by seed, by bounds on what a seed may draw.

    If bounds are inconclusive, creates the cells as in a run, or raises the possible problems if there are too many.
    """
    doubtful = [(group, problems) for group in groups if (problems := maker.doubts(group[0]))]
    if sum(len(group) for group, _ in doubtful) > _MOST_DRAWN:
        raise InputError(*dict.fromkeys(problem for _, problems in doubtful for problem in problems))
    exact = _Maker(maker.experiment, CellInputs(), maker.checks, with_sources=False)
    for group, _ in doubtful:
        for place in group:
            exact.cell(place)
    exact.checks.raise_problems()


class _Place(NamedTuple):
    """A cell's place in the grid, with the file of a folder of workloads."""

    point: Point
    file: str
    policy: PolicySpec
    seed: int


def _cluster_of(spec: ClusterSpec) -> tuple[Cluster, str]:
    """Return a cluster and its digest."""
    cluster = spec.build()
    return cluster, digest_of(cluster)


class _Maker:
    """Creates cells; reads and hashes shared data only once."""

    def __init__(
        self, experiment: Experiment, inputs: CellInputs, checks: Checks, *, with_sources: bool = True
    ) -> None:
        self.experiment = experiment
        self.checks = checks
        self._with_sources = with_sources
        self._inputs = inputs
        self._sources_of_applications: dict[object, ApplicationSource] = {}
        self._cluster = cache(_cluster_of)  # the same object for equal clusters
        self._digest_of = cache(digest_of)
        self._choices: dict[str, Choice] = {}
        self._loads: dict[tuple[object, ...], float | None] = {}

    def places(self) -> list[_Place]:
        """List the places of all cells; raises `InputError` if there are too many."""
        at = [(point, self._inputs.workload_files(point.spec.workload)) for point in self.experiment.points]
        total = sum(len(files) * len(point.spec.policies) * len(point.spec.seeds) for point, files in at)
        if total > _MOST_CELLS:
            message = f"these are {total} cells, more than the {_MOST_CELLS} that an experiment may have"
            raise input_error("seeds", message, "take fewer seeds, or sweep fewer values")
        return [
            _Place(point, *rest)
            for point, files in at
            for rest in product(files, point.spec.policies, point.spec.seeds)
        ]

    def cell(self, place: _Place) -> GridCell:
        """Create the cell of a place."""
        point, file, policy, seed = place
        values = dict(point.values) | ({WORKLOAD_FILE: Path(file).stem} if file else {})
        task = self._task(point.spec, policy, seed, file)
        return GridCell(policy.shown_as, policy.name, seed, values, task, point.spec.own_conditions(policy))

    def doubts(self, place: _Place) -> tuple[Problem, ...]:
        """Return possible problems of a cell with other seeds, judged by the hardest jobs that any seed may draw."""
        spec, file, policy = place.point.spec, place.file, place.policy
        workload = spec.workload_of(policy)
        if file or spec.tuning is not None or (workload.seed is not None and workload.file is not None):
            return ()
        try:
            drawn = self._inputs.extremes(workload, spec)
        except InputError as error:
            return error.problems
        if drawn is None:
            message = "whether there are enough jobs depends on the seed"
            return (Problem("workload", message, "ask for fewer, or take a longer stretch"),)
        checks = Checks(failures=True)
        if drawn.jobs:
            self._check(self._given(spec, policy, 0, drawn), spec, policy, drawn, "", checks)
        return tuple(replace(one, where=f"{one.where} (which a seed may draw)") for one in checks.problems)

    def _task(self, spec: ExperimentSpec, policy: PolicySpec, seed: int, file: str) -> Task:
        workload = spec.workload_of(policy)
        drawn = self._drawn(spec, workload, seed, file)
        task = self._given(spec, policy, seed, drawn)
        made = self._check(task, spec, policy, drawn, file, self.checks)
        if self.checks.problems:  # the grid is rejected; later steps may need attributes that the jobs lack
            return task
        digests = {
            "cluster": self._cluster(spec.cluster)[1],
            "jobs": drawn.digest,
            "applications": self._digest_of(task.applications),
        }
        met = Conditions(task.cluster, task.engine, task.jobs, self._applications(task), task.policy.params)
        without = lacking(made, met)
        if not self._with_sources:
            named = dict.fromkeys(("agent", "processes", "code"), "any")
            named["policy"] = digest_of([digest_by_name(one) for one in task.plugins])
            return replace(task, key=key_of(task, digests | named), about={"without": without})
        plugins = [self._choice(one) for one in task.plugins]
        digests["policy"] = plugins[0].digest
        name = Path(file).stem if file else self._inputs.workload_name(workload)
        about = {"experiment": spec.name, **about_task(task, made, plugins, digests), "without": without}
        if spec.tuning is None:
            about |= {"workload": {"name": name, **workload.model_dump()}, "left_out": drawn.left_out}
            about |= {"offered_load": self._offered(task, drawn.digest)}
        else:
            about["workload"] = {"name": "tuning"}
        return replace(task, key=key_of(task, digests), about=about)

    def _offered(self, task: Task, digest: str) -> float | None:
        """Return the offered load of a cell's jobs, computed once for equal jobs."""
        what = digest, id(task.cluster), task.applications, tuple(sorted(task.gpu_speed.items())), task.engine
        if what not in self._loads:
            parts = task.engine.gpu_shares
            self._loads[what] = offered_load(task.jobs, self._applications(task), task.cluster, parts=parts)
        return self._loads[what]

    def _given(self, spec: ExperimentSpec, policy: PolicySpec, seed: int, drawn: Gathered) -> Task:
        engine, cluster = spec.engine_of(policy), self._cluster(spec.cluster)[0]
        traits, agent = self.experiment.policies[policy.name].traits, policy.agent
        market = market_of(spec.cluster, engine.tick_s)
        if market is not None:
            check_horizon(market, drawn.jobs)
        diagnostics = spec.diagnostics if traits.diagnostics else ()

        def folder(name: str) -> Path:
            return self.experiment.folders.get(name, self.experiment.file.parent)

        return Task(
            policy=PolicyChoice(policy.name, folder(policy.name), spec.params_of(policy, traits), diagnostics),
            cluster=cluster,
            jobs=drawn.jobs,
            applications=spec.applications,
            engine=engine.build(),
            seed=seed,
            tuning=spec.tuning,
            agent=None if agent is None else AgentChoice(agent.name, folder(agent.name), agent.params),
            sharing=engine.sharing,
            failures=failure_options(spec.failures, cluster, market),
            gpu_speed=spec.workload_of(policy).gpu_speed,
            losses=spec.losses,
            costs=costs_of(spec.cluster),
            processes=tuple(ProcessChoice(one.use, folder(one.use), one.params) for one in spec.processes),
            cuts=drawn.cuts,
        )

    def _check(
        self, task: Task, spec: ExperimentSpec, policy: PolicySpec, drawn: Gathered, file: str, checks: Checks
    ) -> Policy:
        """Check a task before the run; the returned policy must not be reused."""
        workload = spec.workload_of(policy)
        colocation_of(task.sharing)  # rejects a bad table
        made: Policy = task.policy.make()
        checks.check(
            task,
            made,
            self._applications(task),
            policy.model_dump_json(),
            drawn.digest,
            file or workload.path or workload.source,
            leave_out_large(workload),
        )
        if spec.shards.parts > 1:
            checks.note(why_whole(task, made, spec))
        return made

    def _choice(self, choice: Chosen) -> Choice:
        what = repr(choice)
        if what not in self._choices:
            self._choices[what] = Choice.of(choice)
        return self._choices[what]

    def _drawn(self, spec: ExperimentSpec, workload: WorkloadSpec, seed: int, file: str) -> Gathered:
        if spec.tuning is not None:
            return self._inputs.trials(spec.tuning)
        return self._inputs.gathered(workload, file, seed, spec)

    def _applications(self, task: Task) -> ApplicationSource:
        """Return a cell's applications, the same object for equal ones."""
        key = (task.applications, tuple(sorted(task.gpu_speed.items())), task.cluster)
        if key not in self._sources_of_applications:
            read = self._inputs.applications(task.applications)
            self._sources_of_applications[key] = with_speeds(read, task.gpu_speed, task.cluster)
        return self._sources_of_applications[key]


def why_whole(task: Task, policy: Policy, spec: ExperimentSpec) -> Iterator[Problem]:
    """Yield problems with parts of a cell that need all of its jobs in one simulation."""
    remedy = "leave the section 'shards' out"
    if not policy.forgets:
        message = f"the policy '{policy.name}' may remember completed jobs, so its jobs cannot be cut"
        yield Problem("shards", message, f"{remedy}; a policy of your own that forgets them declares 'forgets = True'")
    whole = {
        "tuning": task.tuning is not None,
        "failures": task.failures is not None,
        "finish_time_fairness": spec.finish_time_fairness is not None,
        "losses": task.losses,
        "engine.initial_nodes": task.engine.initial_nodes is not None,
        "policies.agent": task.agent is not None,
    }
    for key, there in whole.items():
        if there:
            yield Problem("shards", f"'{key}' needs all jobs in one simulation", f"{remedy}, or '{key}'")
