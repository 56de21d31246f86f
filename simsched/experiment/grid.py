"""The grid of an experiment: which cells there are, what determines each, and what each is called."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from simsched.agent import registry as agent_registry
from simsched.agent.agent import AgentFactory
from simsched.applications.catalogue import ApplicationsOptions
from simsched.closed_loop.hyperparameter_tuning import TuningOptions, tuning_identity
from simsched.engine import SEMANTICS
from simsched.engine.options import EngineOptions
from simsched.errors import InputError, Problem, input_error, nearest
from simsched.experiment.inputs import CellInputs
from simsched.experiment.policy_params import full_params, input_files, make_agents, make_policy, takes_diagnostics
from simsched.experiment.spec import ExperimentSpec, PolicySpec
from simsched.experiment.validation import Experiment
from simsched.model.application import ApplicationSource
from simsched.model.cluster import Cluster
from simsched.model.job import JobSpec
from simsched.model.placement import Site
from simsched.plugins import source_hash
from simsched.policy import Policy
from simsched.results.schema import SCHEMA_VERSION

#: The swept key under which the files of a folder of workloads appear; they count as replications beside the seed.
WORKLOAD_FILE = "workload"

_CODE = ("agent", "model", "policy")


@dataclass(frozen=True)
class AgentChoice:
    """The agents that an experiment names for a policy, instead of its own."""

    name: str
    params: Mapping[str, Any]

    def make(self, folder: Path) -> AgentFactory:
        """Make the agents of one run; a relative file is looked up in `folder`."""
        return make_agents(self.name, self.params, folder)


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
    node_price_per_h: float | None = None
    tuning: TuningOptions | None = None
    agent: AgentChoice | None = None


@dataclass(frozen=True)
class GridCell:
    """One cell as the experiment names it; several may share one task, where a swept key does not concern a policy."""

    label: str
    policy: str
    seed: int
    point: Mapping[str, Any]
    task: Task

    @property
    def name(self) -> str:
        """Name the cell in a message: `pollux, seed 3, load=2.0`."""
        parts = [self.label, f"seed {self.seed}", *(f"{key.rsplit('.', 1)[-1]}={v}" for key, v in self.point.items())]
        return ", ".join(parts)


@dataclass(frozen=True)
class Grid:
    """All cells of an experiment in a fixed order: points of the sweep, then workload files, policies, seeds."""

    experiment: Experiment
    cells: tuple[GridCell, ...]
    labels: tuple[str, ...] = ()
    results_name: str = ""

    @property
    def folder_name(self) -> str:
        """Name the folder of the run; by default as the experiment."""
        return self.results_name or self.experiment.spec.name

    def select(self, labels: Sequence[str]) -> Grid:
        """Wish to run only the policies of these labels (none given: all); raises `InputError` for other labels."""
        known = {cell.label for cell in self.cells}
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


def make_grid(experiment: Experiment, progress: Callable[[int], None] | None = None) -> Grid:
    """Resolve every cell of an experiment: read the data, draw the workloads, hash what determines the result.

    `progress` is told the number of cells resolved so far. Raises `InputError` for unreadable data and for jobs that
    could never run.
    """
    maker = _Maker(experiment, CellInputs())
    cells: list[GridCell] = []
    for cell in maker.cells():
        cells.append(cell)
        if progress is not None:
            progress(len(cells))
    maker.raise_problems()
    return Grid(experiment, tuple(cells))


class _Maker:
    """Makes the cells; what is equal for several of them is read and hashed once."""

    def __init__(self, experiment: Experiment, inputs: CellInputs) -> None:
        self._experiment = experiment
        self._inputs = inputs
        self._sources = {name: source_hash(policy) for name, policy in experiment.policies.items()}
        self._code = _code_hash()
        self._checked: set[tuple[Any, ...]] = set()
        self._problems: dict[Problem, None] = {}

    def cells(self) -> Iterator[GridCell]:
        for point in self._experiment.points:
            for file in self._inputs.workload_files(point.spec.workload):
                values = dict(point.values) | ({WORKLOAD_FILE: Path(file).stem} if file else {})
                for policy in point.spec.policies:
                    for seed in point.spec.seeds:
                        task = self._task(point.spec, policy, seed, file)
                        yield GridCell(policy.shown_as, policy.name, seed, values, task)

    def raise_problems(self) -> None:
        """Raise what was found about the jobs of all cells."""
        if self._problems:
            raise InputError(*self._problems)

    def _task(self, spec: ExperimentSpec, policy: PolicySpec, seed: int, file: str) -> Task:
        kind = self._experiment.policies[policy.name]
        diagnostics = spec.diagnostics if takes_diagnostics(kind) else ()
        options = EngineOptions(**spec.engine_of(policy).model_dump())
        cluster = spec.cluster.build()
        workload = spec.workload_of(policy)
        jobs, jobs_hash = self._jobs(spec, policy, seed, file)
        made = make_policy(kind, policy.params, diagnostics)
        self._check(made, cluster, jobs, spec.applications)
        about: dict[str, Any] = {
            "experiment": spec.name,
            "seed": seed,
            "policy": {
                "name": policy.name,
                "class": _class_name(kind),
                "params": full_params(kind, policy.params, diagnostics),
            },
            "policy_source": self._sources[policy.name],
            "policy_needs": sorted(signal.name for signal in made.signals),
            "diagnostics": list(diagnostics),
            "cluster": _groups(cluster),
            "engine": asdict(options),
            "engine_semantics": SEMANTICS,
            "workload": {"name": Path(file).stem if file else self._inputs.workload_name(workload)},
            "jobs": len(jobs),
            "jobs_hash": jobs_hash,
            "applications_hash": self._inputs.applications_hash(spec.applications),
            "code_hash": self._code,
            "results_schema": SCHEMA_VERSION,
        }
        if spec.tuning is not None:
            about |= {"tuning": tuning_identity(spec.tuning), "workload": {"name": "tuning"}}
        if spec.cluster.node_price_per_h is not None:
            about["node_price_per_h"] = spec.cluster.node_price_per_h
        if policy.agent is not None:
            agents = agent_registry.load(policy.agent.name, folder=self._experiment.file.parent)
            params = full_params(agents, policy.agent.params)
            about["agent"] = {"name": policy.agent.name, "params": params, "source": source_hash(agents)}
        files = input_files(kind, policy.params)
        if files:
            about["policy_files"] = {name: self._inputs.file_hash(path) for name, path in sorted(files.items())}
        key = _key(about)
        if spec.tuning is None:
            about["workload"] |= workload.model_dump()
        about["applications"] = asdict(spec.applications)
        folder = self._experiment.folders.get(policy.name, self._experiment.file.parent)
        return Task(
            key,
            policy.name,
            folder,
            policy.params,
            diagnostics,
            cluster,
            jobs,
            spec.applications,
            options,
            seed,
            about,
            spec.cluster.node_price_per_h,
            spec.tuning,
            None if policy.agent is None else AgentChoice(policy.agent.name, policy.agent.params),
        )

    def _jobs(self, spec: ExperimentSpec, policy: PolicySpec, seed: int, file: str) -> tuple[tuple[JobSpec, ...], str]:
        """Return the jobs of a cell and their hash."""
        if spec.tuning is not None:
            return self._inputs.trials(spec.tuning), ""  # what determines them is in the manifest's `tuning`
        workload = spec.workload_of(policy)
        return self._inputs.jobs(workload, file, seed, spec), self._inputs.jobs_hash(workload, file, seed, spec)

    def _check(self, policy: Policy, cluster: Cluster, jobs: tuple[JobSpec, ...], options: ApplicationsOptions) -> None:
        """Refuse, before anything runs, jobs that could never run."""
        from simsched.engine.admission import check_jobs

        what = (id(jobs), policy.rigid, cluster, options)
        if what in self._checked:
            return
        self._checked.add(what)
        applications = self._inputs.applications(options)
        try:
            check_jobs(jobs, cluster, applications, rigid=policy.rigid)
        except InputError as error:
            self._problems |= dict.fromkeys(error.problems)
            return
        self._problems |= dict.fromkeys(_speed_problems(jobs, cluster, applications))


def _speed_problems(jobs: Sequence[JobSpec], cluster: Cluster, applications: ApplicationSource) -> Iterator[Problem]:
    """Find applications whose speed on a GPU type of the cluster is not known."""
    for job in {job.application: job for job in jobs}.values():
        application = applications.for_job(job.request, job.truth)
        if application.limits is None:
            continue
        for gpu_type in cluster.gpu_types:
            try:
                application.step_time(Site((1,), gpu_type), application.limits.min_local_bsz)
            except ValueError as error:
                yield Problem("cluster.gpu_type", str(error), "name a GPU type that it knows, or other applications")


def _groups(cluster: Cluster) -> list[dict[str, Any]]:
    """Describe a cluster as runs of equal nodes, however it was written."""
    runs = itertools.groupby(cluster.nodes, key=lambda node: (node.gpus, node.gpu_type))
    return [{"nodes": len(list(run)), "gpus_per_node": gpus, "gpu_type": kind} for (gpus, kind), run in runs]


def _class_name(policy: type[Policy]) -> str:
    return policy.__qualname__


def _key(about: Mapping[str, Any]) -> str:
    """Name a cell by all that determines its tables.

    The experiment's name is not part of that, and of an input file neither is its place, only its content.
    """
    determining = {name: value for name, value in about.items() if name != "experiment"}
    determining["policy"] = {name: value for name, value in about["policy"].items() if name != "name"}
    files = about.get("policy_files", {})
    params = about["policy"]["params"].items()
    determining["policy"]["params"] = {name: value for name, value in params if name not in files}
    text = json.dumps(determining, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _code_hash() -> str:
    """Hash the code besides policy and engine on which results depend: agents, models, helpers of policies.

    The engine is left out: it states its version itself (`SEMANTICS`), so that its speed can change without its
    results being forgotten. What made the jobs needs no hash, the jobs have one.
    """
    digest = hashlib.sha256()
    package = Path(__file__).resolve().parent.parent
    for folder in _CODE:
        for path in sorted((package / folder).rglob("*.py")):
            digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
