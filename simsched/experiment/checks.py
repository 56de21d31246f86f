"""Checks before a run that jobs, policies, agents and clusters are compatible."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from simsched.agent import AgentFactory, no_goodput
from simsched.engine import LEAVE_OUT, EngineOptions, check_jobs
from simsched.errors import InputError, Problem, tell
from simsched.experiment.offers import first_of_each
from simsched.model import Application, ApplicationSource, Cluster, JobSpec, Site
from simsched.model.application import facts_of
from simsched.plugins import quiet_stdout
from simsched.policy import Policy, Quantum
from simsched.policy.signals import GOODPUT

_MOST_PROBLEMS = 20


class _Failure(Problem):
    """An exception from a policy other than `InputError`."""


class Checks:
    """Collects the problems of cells; checks what cells share only once.

    With `failures`, any exception of a policy or its agents is a problem; otherwise only input errors are.
    """

    def __init__(self, *, failures: bool = False) -> None:
        self._failures = failures
        self._seen: set[tuple[Any, ...]] = set()
        #: One job of each kind by the hash that `check` receives; reading ten million jobs takes half a minute.
        self._kinds: dict[str, Sequence[JobSpec]] = {}
        #: Jobs that cannot run, by what makes checks equal.
        self._unfit: set[tuple[object, ...]] = set()
        self._problems: dict[Problem, None] = {}

    def raise_problems(self) -> None:
        """Raise `InputError` with all problems found, if any."""
        if self._problems:
            raise InputError(*self._problems)

    def check(
        self,
        policy: Policy,
        agents: AgentFactory | None,
        cluster: Cluster,
        options: EngineOptions,
        jobs: Sequence[JobSpec],
        applications: ApplicationSource,
        policy_text: str,
        jobs_hash: str,
        jobs_file: str = "",
        leave_out: str = LEAVE_OUT,
        *,
        staged: bool = False,
        spares: int = 0,
    ) -> None:
        """Check one cell; `policy_text` and `jobs_hash` identify its policy with parameters and its jobs.

        Messages refer to lines of `jobs_file`; `leave_out` is the remedy for large jobs. `staged` jobs need stage times
        to share GPUs, and the last `spares` nodes are not for jobs. The check starts the policy and creates its agents;
        it must not be reused.
        """
        if len(self._problems) >= _MOST_PROBLEMS:
            return
        room = (cluster, id(applications), jobs_hash)
        if self._new("jobs", policy.rigid, options.tick_s, *room):
            try:
                check_jobs(jobs, cluster, applications, rigid=policy.rigid, leave_out=leave_out, tick_s=options.tick_s)
            except InputError as error:
                from simsched.workload import located  # loads the readers

                self._problems |= dict.fromkeys(located(error.problems, Path(jobs_file)))
                self._unfit.add((policy.rigid, *room))
                return
            kinds = self._one_of_each(jobs, jobs_hash)
            self._problems |= dict.fromkeys(_speed_problems(kinds, cluster, applications))
            _tell_extrapolations(kinds, cluster, applications)
        elif (policy.rigid, *room) in self._unfit:  # no further check is possible with these jobs
            return
        if staged and self._new("stages", *room):
            self._problems |= dict.fromkeys(stage_problems(self._one_of_each(jobs, jobs_hash), applications))
        if self._new("policy", policy_text, options, spares, *room):
            kinds = self._one_of_each(jobs, jobs_hash)
            self._problems |= dict.fromkeys(_policy_problems(policy, cluster, options, kinds, spares))
            found = _agent_problems(policy, agents or policy, cluster, kinds, applications)
            self._problems |= {one: None for one in found if self._failures or not isinstance(one, _Failure)}
            self._problems |= dict.fromkeys(_input_problems(policy, cluster, jobs, applications))

    def note(self, problems: Iterable[Problem]) -> None:
        """Add problems found elsewhere."""
        self._problems |= dict.fromkeys(problems)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems found."""
        return tuple(self._problems)

    def _one_of_each(self, jobs: Sequence[JobSpec], jobs_hash: str) -> Sequence[JobSpec]:
        if jobs_hash not in self._kinds:
            self._kinds[jobs_hash] = _one_of_each(jobs)
        return self._kinds[jobs_hash]

    def _new(self, *what: Any) -> bool:
        if what in self._seen:
            return False
        self._seen.add(what)
        return True


def _speed_problems(jobs: Sequence[JobSpec], cluster: Cluster, applications: ApplicationSource) -> Iterator[Problem]:
    for job, application in _kinds(jobs, applications):
        if application.limits is None:
            continue
        reasons: list[str] = []
        for gpu_type in cluster.gpu_types:
            try:
                application.step_time(Site((1,), gpu_type), application.limits.min_local_bsz)
            except ValueError as error:
                reasons.append(str(error))
            except LookupError as error:
                yield Problem(f"workload, job '{job.id}'", f"{application.name} has no step time: {error}")
        if len(reasons) == len(cluster.gpu_types):
            yield Problem("cluster.gpu_type", reasons[0], "name a GPU type that it knows, or other applications")


