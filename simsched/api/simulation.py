"""Simulates without files: takes a cluster, jobs and a policy, and returns tables, at once or step by step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from numbers import Integral
from typing import TYPE_CHECKING, Any

import pandas as pd

from simsched.api.jobs import JobsLike, jobs_of
from simsched.api.results import RunResults, held_run
from simsched.applications import ApplicationCatalogue, ApplicationsOptions, catalogue, with_speeds
from simsched.documents import section_of
from simsched.engine import (
    EngineOptions,
    MemoryRecorder,
    Process,
    Simulation as Simulation,
    Terms as Terms,
    features_of,
)
from simsched.errors import InputError, input_error, nearest
from simsched.experiment import SharingSpec
from simsched.experiment.checks import stage_problems
from simsched.experiment.failures import FailuresSpec, failure_options
from simsched.experiment.physics import colocation_of, interleaves
from simsched.knowledge import legend, marked
from simsched.model import Application, ApplicationSource, Cluster, NodeGroup
from simsched.policy import POLICIES, Policy, registry
from simsched.policy.signals import known_by
from simsched.results import Cell, Feature, Run, summarise
from simsched.results.metric import Tables
from simsched.words import counted
from simsched.workload import MOST_SECONDS

if TYPE_CHECKING:
    from simsched.report.figures import Figure

#: Features whose columns are present even if unused; their constant values are then correct.
_SHOWN = frozenset(Feature) - {Feature.TOPOLOGY, Feature.FRAGMENTATION}
_PAIR = 2
_NODES = 16
_GPUS_PER_NODE = 4

#: A cluster: a `Cluster`, (nodes, GPUs on each), or the groups of an experiment's `cluster`.
ClusterLike = Cluster | tuple[int, int] | Mapping[str, Any] | None
#: Applications: None for the shipped ones, a folder, applications, or anything with `for_job`.
ApplicationsLike = ApplicationSource | Iterable[Application] | str | None


@dataclass(frozen=True)
class SimulationResults:
    """The results of a simulation: finished jobs, intervals and decisions as tables, and the metrics of the run.

    `outages` are the intervals during which a node was out of use; with `reasons=True`, `reasons` gives the state of
    each job at each decision. `run` is the same as a run of one cell, for figures.
    """

    run: Run

    @property
    def _cell(self) -> Cell:
        return self.run.cells[0]

    @property
    def jobs(self) -> pd.DataFrame:
        """The finished jobs in order of completion."""
        return self._cell.table("jobs")

    @property
    def allocations(self) -> pd.DataFrame:
        """The intervals during which a job ran unchanged."""
        return self._cell.table("allocations")

    @property
    def decisions(self) -> pd.DataFrame:
        """The decisions of the policy."""
        return self._cell.table("rounds")

    @property
    def outages(self) -> pd.DataFrame:
        """The intervals during which a node was out of use; empty if there were none."""
        return self._cell.table("outages")

    @property
    def reasons(self) -> pd.DataFrame:
        """The state of each job after each decision, and why it waits; empty unless `reasons=True` was given."""
        return self._cell.table("reasons")

    @property
    def metrics(self) -> Mapping[str, float]:
        """The metrics of the run, by name."""
        return self._cell.summary

    @property
    def policy(self) -> str:
        """The policy's name."""
        return self._cell.policy

    @property
    def knows(self) -> Mapping[str, str]:
        """How a real scheduler would obtain what the policy reads, by signal."""
        return self._cell.knows

    @property
    def marks(self) -> tuple[str, ...]:
        """Name what the policy reads that no real scheduler knows, or that was profiled before; () if nothing."""
        return legend({self.policy: self.knows})

    def table(self, metrics: Sequence[str] | None = None) -> pd.DataFrame:
        """Return the metrics (default: the usual ones) as one row, as `RunResults.table` does."""
        return RunResults(self.run).table(metrics)

    def figures(self) -> tuple[str, ...]:
        """Return the names of the figures that fit."""
        return RunResults(self.run).figures()

    def plot(self, name: str = "occupancy", *, metrics: Sequence[str] = ()) -> Figure:
        """Return a figure, which a notebook shows by itself; `figures()` names those that fit."""
        return RunResults(self.run).plot(name, metrics=metrics)

    def __repr__(self) -> str:
        """Summarise its size and attributes in one line."""
        hours = self.metrics.get("makespan_s", 0.0) / 3600
        jobs, decisions = counted(len(self.jobs), "finished job"), counted(len(self.decisions), "decision")
        tables = ".jobs, .allocations, .decisions, .metrics, .table(), .plot()"
        name = marked("simulation", self.knows)
        return f"<{name}: {jobs}, {decisions}, makespan {hours:.3g} h; {tables}>"


