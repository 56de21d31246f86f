"""The grid of an experiment: which cells there are, what determines each, and what each is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from simsched.agent import registry as agent_registry
from simsched.agent.agent import AgentFactory
from simsched.applications.catalogue import ApplicationsOptions
from simsched.applications.duration_by_type import with_speeds
from simsched.closed_loop.hyperparameter_tuning import TuningOptions, tuning_identity
from simsched.engine import SEMANTICS
from simsched.engine.failure_options import FailureOptions
from simsched.engine.options import EngineOptions
from simsched.errors import input_error, nearest
from simsched.experiment.cells import Lazy, Shape, spread
from simsched.experiment.checks import Checks
from simsched.experiment.failures import failure_options, identity
from simsched.experiment.identity import conditions_of_cluster, groups_of, key_of
from simsched.experiment.inputs import CellInputs
from simsched.experiment.offers import Conditions, lacking
from simsched.experiment.physics import colocation_of, engine_options
from simsched.experiment.policy_params import full_params, input_files, make_agents, make_policy, takes_diagnostics
from simsched.experiment.sources import ROOMS, code_hash, library_versions, plugin_sources
from simsched.experiment.spec import ExperimentSpec, PolicySpec, SharingSpec
from simsched.experiment.validation import Experiment, Point
from simsched.model.application import ApplicationSource
from simsched.model.cluster import Cluster
from simsched.model.job import JobSpec
from simsched.plugins import parameters
from simsched.policy import Policy
from simsched.results.version import SCHEMA_VERSION

#: The swept key under which the files of a folder of workloads appear; they count as replications beside the seed.
WORKLOAD_FILE = "workload"

#: Grids of more cells are made cell by cell when they are needed, and only some of their cells are checked.
MOST_KEPT = 10_000
_MOST_CHECKED = 200
#: Swept keys that may change how many cells a point has.
_SECTIONS = ("path", "source", "policies")


@dataclass(frozen=True)
class AgentChoice:
    """The agents that an experiment names for a policy, instead of its own; a relative file counts from `folder`."""

    name: str
    params: Mapping[str, Any]
    folder: Path

    def load(self) -> type[AgentFactory]:
        """Find the class of the agents."""
        return agent_registry.load(self.name, folder=self.folder)

    def make(self) -> AgentFactory:
        """Make the agents of one run."""
        return make_agents(self.name, self.params, self.folder)


@dataclass(frozen=True)
class Task:
    """All that is needed to run one cell, as plain values that can be sent to another process.

    `key` names the cell's folder; `about` is what its manifest says of the input. With hyper-parameter `tuning`,
    `jobs` are its trials as far as they are known beforehand.
    """

    key: str
    policy: str
    policy_folder: Path
    params: Mapping[str, Any]
    diagnostics: tuple[str, ...]
    cluster: Cluster
    jobs: tuple[JobSpec, ...]
    applications: ApplicationsOptions
    engine: EngineOptions
    seed: int
    about: Mapping[str, Any] = field(repr=False)
    tuning: TuningOptions | None = None
    agent: AgentChoice | None = None
    sharing: SharingSpec | None = None
    failures: FailureOptions | None = None
    gpu_speed: Mapping[str, float] = field(default_factory=dict)
    losses: bool = False


@dataclass(frozen=True)
class GridCell:
    """One cell as the experiment names it; several may share one task, where a swept key does not concern a policy.

    `own` are the conditions that its policy alone is under, by dotted key.
    """

    label: str
    policy: str
    seed: int
    point: Mapping[str, Any]
    task: Task
    own: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name the cell in a message: `pollux, seed 3, load=2.0`."""
        parts = [self.label, f"seed {self.seed}", *(f"{key.rsplit('.', 1)[-1]}={v}" for key, v in self.point.items())]
        return ", ".join(parts)