def _tell_extrapolations(jobs: Sequence[JobSpec], cluster: Cluster, applications: ApplicationSource) -> None:
    """Tell which models with plans lie outside the steps to which their hardware is fitted."""
    models = {app.name: model for _, app in _kinds(jobs, applications) if (model := facts_of(app).plans) is not None}
    for name, model in sorted(models.items()):
        for gpu_type in cluster.gpu_types:
            if beyond := model.beyond.get(gpu_type, ""):
                tell(f"application '{name}' on {gpu_type}", beyond)


def stage_problems(jobs: Sequence[JobSpec], applications: ApplicationSource) -> Iterator[Problem]:
    """Yield a problem if jobs should interleave unknown stages."""
    for job, application in _kinds(jobs, applications):
        if not application.stages_s:
            message = f"the model interleaves stages, but those of {application.name} (job '{job.id}') are unknown"
            yield Problem("engine.sharing.model", message, "choose another model of sharing, or jobs with stages")
            return


def _policy_problems(
    policy: Policy, cluster: Cluster, options: EngineOptions, jobs: Sequence[JobSpec], spares: int = 0
) -> Iterator[Problem]:
    quantum = policy.traits.quantum
    try:
        if quantum:
            Quantum(policy.name, getattr(policy, quantum)).check(options.restart_delay_s)
    except InputError as error:
        yield from error.problems
    if policy.needs_sharing and options.max_jobs_per_gpu == 1:
        message = f"the policy '{policy.name}' puts several jobs on a GPU, but GPUs may not be shared"
        yield Problem("engine.sharing.max_jobs", message, "raise it, or change the policy's parameters")
    nodes = len(cluster.nodes) - spares if spares else options.initial_nodes
    if nodes is None or nodes >= len(cluster.nodes) or policy.traits.scales:
        return
    first = cluster.nodes[:nodes]
    by_type = {kind: sum(node.gpus for node in first if node.gpu_type == kind) for kind in cluster.gpu_types}
    most = max(by_type.values(), default=0)
    needed = max((job.num_gpus for job in jobs), default=0) if policy.rigid else 1
    if most < needed:
        message = f"with {nodes} nodes there are {most} GPUs of one type for a job of {needed}"
        remedy = f"policy '{policy.name}' does not ask for more nodes; give more, or leave the key out"
        yield Problem("failures.hot_spares" if spares else "engine.initial_nodes", message, remedy)


def _agent_problems(
    policy: Policy, agents: AgentFactory, cluster: Cluster, jobs: Sequence[JobSpec], applications: ApplicationSource
) -> Iterator[Problem]:
    """Yield clusters and jobs that a policy or its agents reject or fail on."""
    if agents is not policy and policy.own_agents:
        said = "with these parameters it works only with its own agents"
        yield Problem(f"agent, policy '{policy.name}'", said, "leave the agent out, or change the parameters")
        return
    try:
        with quiet_stdout():
            policy.begin(cluster)
            if agents is not policy:
                agents.begin(cluster)
    except InputError as error:
        yield from error.problems
        return
    except (Exception, SystemExit, GeneratorExit) as error:  # noqa: BLE001 (third-party code; its cells will fail)
        yield _Failure(f"policy '{policy.name}'", f"{type(error).__name__}: {error}")
        return
    for job, application in _kinds(jobs, applications):
        try:
            with quiet_stdout():
                facts = facts_of(application, job.request.shape)
                agent = agents.agent(job.request, facts)
                told = agents is policy or GOODPUT not in policy.signals or agent.goodput is not None
                if agents is not policy:
                    policy.agent(job.request, facts)  # rejects jobs that it cannot schedule with any agent
            if not told:
                yield replace(no_goodput(job.id), where=f"agent, policy '{policy.name}'")
                return
        except InputError as error:
            yield from (replace(one, where=f"{one.where}, policy '{policy.name}'") for one in error.problems)
        except (Exception, SystemExit, GeneratorExit) as error:  # noqa: BLE001 (as above)
            yield _Failure(f"job '{job.id}', policy '{policy.name}'", f"{type(error).__name__}: {error}")
            return


def _input_problems(
    policy: Policy, cluster: Cluster, jobs: Sequence[JobSpec], applications: ApplicationSource
) -> Iterator[Problem]:
    """Yield problems with a policy's input files that were made for other jobs."""
    if type(policy).check_jobs is Policy.check_jobs:
        return
    from simsched.engine import views_at_submission  # loads the engine

    try:
        with quiet_stdout():
            policy.check_jobs(views_at_submission(jobs, cluster, applications, policy.signals), cluster)
    except InputError as error:
        yield from error.problems


def _kinds(jobs: Sequence[JobSpec], applications: ApplicationSource) -> list[tuple[JobSpec, Application]]:
    """Pick one job of each kind, with its application."""
    return [(job, applications.for_job(job.request, job.truth)) for job in _one_of_each(jobs)]


def _one_of_each(jobs: Sequence[JobSpec]) -> list[JobSpec]:
    """Pick one job of each application, tenant and number of GPUs."""
    return first_of_each(jobs, "application", "tenant", "num_gpus")