def simulate(
    *,
    jobs: JobsLike,
    policy: Policy | type[Policy] | str,
    cluster: ClusterLike = None,
    applications: ApplicationsLike = None,
    failures: Mapping[str, Any] | None = None,
    sharing: Mapping[str, Any] | None = None,
    gpu_speed: Mapping[str, float] | None = None,
    processes: Sequence[Process] = (),
    seed: int = 1,
    **engine: Any,
) -> SimulationResults:
    """Run jobs on a cluster under a policy and return the tables; it reads only applications and writes nothing.

    `jobs` is a DataFrame or a list of dicts with the fields of a job: `num_gpus` and `submit_time_s`, `duration_s` for
    a job with only GPUs and seconds, or `application` and `batch_size`; or a list of `JobSpec`. `policy` is a class, an
    instance or a registered name; `cluster` a `Cluster`, (nodes, GPUs on each), or a dict like `{"nodes": 2,
    "gpus_per_node": 8, "gpu_type": "v100"}`, by default 16 nodes of 4 T4. `applications` names a folder or holds
    applications, by default the shipped ones. `failures`, `sharing` and `gpu_speed` are the values of an experiment's
    keys `failures`, `engine.sharing` and `workload.gpu_speed`, such as `{"setting": "research-cluster"}`, `{"max_jobs":
    2}` and `{"t4": 1, "v100": 2.5}`. `processes` are SimPy processes that run beside the cluster, each a function of a
    site, or such a function and its parameters (docs/how-to/processes.md). `engine` are the fields of `EngineOptions`,
    for example `restart_delay_s`. The same arguments give the same tables.

    Raises `InputError` for jobs that could never run, and `EngineError` for decisions that cannot be carried out.

    >>> found = simulate(jobs=[{"num_gpus": 4, "duration_s": 60}] * 2, policy="fifo", cluster=(1, 4), restart_delay_s=0)
    >>> found.jobs["jct_s"].tolist()
    [60.0, 120.0]
    """
    made = _policy(policy)
    physics = {"failures": failures, "sharing": sharing, "gpu_speed": gpu_speed}
    simulation = drive(
        jobs=jobs,
        policy=made,
        cluster=cluster,
        applications=applications,
        processes=processes,
        seed=seed,
        **physics,
        **engine,
    )
    simulation.run(made)
    return results_of(simulation)


def drive(
    *,
    jobs: JobsLike,
    policy: Policy | type[Policy] | str | Terms | None = None,
    cluster: ClusterLike = None,
    applications: ApplicationsLike = None,
    failures: Mapping[str, Any] | None = None,
    sharing: Mapping[str, Any] | None = None,
    gpu_speed: Mapping[str, float] | None = None,
    processes: Sequence[Process] = (),
    seed: int = 1,
    **engine: Any,
) -> Simulation:
    """Return a simulation that stops at every decision; the arguments are those of `simulate`.

    `policy` creates the agents and defines when decisions are due and what the views show, although the caller decides;
    `Terms` give only the latter. Raises `InputError` as `simulate` does.

    >>> from simsched.policy import Decision
    >>> simulation = drive(jobs=[{"num_gpus": 4, "duration_s": 60}] * 2, cluster=(1, 4), restart_delay_s=0)
    >>> view = simulation.advance()
    >>> list(view.jobs), list(view.free)
    (['job-0', 'job-1'], [4])
    >>> simulation.act(Decision.change({"job-0": ((0, 4),)}))
    >>> simulation.advance().now_s
    60
    """
    _check_engine(engine)
    if isinstance(seed, bool) or not isinstance(seed, Integral) or seed < 0:
        raise input_error(
            "simulate", f"'seed' is {seed!r:.40}, which is not a whole number of at least 0", "give it as an int"
        )
    place, shared = _cluster(cluster), section_of(sharing or {}, SharingSpec, "sharing")
    if sharing is not None:
        engine = {"max_jobs_per_gpu": shared.max_jobs, "gpu_shares": shared.model == "shares", **engine}
    try:
        options = EngineOptions(**engine)
    except (TypeError, ValueError) as error:
        raise input_error("simulate", f"a setting of the engine is wrong: {error}", "see EngineOptions") from error
    source = _applications(applications)
    chosen = policy if policy is None or isinstance(policy, Terms) else _policy(policy)
    submitted = jobs_of(jobs, source)
    source = with_speeds(source, dict(gpu_speed or {}), place)
    if interleaves(shared) and (unknown := list(stage_problems(submitted, source))):
        raise InputError(*unknown)
    colocation = None if sharing is None else colocation_of(shared)
    failing = failure_options(section_of(failures or {}, FailuresSpec, "failures"), place)
    return Simulation(
        place, submitted, source, options, seed, chosen, colocation=colocation, failures=failing, processes=processes
    )