@dataclass(frozen=True)
class Grid:
    """All cells of an experiment in a fixed order: points of the sweep, then workload files, policies, seeds.

    `looked_into` is the number of cells made and checked beforehand: all of them where there are not too many.
    """

    experiment: Experiment
    cells: Sequence[GridCell]
    labels: tuple[str, ...] = ()
    looked_into: int = 0
    results_name: str = ""

    @property
    def folder_name(self) -> str:
        """Name the folder of the run; by default as the experiment."""
        return self.results_name or self.experiment.spec.name

    def select(self, labels: Sequence[str]) -> Grid:
        """Wish to run only the policies of these labels (none given: all); raises `InputError` for other labels."""
        specs = [point.spec for point in self.experiment.points[:1]]
        some = () if len(self.cells) > MOST_KEPT else self.cells
        known = {policy.shown_as for spec in specs for policy in spec.policies} | {cell.label for cell in some}
        unknown = [label for label in labels if label not in known]
        if unknown:
            raise input_error(
                "--policy", f"no policy of this experiment is called '{unknown[0]}'", nearest(unknown[0], known)
            )
        return replace(self, labels=tuple(labels))

    @property
    def wanted(self) -> tuple[GridCell, ...]:
        """List the cells that should be run."""
        return tuple(cell for cell in self.cells if not self.labels or cell.label in self.labels)

    @property
    def tasks(self) -> tuple[Task, ...]:
        """List the distinct tasks of the wanted cells, in the order of the cells."""
        return tuple({cell.task.key: cell.task for cell in self.wanted}.values())


def make_grid(experiment: Experiment, progress: Callable[[int, int], None] | None = None) -> Grid:
    """Resolve the cells of an experiment: read the data, draw the workloads, hash what determines the result.

    A grid of more than `MOST_KEPT` cells is lazy: a cell is made whenever it is asked for, and those that are checked
    beforehand are spread evenly over the grid. `progress` is told the number of cells resolved and how many are to be.
    Raises `InputError` for unreadable data and for jobs that could never run.
    """
    maker = _Maker(experiment, CellInputs())
    shape = maker.shape()
    total = shape.total
    lazy: Sequence[GridCell] = Lazy(total, lambda index: maker.cell(index, shape))
    kept = total <= MOST_KEPT
    chosen = spread(total, MOST_KEPT if kept else _MOST_CHECKED)
    made: list[GridCell] = []
    for index in chosen:
        made.append(lazy[index])
        if progress is not None:
            progress(len(made), len(chosen))
    maker.checks.raise_problems()
    return Grid(experiment, tuple(made) if kept else lazy, looked_into=len(made))


