"""Checks before a run: whether jobs, policies, agents and clusters are compatible, physics missing, keys unused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from simsched.agent import AgentFactory, no_goodput
from simsched.documents import Draft
from simsched.engine import EngineOptions, check_jobs
from simsched.errors import InputError, Problem, tell
from simsched.experiment.physics import interleaves
from simsched.experiment.spec import ExperimentSpec
from simsched.experiment.task import Task
from simsched.model import Application, ApplicationSource, Cluster, JobSpec, Site
from simsched.model.application import facts_of
from simsched.model.cluster import TENANTS_PARAMETER
from simsched.model.job import values_of
from simsched.plugins import quiet_stdout
from simsched.policy import Policy, Quantum, physics
from simsched.policy.physics import Physics
from simsched.policy.signals import GOODPUT
from simsched.workload import GENERATED, RECIPES, GeneratedTrace


@dataclass(frozen=True)
class Conditions:
    """The conditions of a policy in a cell: cluster, engine settings, jobs and its parameters."""

    cluster: Cluster
    engine: EngineOptions
    jobs: Sequence[JobSpec]
    applications: ApplicationSource
    params: Mapping[str, Any]

    def values(self, name: str) -> Iterator[Any]:
        """Yield the value of a field of each job."""
        return values_of(self.jobs, name)

    def kinds(self) -> list[Application]:
        """List the distinct applications of the jobs."""
        picked = first_of_each(self.jobs, "application")
        return [self.applications.for_job(job.request, job.truth) for job in picked]


def first_of_each(jobs: Sequence[JobSpec], *names: str) -> list[JobSpec]:
    """Return the first job for each combination of values of some fields, in one pass over the jobs."""
    picked: dict[Any, int] = {}
    for place, found in enumerate(values_of(jobs, *names)):
        picked.setdefault(found, place)
    return [jobs[place] for place in picked.values()]


_Value = TypeVar("_Value")


def _several(values: Iterable[_Value]) -> bool:
    return len(set(values)) > 1


#: For each physics, whether conditions offer it.
OFFERED: Mapping[Physics, Callable[[Conditions], bool]] = MappingProxyType(
    {
        physics.SHARED_GPUS: lambda at: at.engine.max_jobs_per_gpu > 1,
        physics.GPU_PARTS: lambda at: at.engine.gpu_shares and any(share < 1 for share in at.values("gpu_share")),
        physics.STAGES: lambda at: (
            any(one is not None for one in at.values("profile")) or any(kind.stages_s for kind in at.kinds())
        ),
        physics.BUSY_GPUS: lambda at: any(one is not None for one in at.values("profile")),
        physics.GUARANTEED_JOBS: lambda at: any(at.values("guaranteed")),
        physics.OPPORTUNISTIC_JOBS: lambda at: not all(at.values("guaranteed")),
        physics.DEADLINES: lambda at: any(one is not None for one in at.values("deadline_s")),
        physics.TIME_LIMITS: lambda at: any(one is not None for one in at.values("time_limit_s")),
        physics.GPU_TYPES: lambda at: len(at.cluster.gpu_types) > 1,
        physics.QUOTAS: lambda at: bool(at.params.get(TENANTS_PARAMETER)),
        physics.JOBS_OF_TENANTS: lambda at: _several(at.values("tenant")),
        physics.JOBS_OF_USERS: lambda at: _several(at.values("user")),
        physics.GROUPS: lambda at: any(at.values("group")),
        physics.BATCH_RULES: lambda at: any(at.values("batch_rule")),
        physics.TENSORS: lambda at: any(kind.tensor_skew is not None for kind in at.kinds()),
    }
)


def lacking(policy: Policy, conditions: Conditions) -> dict[str, str]:
    """Return what a policy loses without the missing physics it relies on, one sentence by name."""
    return {
        wanted.name: f"{wanted.missing}, and it {becomes.words}"
        for wanted, becomes in policy.counts_on.items()
        if not OFFERED[wanted](conditions)
    }


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
        task: Task,
        policy: Policy,
        applications: ApplicationSource,
        policy_text: str,
        jobs_hash: str,
        jobs_file: str,
        leave_out: str,
    ) -> None:
        """Check one cell; `policy_text` and `jobs_hash` identify its policy with parameters and its jobs.

        Messages refer to lines of `jobs_file`; `leave_out` is the remedy for large jobs. The check starts the policy
        and creates its agents; it must not be reused.
        """
        if len(self._problems) >= _MOST_PROBLEMS:
            return
        jobs, cluster, options = task.jobs, task.cluster, task.engine
        room = (cluster, id(applications), jobs_hash)
        if self._new("jobs", policy.rigid, options.tick_s, *room):
            try:
                check_jobs(jobs, cluster, applications, rigid=policy.rigid, leave_out=leave_out, tick_s=options.tick_s)
            except InputError as error:
                from simsched.workload import located  # loads the readers

                self.note(located(error.problems, Path(jobs_file)))
                self._unfit.add((policy.rigid, *room))
                return
            kinds = self._one_of_each(jobs, jobs_hash)
            self.note(_speed_problems(kinds, cluster, applications))
            _tell_extrapolations(kinds, cluster, applications)
        elif (policy.rigid, *room) in self._unfit:  # no further check is possible with these jobs
            return
        if interleaves(task.sharing) and self._new("stages", *room):
            self.note(stage_problems(self._one_of_each(jobs, jobs_hash), applications))
        spares = 0 if task.failures is None else task.failures.hot_spares
        if self._new("policy", policy_text, options, spares, *room):
            kinds = self._one_of_each(jobs, jobs_hash)
            self.note(_policy_problems(policy, cluster, options, kinds, spares))
            agents = policy if task.agent is None else task.agent.make()
            found = _agent_problems(policy, agents, cluster, kinds, applications)
            self.note(one for one in found if self._failures or not isinstance(one, _Failure))
            self.note(_input_problems(policy, cluster, jobs, applications))

    def note(self, problems: Iterable[Problem]) -> None:
        """Add problems."""
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


#: The keys of each recipe and of the generated trace.
_KEYS: Mapping[str, frozenset[str]] = MappingProxyType(
    {name: frozenset(one.name for one in fields(kind)) for name, kind in RECIPES.items()}  # type: ignore[arg-type]
)
_GENERATED_KEYS = frozenset(one.name for one in fields(GeneratedTrace))
#: Keys that decide which others count; if an option changes one, those in the file may go unused.
_DECIDING = ("recipe", "source", "path")


def idle_keys(draft: Draft, spec: ExperimentSpec) -> Iterator[Problem]:
    """Yield keys without effect under the chosen recipe and source, except those set to their default."""
    for key, remedy in _idle(draft, spec):
        yield draft.problem(("workload", key), "it has no effect here", remedy)


def without_idle(draft: Draft, spec: ExperimentSpec) -> ExperimentSpec:
    """Drop the keys of the file that options made idle, so that a run records, and all can read, what it uses."""
    if any(("workload", key) in draft.origins for key in _DECIDING):
        idle = [key for key, _ in _idle(draft, spec) if ("workload", key) not in draft.origins]
        for key in idle:
            del draft.data["workload"][key]
        usual = type(spec.workload)()
        workload = spec.workload.model_copy(update={key: getattr(usual, key) for key in idle})
        spec = spec.model_copy(update={"workload": workload})
    return spec


def _idle(draft: Draft, spec: ExperimentSpec) -> Iterator[tuple[str, str]]:
    given = draft.data.get("workload")
    if not isinstance(given, dict) or not _is_one_workload(draft, spec):
        return
    usual = type(spec.workload)()
    for key in given:
        remedy = _remedy(key, spec)
        if remedy and getattr(spec.workload, key) != getattr(usual, key):
            yield key, remedy


def _is_one_workload(draft: Draft, spec: ExperimentSpec) -> bool:
    """Return whether recipe and source are known and the same throughout the grid."""
    swept = (str(key).rpartition(".")[2] for key in draft.data.get("sweep") or {})
    if any(key in _DECIDING for key in swept) or any(policy.workload for policy in spec.policies):
        return False
    return spec.workload.recipe is not None or spec.workload.file is None


def _remedy(key: str, spec: ExperimentSpec) -> str:
    recipe = spec.workload.recipe or "pollux"
    owners = [name for name, keys in _KEYS.items() if key in keys]
    if owners and recipe not in owners:
        return f"it is a key of the recipe {' or '.join(owners)}, not of {recipe}; leave it out"
    if key in _GENERATED_KEYS and (spec.workload.file is not None or spec.workload.source != GENERATED):
        return f"it is a key of the source {GENERATED}; leave it out"
    return ""
