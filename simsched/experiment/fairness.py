"""Compares every finished job with its solo run (see `simsched.results.fairness`); no cell depends on it.

The engine runs the jobs alone on otherwise idle GPUs, so a solo job also waits for the policy's next decision and pays
the restart delay.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd

from simsched.agent import Agent, Prior, Shared, fixed_agent, goodput_agent, offline_priors
from simsched.applications import catalogue
from simsched.engine import EngineOptions, MemoryRecorder, simulate
from simsched.errors import input_error
from simsched.experiment.grid import Grid, GridCell, make_grid
from simsched.experiment.running.cell import NO_LIMITS
from simsched.experiment.running.limits import Limits
from simsched.experiment.running.pool import Listener
from simsched.experiment.running.runner import RunResult, run_grid
from simsched.experiment.running.store import Store
from simsched.experiment.spec import ExperimentSpec, FairnessSpec, PolicySpec
from simsched.experiment.task import Task
from simsched.model import Allocation, Application, ApplicationFacts, ApplicationSource, Cluster, JobRequest, JobSpec
from simsched.model.placement import consolidated_shape
from simsched.model.tabulated import TabulatedJob
from simsched.policy import Decision, Policy, Traits, View, registry
from simsched.results import RUN_FILE, read_table
from simsched.results.fairness import exclusive_slowdown, fairness_table, mean_contention, time_on_share, write_fairness
from simsched.results.metric import Floats
from simsched.results.writer import write_json
from simsched.sources import code

#: `best`: the batch follows the known goodput; `submitted`: it stays as submitted.
Batch = Literal["best", "submitted"]


@dataclass
class _SoloPolicy(Policy):
    """Gives the only job all GPUs at its start, on as few nodes as possible."""

    name: ClassVar[str] = "solo"
    traits: ClassVar[Traits] = Traits(interval="interval_s", rigid=False)

    allocation: Allocation = ()
    interval_s: float | None = None
    batch: Batch = "best"
    shared: Shared = field(default_factory=Shared)
    priors: Mapping[str, Prior] = field(default_factory=dict)

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        """Adapt the batch to a known goodput, or keep it."""
        if self.batch == "submitted" or facts.limits is None:
            return fixed_agent(request, facts)
        return goodput_agent(request, facts, shared=self.shared, priors=self.priors)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Start the job, then leave it alone."""
        waiting = [job.id for job in view.jobs.values() if not job.running]
        return Decision.change(dict.fromkeys(waiting, self.allocation))