def look_into(
    experiment: Experiment, progress: Callable[[int, int], None] | None = None
) -> tuple[int, tuple[GridCell, ...]]:
    """Check an experiment without making all of its cells; returns their number and those that were made.

    All are made of a grid of at most `_MOST_CHECKED` cells on a trace that is read, else the first seed's of each
    point, policy and workload file: a seed has a year of its own of the generated trace, which takes a while to draw.
    Even of that year only the first weeks are drawn where they hold enough jobs, so that the cells made are like those
    of a run and not the same. Raises `InputError` as `make_grid` does.
    """
    maker = _Maker(experiment, CellInputs(alike=True))
    shape = maker.shape()
    drawn = experiment.spec.workload.file is None
    step = len(experiment.spec.seeds) if drawn or shape.total > _MOST_CHECKED else 1
    chosen = [step * index for index in spread(shape.total // step, _MOST_CHECKED)]
    made: list[GridCell] = []
    for index in chosen:
        made.append(maker.cell(index, shape))
        if progress is not None:
            progress(len(made), len(chosen))
    maker.checks.raise_problems()
    return shape.total, tuple(made)


class _Maker:
    """Makes the cells; what is equal for several of them is read and hashed once."""

    def __init__(self, experiment: Experiment, inputs: CellInputs) -> None:
        self._experiment = experiment
        self._inputs = inputs
        self._sources = {name: plugin_sources(policy) for name, policy in experiment.policies.items()}
        self._point: tuple[int, Point, tuple[str, ...]] | None = None
        self._sources_of_applications: dict[object, ApplicationSource] = {}
        self.checks = Checks()

    def shape(self) -> Shape:
        """Return the number of cells at each point; `InputError` where that cannot be told without making them all."""
        points = self._experiment.points
        if len(points) > MOST_KEPT:
            whole = [key for key in points[0].values if key.split(".")[-1] in _SECTIONS or key == "workload"]
            if whole:
                message = f"{len(points)} points are too many where '{whole[0]}' is swept"
                raise input_error("sweep", message, f"make at most {MOST_KEPT} points of it")
            return Shape([self._cells_at(0)], len(points))
        return Shape([self._cells_at(number) for number in range(len(points))])

    def _cells_at(self, number: int) -> int:
        spec, files = self._at(number)[1:]
        return len(files) * len(spec.policies) * len(spec.seeds)

    def _at(self, number: int) -> tuple[Mapping[str, Any], ExperimentSpec, tuple[str, ...]]:
        """Return the values, the specification and the workload files of a point; the last one is kept."""
        if self._point is None or self._point[0] != number:
            point = self._experiment.points[number]
            self._point = (number, point, self._inputs.workload_files(point.spec.workload))
        return self._point[1].values, self._point[1].spec, self._point[2]

    def cell(self, index: int, shape: Shape) -> GridCell:
        """Make a cell by its place in the order of the grid."""
        number, rest = shape.place(index)
        point, spec, files = self._at(number)
        rest, seed = divmod(rest, len(spec.seeds))
        file, policy_number = divmod(rest, len(spec.policies))
        values = dict(point) | ({WORKLOAD_FILE: Path(files[file]).stem} if files[file] else {})
        policy = spec.policies[policy_number]
        task = self._task(spec, policy, spec.seeds[seed], files[file])
        return GridCell(policy.shown_as, policy.name, spec.seeds[seed], values, task, spec.own_conditions(policy))

    def _task(self, spec: ExperimentSpec, policy: PolicySpec, seed: int, file: str) -> Task:
        kind = self._experiment.policies[policy.name]
        diagnostics = spec.diagnostics if takes_diagnostics(kind) else ()
        params = spec.params_of(policy, {one.name for one in parameters(kind)})
        made = make_policy(kind, params, diagnostics)
        agents = self._agents(policy)
        workload = spec.workload_of(policy)
        jobs, jobs_hash = self._jobs(spec, policy, seed, file)
        task = Task(
            key="",
            policy=policy.name,
            policy_folder=self._experiment.folders.get(policy.name, self._experiment.file.parent),
            params=params,
            diagnostics=diagnostics,
            cluster=spec.cluster.build(),
            jobs=jobs,
            applications=spec.applications,
            engine=engine_options(spec.engine_of(policy)),
            seed=seed,
            about={},
            tuning=spec.tuning,
            agent=agents,
            sharing=spec.engine_of(policy).sharing,
            gpu_speed=dict(workload.gpu_speed),
            losses=spec.losses,
        )
        task = replace(task, failures=failure_options(spec.failures, task.cluster))
        self.checks.check(
            made,
            None if agents is None else agents.make(),
            task.cluster,
            task.engine,
            jobs,
            self._applications(task),
            policy.model_dump_json(),
            jobs_hash,
            file or workload.path or workload.source,
        )
        name = Path(file).stem if file else self._inputs.workload_name(workload)
        about = self._about(task, spec, kind, made) | {"workload": {"name": name}, "jobs_hash": jobs_hash}
        about |= self._conditions(task, spec)
        key = key_of(about)
        about["policy_knows"] = {signal.name: str(signal.known) for signal in sorted(made.signals, key=str)}
        if spec.tuning is None:
            about["workload"] |= workload.model_dump()
            about["left_out"] = self._inputs.left_out(workload, file, task.seed, spec)
        about["applications"] = asdict(spec.applications)
        met = Conditions(task.cluster, task.engine, jobs, self._applications(task), params)
        about["without"] = lacking(made, met)
        return replace(task, key=key, about=about)

    def _about(self, task: Task, spec: ExperimentSpec, kind: type[Policy], made: Policy) -> dict[str, Any]:
        """Return what determines every cell: policy, cluster, engine, jobs, and the sources of it all."""
        full = full_params(kind, task.params, task.diagnostics)
        return {
            "experiment": spec.name,
            "seed": task.seed,
            "policy": {"name": task.policy, "class": kind.__qualname__, "params": full},
            "policy_source": self._sources[task.policy],
            "libraries": library_versions(),
            "policy_needs": sorted(signal.name for signal in made.signals),
            "diagnostics": list(task.diagnostics),
            "cluster": groups_of(task.cluster),
            "engine": asdict(task.engine),
            "engine_semantics": SEMANTICS,
            "jobs": len(task.jobs),
            "applications_hash": self._inputs.applications_hash(task.applications),
            "code_hash": code_hash(),
            "code_rooms": list(ROOMS),
            "results_schema": SCHEMA_VERSION,
        }

    def _conditions(self, task: Task, spec: ExperimentSpec) -> dict[str, Any]:
        """Return what determines a cell of the parts of an experiment that most leave out."""
        about: dict[str, Any] = conditions_of_cluster(spec.cluster, task.cluster)
        if task.gpu_speed:
            about["gpu_speed"] = dict(task.gpu_speed)
        if spec.losses:
            about["losses"] = True
        if spec.tuning is not None:
            about |= {"tuning": tuning_identity(spec.tuning), "workload": {"name": "tuning"}}
        sharing = task.sharing
        if sharing is not None and sharing.max_jobs > 1:
            colocation_of(sharing)  # refuses a bad table before anything runs
            about["sharing"] = sharing.model_dump(exclude={"pairs_path"})
            if sharing.pairs_path is not None:
                about["sharing"]["pairs"] = self._inputs.file_hash(sharing.pairs_path)
        if task.failures is not None:
            about["failures"] = identity(task.failures)
            if spec.failures.outages_path is not None:
                about["failures"]["outages"] = self._inputs.file_hash(spec.failures.outages_path)
        if task.agent is not None:
            kind = task.agent.load()
            given = full_params(kind, task.agent.params)
            about["agent"] = {"name": task.agent.name, "params": given, "source": plugin_sources(kind)}
        files = input_files(self._experiment.policies[task.policy], task.params)
        if files:
            about["policy_files"] = {name: self._inputs.file_hash(path) for name, path in sorted(files.items())}
        return about

    def _agents(self, policy: PolicySpec) -> AgentChoice | None:
        """Return the agents that the experiment names for a policy, None where it names none."""
        if policy.agent is None:
            return None
        folder = self._experiment.agent_folders.get(policy.agent.name, self._experiment.file.parent)
        return AgentChoice(policy.agent.name, policy.agent.params, folder)

    def _jobs(self, spec: ExperimentSpec, policy: PolicySpec, seed: int, file: str) -> tuple[tuple[JobSpec, ...], str]:
        """Return the jobs of a cell and their hash."""
        if spec.tuning is not None:
            return self._inputs.trials(spec.tuning), ""  # what determines them is in the manifest's `tuning`
        workload = spec.workload_of(policy)
        return self._inputs.jobs(workload, file, seed, spec), self._inputs.jobs_hash(workload, file, seed, spec)

    def _applications(self, task: Task) -> ApplicationSource:
        """Return the applications of a cell, the same object for equal ones."""
        key = (task.applications, tuple(sorted(task.gpu_speed.items())), task.cluster)
        if key not in self._sources_of_applications:
            read = self._inputs.applications(task.applications)
            self._sources_of_applications[key] = with_speeds(read, task.gpu_speed, task.cluster)
        return self._sources_of_applications[key]