def results_of(simulation: Simulation) -> SimulationResults:
    """Return the tables of a complete simulation; raises `InputError` if it is not complete."""
    recorder = simulation.recorder
    if not simulation.complete or not isinstance(recorder, MemoryRecorder):
        raise input_error("results_of", f"{simulation!r} has no results yet", "advance it until no decision is due")
    features = _SHOWN | features_of(simulation.cluster, simulation.jobs, simulation.options)
    tables = {name: records.frame(features) for name, records in recorder.tables.items()}
    jobs, intervals = tables["jobs"], tables["allocations"]
    jobs["jct_s"] = jobs["jct_s"].astype(float)
    metrics = summarise(Tables(jobs, intervals, tables["rounds"], simulation.cluster.total_gpus))
    return SimulationResults(
        held_run(simulation.terms.name, tables, metrics, simulation.cluster, known_by(simulation.terms.signals))
    )


def _check_engine(engine: Mapping[str, Any]) -> None:
    known = [field.name for field in fields(EngineOptions)]
    for name, value in engine.items():
        if name not in known:
            raise input_error("simulate", f"the engine has no setting '{name}'", nearest(name, known))
        if isinstance(value, int | float) and not abs(value) <= MOST_SECONDS:
            raise input_error("simulate", f"'{name}' is {value}, which is too large", f"give at most {MOST_SECONDS:g}")


def _cluster(cluster: ClusterLike) -> Cluster:
    made = _made_cluster(cluster)
    if not made.total_gpus:
        raise input_error("cluster", f"{cluster!r:.60} has no GPU", "give at least one node with one GPU")
    return made


def _made_cluster(cluster: ClusterLike) -> Cluster:
    if cluster is None:
        return Cluster.uniform(_NODES, _GPUS_PER_NODE)
    if isinstance(cluster, Cluster):
        return cluster
    if isinstance(cluster, Mapping):
        groups = cluster.get("groups", [cluster])
        try:
            return Cluster.of(*(NodeGroup(**group) for group in groups))
        except TypeError as error:
            message = f"a cluster is given by nodes, gpus_per_node and gpu_type, or by groups of these ({error})"
            raise input_error("cluster", message) from error
    if not isinstance(cluster, Sequence) or len(cluster) != _PAIR or not all(isinstance(one, int) for one in cluster):
        remedy = "give (nodes, GPUs on each), a dict such as {'nodes': 2, 'gpus_per_node': 8}, or a Cluster"
        raise input_error("cluster", f"{cluster!r:.60} is not a cluster", remedy)
    return Cluster.uniform(*cluster)


def _policy(policy: Policy | type[Policy] | str) -> Policy:
    made: Any = registry.load(policy) if isinstance(policy, str) else policy
    instance: Policy = made() if isinstance(made, type) else made
    missing = [name for name in ("decide", *POLICIES.members) if not hasattr(instance, name)]
    if missing:
        remedy = "give a name of `simsched list policies`, a subclass of simsched.policy.Policy, or an instance"
        raise input_error("policy", f"{policy!r:.60} is not a policy: it lacks '{missing[0]}'", remedy)
    return instance


def _applications(applications: ApplicationsLike) -> ApplicationSource:
    if applications is None or isinstance(applications, str):
        return catalogue(ApplicationsOptions(path=applications))
    if not isinstance(applications, Iterable) and hasattr(applications, "for_job"):
        return applications
    given = list(applications) if isinstance(applications, Iterable) else []
    if not given or not all(hasattr(one, "name") for one in given):
        message = f"{applications!r:.60} holds no applications"
        raise input_error("applications", message, "name a folder, or give a list of applications")
    return ApplicationCatalogue({one.name: one for one in given}, "applications")