class SoloRuns:
    """Completion times of jobs alone on GPUs like the first node's; equal runs are simulated once."""

    def __init__(self, cluster: Cluster, applications: ApplicationSource, options: EngineOptions) -> None:
        """Prepare for a cluster; raises `InputError` if it mixes GPU types."""
        if len(cluster.gpu_types) > 1:
            types = ", ".join(cluster.gpu_types)
            message = f"an equal share of GPUs of several types ({types}) is not defined"
            raise input_error("finish_time_fairness", message, "leave it out, or take the definition 'gavel'")
        self._node = cluster.nodes[0]
        self._total_gpus = cluster.total_gpus
        self._applications = applications
        self._options = replace(options, interference=0.0, initial_nodes=None)
        self._known: dict[tuple[object, ...], float] = {}
        self._priors: dict[str, Mapping[str, Prior]] = {}
        self._shared = Shared()

    def profile_s(self, job: JobSpec) -> float:
        """Return a job's profiled seconds alone, without delays; raises `InputError` without a table of rates."""
        app = self._applications.for_job(job.request, job.truth)
        if not isinstance(app, TabulatedJob):
            message = f"job '{job.id}' ({app.name}) has no profile"
            raise input_error("finish_time_fairness.batch", message, "take 'best' or 'submitted'")
        return sum(app.profile_s(self._node.gpu_type))

    def seconds(self, job: JobSpec, gpus: int, batch: Batch, interval_s: float | None) -> float:
        """Return a job's completion time alone on `gpus` GPUs, or as many as it can use.

        `interval_s` is the policy's (None: it decides at events). Without batch size a job runs on its requested GPUs;
        on fewer, its work takes proportionally longer.
        """
        app = self._applications.for_job(job.request, job.truth)
        wait_s = 0 if interval_s is None else max(-(-job.submit_time_s // interval_s), 1) * interval_s
        wait_s -= 0 if interval_s is None else job.submit_time_s
        if app.limits is None:
            longer = replace(job, duration_s=round(job.duration_s * max(1.0, job.num_gpus / gpus)))
            return wait_s + self._run(longer, app, min(job.num_gpus, self._total_gpus), batch, interval_s)
        return wait_s + self._run(job, app, min(gpus, self._most(job, app, batch)), batch, interval_s)

    def _most(self, job: JobSpec, app: Application, batch: Batch) -> int:
        assert app.limits is not None
        submitted = job.batch_size or app.limits.init_batch_size
        examples = app.fixed_batch_size or (app.limits.max_batch_size if batch == "best" else submitted)
        most = max(min(examples // app.limits.min_local_bsz, self._total_gpus), 1)
        return most if app.max_gpus is None else min(most, app.max_gpus)

    def _run(self, job: JobSpec, app: Application, gpus: int, batch: Batch, interval_s: float | None) -> float:
        """Simulate the job, submitted exactly at a decision so that equal jobs give equal times."""
        if app.limits is None:
            kind: object = job.duration_s, job.total_steps, job.batch_size, job.batch_rule
        else:
            kind = batch if batch == "best" else job.batch_size
        what = job.application, kind, gpus, interval_s
        if what not in self._known:
            shape = consolidated_shape(gpus, self._node.gpus)
            policy = _SoloPolicy(tuple(enumerate(shape)), interval_s, batch, self._shared, self._prior(app, batch))
            alone = replace(job, submit_time_s=interval_s or 0)
            room = Cluster.uniform(len(shape), self._node.gpus, self._node.gpu_type)
            found = MemoryRecorder()
            simulate(room, [alone], self._applications, policy, self._options, 0, found)
            self._known[what] = found.jobs[0].jct_s
        return self._known[what]

    def _prior(self, app: Application, batch: Batch) -> Mapping[str, Prior]:
        if batch != "best" or app.limits is None:
            return {}
        if app.name not in self._priors:
            self._priors[app.name] = offline_priors(app, Cluster((self._node,)))
        return self._priors[app.name]


#: What creates the cells; the cell keys in the files' names already cover it.
_ISOLATED = "simsched_policies.queues.isolated:Isolated"
_COLUMNS = ("job_id", "submit_time_s", "end_time_s", "jct_s")
_BATCH_COLUMNS = ("job_id", "gpus", "batch_size", "accum_steps")


def run_with_fairness(
    grid: Grid,
    out: Path,
    workers: int = 1,
    listener: Listener | None = None,
    *,
    dask: str | None = None,
    limits: Limits = NO_LIMITS,
    in_process: bool = False,
) -> RunResult:
    """Run an experiment as `run_grid` does, and its fairness comparison if requested."""
    beside = tuple(reference_cells(grid).values())
    result = run_grid(grid, out, workers, listener, dask=dask, beside=beside, limits=limits, in_process=in_process)
    store = Store(result.folder)
    if grid.experiment.spec.finish_time_fairness is None:
        return result
    told = record_fairness(grid, [cell for cell in grid.cells if store.has(cell.task.key)], store)
    index = result.folder / RUN_FILE
    if told and index.is_file():
        write_json(index, {**json.loads(index.read_text(encoding="utf-8")), "fairness": told})
    return result


def reference_cells(grid: Grid) -> dict[str, GridCell]:
    """Return the `isolated` cells of Gavel's rho by key of the wanted cell, empty for the other definitions."""
    rule = grid.experiment.spec.finish_time_fairness
    if rule is None or rule.definition != "gavel":
        return {}
    kind = registry.load(_ISOLATED)
    experiment = grid.experiment
    points = tuple(replace(point, spec=_isolated(point.spec)) for point in experiment.points)
    policies = {_ISOLATED: kind}
    other = make_grid(replace(experiment, spec=_isolated(experiment.spec), points=points, policies=policies))
    pairs = zip(grid.cells, other.cells, strict=True)
    return {cell.task.key: reference for cell, reference in pairs if not grid.labels or cell.label in grid.labels}


def _isolated(spec: ExperimentSpec) -> ExperimentSpec:
    """Replace every policy by `isolated`, keeping its workload and engine."""
    policies = tuple(
        PolicySpec(name=_ISOLATED, label=one.shown_as, workload=one.workload, engine=one.engine)
        for one in spec.policies
    )
    return spec.model_copy(update={"policies": policies})


def record_fairness(grid: Grid, cells: Sequence[GridCell], store: Store) -> dict[str, Any]:
    """Compute missing ratios of complete cells; returns their entry in the run's index, empty unless requested."""
    rule = grid.experiment.spec.finish_time_fairness
    if rule is None:
        return {}
    references = reference_cells(grid)
    folder = Path("fairness") / _version(rule)
    runs: dict[tuple[object, ...], SoloRuns] = {}
    for task in {cell.task.key: cell.task for cell in cells}.values():
        path = store.folder / folder / f"{task.key}.csv"
        if path.is_file():
            continue
        jobs = read_table(store.cell(task.key), "jobs", _COLUMNS)
        contention = mean_contention(jobs["submit_time_s"], jobs["end_time_s"])
        if rule.definition == "gavel":
            reference = references.get(task.key)
            if reference is None or not store.has(reference.task.key):
                continue
            alone = _times(store.cell(reference.task.key), jobs)
        else:
            room = (task.cluster, task.applications, task.engine)
            if room not in runs:
                runs[room] = SoloRuns(task.cluster, catalogue(task.applications), task.engine)
            alone = _alone(task, store.cell(task.key), rule, runs[room], jobs, contention)
        write_fairness(path, fairness_table(jobs, contention, alone))
    return {**rule.model_dump(), "folder": folder.as_posix()}


def _times(folder: Path, jobs: pd.DataFrame) -> Floats:
    """Read the completion times of the same jobs in another cell."""
    table = read_table(folder, "jobs", ("job_id", "jct_s")).set_index("job_id")["jct_s"]
    return table.loc[jobs["job_id"]].to_numpy(dtype=np.float64)


def _alone(
    task: Task, cell: Path, rule: FairnessSpec, runs: SoloRuns, jobs: pd.DataFrame, contention: Floats
) -> Floats:
    specs = {job.id: job for job in task.jobs}
    interval_s = task.policy.make().triggers.interval_s
    batch: Batch = "submitted"
    if rule.batch != "profile":
        batch = rule.batch if rule.batch == "best" else _batch_of(task, cell)
    total = task.cluster.total_gpus
    found = []
    for job_id, others in zip(jobs["job_id"], contention, strict=True):
        job = specs[job_id]

        def seconds(gpus: int, job: Any = job) -> float:
            return runs.seconds(job, gpus, batch, interval_s)

        if rule.definition == "pollux":
            found.append(time_on_share(min(total / others, total), seconds, rule.rounding))
        else:
            many = len(task.jobs) if rule.definition == "shockwave-static" else others
            solo_s = runs.profile_s(job) if rule.batch == "profile" else seconds(job.num_gpus)
            found.append(solo_s * exclusive_slowdown(many, total))
    return np.array(found, dtype=np.float64)


def _batch_of(task: Task, cell: Path) -> Batch:
    """Return the batch that the jobs of a cell ran with; submitted sizes do not count if any was adapted."""
    applications = catalogue(task.applications)
    submitted = {}
    for job in task.jobs:
        application = applications.for_job(job.request, job.truth)
        if application.limits is not None:
            asked = application.fixed_batch_size or job.batch_size or application.limits.init_batch_size
            submitted[job.id] = min(asked, application.limits.max_batch_size)
    return "best" if was_adapted(read_table(cell, "allocations", _BATCH_COLUMNS), submitted) else "submitted"


def was_adapted(allocations: pd.DataFrame, submitted: Mapping[str, int]) -> bool:
    """Return whether any job exceeded its submitted total batch, apart from rounding when splitting it."""
    known = allocations[allocations["job_id"].isin(submitted.keys())]
    parts = known["gpus"] * (known["accum_steps"] + 1)
    return bool((known["batch_size"] - known["job_id"].map(submitted) >= parts).any())


def _version(rule: FairnessSpec) -> str:
    """Return a folder name from everything except the cell that determines its ratios."""
    known = {**rule.model_dump(), "code": code().digest}
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:12]
