"""The conformance kit: checks of what every policy must do.

Each check has a name; `check_policy` runs them all and returns the failures.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from traceback import format_exception
from typing import Any, cast

import numpy as np

from simsched.engine import EngineError, EngineOptions, Granted, MemoryRecorder
from simsched.errors import InputError, safe_text, said
from simsched.model import FIXED_DURATION, Cluster, JobSpec, NodeGroup
from simsched.model.application import facts_of
from simsched.model.cluster import TENANTS_PARAMETER
from simsched.plugins import is_process, parameters, place_of
from simsched.policy import Decision, Policy, Triggers, UndeclaredSignalError, Why, no_decision
from simsched.policy.signals import FileSignal, JobSignal, ViewSignal
from simsched.testing.builders import (
    Applications,
    FakeJob,
    FakeView,
    fresh_view,
    random_jobs,
    run,
    two_type_application,
)
from simsched.testing.guard import Guard, GuardedApplications, GuardedPolicy, LeakError, guarded_jobs

#: Makes a fresh instance of the policy under test.
Maker = Callable[[], Policy]

_CLUSTERS = (
    Cluster.uniform(1, 4),
    Cluster.uniform(3, 2),
    Cluster.of(NodeGroup(2, 4), NodeGroup(2, 1)),
    Cluster.of(NodeGroup(1, 2, "v100"), NodeGroup(2, 4, "t4")),
)
_JOBS = 25
_LONG_S = 10_000
_SIGNALS = (JobSignal, ViewSignal, FileSignal)


@dataclass(frozen=True)
class Failure:
    """A failed check of a policy, an agent or a process, with the reason."""

    check: str
    reason: str
    place: str = ""
    traceback: str = ""

    def __str__(self) -> str:
        """Render as `place: check: reason`, where the place is the failing file and line of the policy."""
        text = f"{self.check}: {self.reason}"
        return f"{self.place}: {text}" if self.place else text


@dataclass
class Trial:
    """A policy under test: `make` makes fresh instances; unchanged runs are cached."""

    make: Maker
    seeds: int
    finished: dict[tuple[Cluster, int], MemoryRecorder] = field(default_factory=dict)

    def records(self, cluster: Cluster, seed: int) -> MemoryRecorder:
        """Return the records of a fresh instance on a cluster with the jobs of a seed (cached)."""
        return self.finished.get((cluster, seed)) or self.fresh_records(cluster, seed)

    def fresh_records(self, cluster: Cluster, seed: int, *, reasons: bool = False) -> MemoryRecorder:
        """Return the records of a fresh instance, optionally with reasons."""
        policy = self.make()
        applications, jobs = _workload(policy, cluster, seed)
        options = EngineOptions(reasons=reasons)
        records = run(policy, jobs, cluster=cluster, applications=applications, options=options, seed=seed)
        self.finished[cluster, seed] = records
        return records


class _FailedError(Exception):
    """Passes the reason out of a check."""


def check_policy(make: Maker, *, seeds: int = 3) -> list[Failure]:
    """Run the whole kit on a policy and return the failures, empty if it conforms.

    `make` is the policy's class, or any function that creates a fresh instance; `seeds` is the number of random
    workloads on each of a few small clusters. The engine checks its invariants.
    """
    trial = Trial(make, seeds)
    return failures_of(make, {name: partial(check, trial) for name, check in CHECKS.items()})


def failures_of(make: Callable[[], object], checks: Mapping[str, Callable[[], None]]) -> list[Failure]:
    """Run checks by name and return those that raise, each with the place in the file of the policy or agent."""
    failures: list[Failure] = []
    for name, check in checks.items():
        try:
            check()
        except (_FailedError, LeakError, EngineError, UndeclaredSignalError, InputError) as error:
            failures.append(_failure(make, name, said(error), error))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  # what is under test raises is its failure, not the kit's
            failures.append(_failure(make, name, f"{type(error).__name__}: {said(error)}", error))
    return failures


def _failure(make: Callable[[], object], check: str, reason: str, error: BaseException) -> Failure:
    """Return where in its file an error came from: its last active line, else the class."""
    kind: Any = make if isinstance(make, type) or is_process(make) else type(make())
    places = (place_of(one, kind) for one in (error, error.__cause__) if one is not None)
    place = next(filter(None, places), "") or _place_of_class(kind)
    return Failure(check, safe_text(reason), place, safe_text("".join(format_exception(error))))


def _place_of_class(kind: type) -> str:
    try:
        return f"{inspect.getsourcefile(kind)}:{inspect.getsourcelines(kind)[1]}"
    except (TypeError, OSError):
        return ""


def expect(condition: bool, reason: str) -> None:
    """Fail the check for a reason unless a condition holds."""
    if not condition:
        raise _FailedError(reason)


def _asked(policy: Policy, view: FakeView, rng: np.random.Generator | None = None) -> Decision:
    decision = policy.decide(view, rng or np.random.default_rng(0))
    expect(isinstance(decision, Decision), no_decision(decision))
    return decision


def _declaration(trial: Trial) -> None:
    policy = trial.make()
    expect(isinstance(getattr(policy, "name", None), str) and bool(policy.name), "it has no name")
    expect(isinstance(policy.triggers, Triggers), "its triggers are not a Triggers object")
    unknown = sorted(str(signal) for signal in policy.signals if not isinstance(signal, _SIGNALS))
    expect(not unknown, f"it needs unknown signals: {', '.join(unknown)}")
    Granted.at_first(policy.signals, _CLUSTERS[0])  # raises if nothing provides a signal
    expect(policy.traits.needs <= policy.signals, "its 'signals' lack some of the needs of its traits")
    traits = policy.traits
    named = {traits.interval, traits.quantum, traits.diagnostics, TENANTS_PARAMETER if traits.reads_tenants else ""} - {
        ""
    }
    missing = sorted(named - {one.name for one in parameters(type(policy))})
    expect(not missing, f"its traits name parameters that it does not have: {', '.join(missing)}")
    expect(bool(type(policy).__doc__), "it has no docstring that describes it")


def _empty_queue(trial: Trial) -> None:
    decision = _asked(trial.make(), FakeView(Cluster.uniform()))
    expect(not decision.jobs, f"it decides although there are no jobs: {decision}")


def _all_nodes_down(trial: Trial) -> None:
    policy = trial.make()
    view = _view(policy, Cluster.uniform(2, 4), 3)
    view.up = [False, False]
    decision = _asked(policy, view)
    placed = sorted(decision.allocations)
    expect(not placed, f"with all nodes down it places {', '.join(placed)}")


def _job_larger_than_cluster(trial: Trial) -> None:
    policy = trial.make()
    cluster = Cluster.uniform(2, 2)
    view = _view(policy, cluster, 1, gpus=1000)
    decision = _asked(policy, view)
    for job_id, held in decision.allocations.items():
        gpus = sum(count for _, count in held)
        expect(gpus <= cluster.total_gpus, f"job {job_id} gets {gpus} of {cluster.total_gpus} GPUs")
        if policy.rigid:
            expect(gpus == 0, f"rigid job {job_id} asks for 1000 GPUs and gets {gpus}")


def _job_larger_than_a_type(trial: Trial) -> None:
    """A job that fits only on GPUs of two types together never gets a mixture."""
    policy = trial.make()
    cluster = Cluster.of(NodeGroup(2, 4, "t4"), NodeGroup(1, 4, "v100"))
    view = _view(policy, cluster, 2, gpus=10)
    _check_placed(_asked(policy, view), view, rigid=policy.rigid)


def _node_lost(trial: Trial) -> None:
    """Jobs on a node that goes down are placed again, on other nodes."""
    policy = trial.make()
    cluster = Cluster.uniform(2, 4)
    view, jobs = _view_and_jobs(policy, cluster, 3)
    rng = np.random.default_rng(0)
    first = _asked(policy, view, rng)
    for job_id, allocation in first.allocations.items():
        jobs[job_id].allocation = allocation
        jobs[job_id].starts, jobs[job_id].first_start_s = 1, view.now_s
    lost = {node for allocation in first.allocations.values() for node, _ in allocation} or {0}
    node = min(lost)
    view.up = [index != node for index in range(2)]
    view.arrived, view.now_s = [], 2 * _LONG_S
    for job in jobs.values():
        job.age_s = view.now_s
        if any(at == node for at, _ in job.allocation):
            job.allocation = ()
    _check_placed(_asked(policy, view, rng), view, rigid=policy.rigid)


def _check_placed(decision: Decision, view: FakeView, *, rigid: bool) -> None:
    """Check the allocations of a decision on the nodes of a view."""
    held = {job.id: job.allocation for job in view.jobs.values()}
    others = {job_id: at for job_id, at in held.items() if at and job_id not in decision.jobs}
    stay = others if decision.rest == "stays" else {}
    after = stay | decision.allocations
    used: dict[int, int] = {}
    for job_id, placed in after.items():
        types = {view.nodes[node].gpu_type for node, _ in placed}
        expect(len(types) == 1, f"job {job_id} gets GPUs of several types: {placed}")
        gpus = sum(count for _, count in placed)
        expect(not rigid or gpus == view.jobs[job_id].num_gpus, f"rigid job {job_id} gets {gpus} GPUs")
        for node, count in placed:
            used[node] = used.get(node, 0) + count
    for node, count in used.items():
        room = view.nodes[node].gpus if view.up[node] else 0
        expect(count <= room, f"{count} GPUs of node {node} are allocated, but it has {room}")


def _feasible(trial: Trial) -> None:
    for seed in range(trial.seeds):
        for cluster in _CLUSTERS:
            _, jobs = _workload(trial.make(), cluster, seed)
            records = trial.records(cluster, seed)
            expect(len(records.jobs) == len(jobs), f"{len(records.jobs)} of {len(jobs)} jobs finished (seed {seed})")


def _knows_what_it_declares(trial: Trial) -> None:
    """Run under guard: truth, physics and kept views raise when the policy reads them."""
    for cluster in (_CLUSTERS[1], _CLUSTERS[3]):
        policy, guard = trial.make(), Guard()
        applications, jobs = _workload(policy, cluster, 3)
        run(
            cast("Policy", GuardedPolicy(policy, guard)),
            guarded_jobs(jobs, guard, policy),
            cluster=cluster,
            applications=GuardedApplications(applications, guard, policy),
        )


def _rigid_means_rigid(trial: Trial) -> None:
    if not trial.make().rigid:
        return
    records = trial.records(_CLUSTERS[0], 0)
    asked = {job.job_id: job.num_gpus for job in records.jobs}
    for interval in records.allocations:
        wanted = asked[interval.job_id]
        expect(interval.gpus == wanted, f"job {interval.job_id} asks for {wanted} GPUs and gets {interval.gpus}")


def _deterministic(trial: Trial) -> None:
    """The second run records reasons, which must not change anything and must explain every waiting job."""
    first, second = trial.records(_CLUSTERS[1], 0), trial.fresh_records(_CLUSTERS[1], 0, reasons=True)
    expect(first.jobs == second.jobs, "the same seed gives other completion times")
    expect(first.decisions == second.decisions, "the same seed gives other decisions")
    known = set(Why)
    for one in second.reasons:
        expect(bool(one.gpus) or one.why in known, f"job {one.job_id} waits for an unknown reason: '{one.why}'")


def _no_global_randomness(trial: Trial) -> None:
    same = same_global_randomness(lambda: trial.fresh_records(_CLUSTERS[0], 2))
    expect(same, "it draws from a global random generator instead of the one that it receives")


def same_global_randomness(run_it: Callable[[], object]) -> bool:
    """Return whether a run leaves the global random generators unchanged."""

    def state() -> object:
        return random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index]  # noqa: NPY002

    before = state()
    run_it()
    return before == state()


def _order_of_names(trial: Trial) -> None:
    """Ids are only labels: other ids in the same order must give the same schedule."""
    cluster = _CLUSTERS[0]
    applications, jobs = _workload(trial.make(), cluster, 2)
    renamed = [replace(job, id=f"{999 - i}-renamed") for i, job in enumerate(jobs)]
    first = trial.records(cluster, 2)
    second = run(trial.make(), renamed, cluster=cluster, applications=applications, seed=2)
    same = [job.jct_s for job in first.jobs] == [job.jct_s for job in second.jobs]
    expect(same, "the schedule changes when jobs are given other ids")


def _forgets(trial: Trial) -> None:
    """A policy that declares that it forgets schedules jobs on an idle cluster independently of earlier jobs."""
    if not trial.make().forgets:
        return
    for cluster in (_CLUSTERS[1], _CLUSTERS[3]):
        applications, jobs = _workload(trial.make(), cluster, 4)
        first = run(trial.make(), jobs, cluster=cluster, applications=applications, seed=4)
        again_s = max(job.end_time_s for job in first.jobs) + _LONG_S + 1
        later = [replace(job, id=f"{job.id}-again", submit_time_s=job.submit_time_s + again_s) for job in jobs]
        both = run(trial.make(), [*jobs, *later], cluster=cluster, applications=applications, seed=4)
        alone = run(trial.make(), later, cluster=cluster, applications=applications, seed=5)
        for table in ("jobs", "allocations", "decisions"):
            rows = getattr(alone, table)
            same = getattr(both, table)[-len(rows) :] == rows
            expect(same, f"it declares that it forgets, but earlier jobs change the {table} of later ones")


def _needs_models(policy: Policy) -> bool:
    """Return whether the policy rejects jobs that have only a duration."""
    applications = Applications()
    try:
        probe = JobSpec("probe", 0, 1, duration_s=1)
        policy.agent(probe.request, facts_of(applications.for_job(probe.request, probe.truth)))
    except InputError:
        return True
    return False


def _workload(policy: Policy, cluster: Cluster, seed: int) -> tuple[Applications, list[JobSpec]]:
    application = "toy" if _needs_models(policy) else FIXED_DURATION
    most = min(4, cluster.total_gpus)
    rng = np.random.default_rng(seed)
    jobs = random_jobs(rng, _JOBS, most_gpus=most, application=application)
    return Applications(two_type_application()), jobs


def _view(policy: Policy, cluster: Cluster, count: int, gpus: int = 2) -> FakeView:
    return _view_and_jobs(policy, cluster, count, gpus)[0]


def _view_and_jobs(policy: Policy, cluster: Cluster, count: int, gpus: int = 2) -> tuple[FakeView, dict[str, FakeJob]]:
    application = "toy" if _needs_models(policy) else FIXED_DURATION
    jobs = [
        JobSpec(f"job-{i}", 0, gpus, application=application, batch_size=32, duration_s=_LONG_S) for i in range(count)
    ]
    return fresh_view(policy, jobs, cluster, Applications(two_type_application()))


#: The checks by name, in the order in which they run.
CHECKS: dict[str, Callable[[Trial], None]] = {
    "declaration": _declaration,
    "empty queue": _empty_queue,
    "all nodes down": _all_nodes_down,
    "job larger than the cluster": _job_larger_than_cluster,
    "job larger than any GPU type": _job_larger_than_a_type,
    "a node is lost while it is held": _node_lost,
    "feasible decisions, every job finishes, nothing undeclared read": _feasible,
    "knows only what it declares": _knows_what_it_declares,
    "rigid jobs get what they asked for": _rigid_means_rigid,
    "same seed, same run": _deterministic,
    "no global random generator": _no_global_randomness,
    "names are labels": _order_of_names,
    "forgets as declared": _forgets,
}
