"""Checks a decision against cluster and jobs; the engine never repairs one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from math import inf
from numbers import Integral

from simsched.engine.errors import InfeasibleDecisionError
from simsched.engine.occupancy import Occupancy
from simsched.engine.state import ClusterState, JobState, gpu_type_of
from simsched.model import NOTHING, Allocation
from simsched.policy import Decision
from simsched.words import counted


def changes_of(decision: Decision, active: Mapping[str, JobState]) -> dict[str, Allocation]:
    """Reduce a decision to the jobs that it places or stops, in workload order for a complete one.

    Jobs that get the GPUs of others come last.
    """
    wanted, anew = decision.allocations, decision.anew
    if decision.complete:
        nothing: Allocation = ()
        changes = {
            job_id: wanted.get(job_id, nothing)
            for job_id, job in active.items()
            if job.allocation != wanted.get(job_id, nothing) or (job_id in anew and job.allocation)
        }
    else:
        changes = {job_id: () for job_id in decision.stop if active[job_id].allocation}
        changes |= {job_id: new for job_id, new in wanted.items() if active[job_id].allocation != new or job_id in anew}
    if decision.cancel:
        changes |= {job_id: () for job_id in decision.cancel if active[job_id].allocation}
    for job_id in decision.onto:
        if job_id in changes:
            changes[job_id] = changes.pop(job_id)
    return changes


def check_names(decision: Decision, active: Mapping[str, JobState], nodes: int, policy: str, now_s: float) -> None:
    """Refuse a decision about jobs that are not active, or about other nodes than the cluster's.

    Raises `InfeasibleDecisionError`.
    """
    others = (
        decision.stop, decision.watch, decision.onto, decision.cancel, decision.declined, decision.unsaved,
        decision.guaranteed,
    )  # fmt: skip
    plain = decision.wake_at_s is None and decision.target_nodes is None and not any(others)
    if plain and decision.allocations.keys() <= active.keys():
        return  # it places jobs and does nothing else, as most do
    named = (decision.allocations, *others)
    unknown = [job_id for ids in named if ids for job_id in ids if job_id not in active]
    if unknown:
        reasons = [f"job '{job_id}' is not active" for job_id in sorted({str(job_id) for job_id in unknown})]
        raise InfeasibleDecisionError(policy, now_s, reasons)
    if decision.complete and decision.stop:
        raise InfeasibleDecisionError(policy, now_s, ["a complete decision stops jobs by not naming them"])
    placed = sorted({*decision.cancel} & {*decision.allocations}) if decision.cancel else ()
    if placed:
        raise InfeasibleDecisionError(policy, now_s, [f"job '{job_id}' is placed and cancelled" for job_id in placed])
    if decision.target_nodes is not None and not all(
        _whole(node) and 0 <= node < nodes for node in decision.target_nodes
    ):
        raise InfeasibleDecisionError(policy, now_s, [f"target_nodes names nodes outside 0 to {nodes - 1}"])
    if decision.wake_at_s is not None and not now_s < decision.wake_at_s < inf:
        raise InfeasibleDecisionError(policy, now_s, [f"wake_at_s={decision.wake_at_s} is no time in the future"])
    if decision.watch:
        _check_watched(decision, active, policy, now_s)


def _check_watched(decision: Decision, active: Mapping[str, JobState], policy: str, now_s: float) -> None:
    reached = [
        f"job '{job_id}' is watched for {threshold} GPU-s, but has attained {active[job_id].attained_gpu_s} already"
        for job_id, threshold in decision.watch.items()
        if not threshold > active[job_id].attained_gpu_s
    ]
    if reached:
        raise InfeasibleDecisionError(policy, now_s, reached)


def check_changes(
    changes: Mapping[str, Allocation],
    active: Mapping[str, JobState],
    cluster: ClusterState,
    decision: Decision,
    policy: str,
    now_s: float,
    *,
    rigid: bool = False,
) -> None:
    """Refuse changes that the nodes cannot hold, that are no allocations at all, or give a job GPUs it cannot use.

    `rigid` tells that the policy promises every job the GPUs that it asked for, or none.

    Raises `InfeasibleDecisionError` with every reason.
    """
    if not changes and not decision.beside and not decision.onto:
        return
    reasons: list[str] = []
    balance: dict[int, int] = {}
    for job_id, new in changes.items():
        job = active[job_id]
        for node, gpus in job.allocation:
            balance[node] = balance.get(node, 0) + gpus
        if new == NOTHING:
            continue
        malformed = _malformed(new, cluster)
        if malformed:
            reasons += [f"job '{job_id}': {reason}" for reason in malformed]
            continue
        given = 0
        for node, gpus in new:
            balance[node] = balance.get(node, 0) - gpus
            given += gpus
        if new and given != job.request.num_gpus:
            reasons += _wrong_count(job, given, rigid=rigid)
    if decision.beside or decision.onto:
        reasons += _wrong_neighbours(decision, changes, active, sharing=cluster.occupancy is not None)
    if not reasons and cluster.occupancy is not None:
        reasons += _short_of_shares(changes, cluster.occupancy, decision, balance)
    elif not reasons:
        for node in sorted(balance):
            left = cluster.free[node] + balance[node]
            if left < 0:
                users = [job_id for job_id, new in changes.items() if any(node == at for at, _ in new)]
                capacity = cluster.cluster.nodes[node].gpus
                reasons.append(f"node {node} ({capacity} GPUs) is {-left} GPUs short for jobs {', '.join(users)}")
    if reasons:
        raise InfeasibleDecisionError(policy, now_s, reasons)


def _wrong_neighbours(
    decision: Decision,
    changes: Mapping[str, Allocation],
    active: Mapping[str, JobState],
    *,
    sharing: bool,
) -> Iterator[str]:
    """Find jobs placed beside others where nothing may be shared, or beside jobs that hold nothing."""
    named = {job_id: tuple(others) for job_id, others in decision.beside.items()}
    for job_id, other in decision.onto.items():
        named[job_id] = (*named.get(job_id, ()), other)
        if other in decision.onto and other in changes:
            yield f"job '{job_id}' is to get the GPUs of job '{other}', which is to get those of a third"
    for job_id, others in named.items():
        if others and not sharing:
            yield f"job '{job_id}' is to share GPUs, which engine.sharing.max_jobs does not allow"
            continue
        for other in others:
            if other not in active or not changes.get(other, active[other].allocation):
                yield f"job '{job_id}' is to share GPUs with job '{other}', which does not run"


def _short_of_shares(
    changes: Mapping[str, Allocation],
    occupancy: Occupancy,
    decision: Decision,
    nodes: Collection[int],
) -> Iterator[str]:
    """Try the changes on a copy of who holds what."""
    trial = occupancy.copy_of(nodes)
    for job_id in changes:
        trial.give_back(job_id)
    for job_id, new in changes.items():
        beside, onto = decision.beside.get(job_id, ()), decision.onto.get(job_id)
        short = trial.take(job_id, new, beside, onto) if new else None
        if short is not None:
            yield f"job '{job_id}': {short}"


def _wrong_count(job: JobState, given: int, *, rigid: bool) -> list[str]:
    """Say where another number of GPUs breaks the policy's promise, or is one on which the duration is not known."""
    said = f"job '{job.request.id}' asked for {counted(job.request.num_gpus, 'GPU')} and is given {given}"
    if rigid:
        return [f"{said}, but the policy is rigid; declare rigid = False if it may do so"]
    if getattr(job.app, "only_gpus", None) is not None:
        return [f"{said}, where its duration is not known; declare workload.speedup, or use a rigid policy"]
    return []


def check_nodes_to_leave(
    target_nodes: Collection[int],
    changes: Mapping[str, Allocation],
    active: Mapping[str, JobState],
    policy: str,
    now_s: float,
) -> None:
    """Refuse to let nodes go that hold jobs after the decision.

    Raises `InfeasibleDecisionError` with every such node and its jobs.
    """
    kept = set(target_nodes)
    users: dict[int, list[str]] = {}
    for job_id, job in active.items():
        for node, _ in changes.get(job_id, job.allocation):
            if node not in kept:
                users.setdefault(node, []).append(job_id)
    if users:
        reasons = [f"node {node} is to go but holds jobs {', '.join(users[node])}" for node in sorted(users)]
        raise InfeasibleDecisionError(policy, now_s, reasons)


def _whole(number: object) -> bool:
    """Return whether something is a whole number, numpy's among them; `True` is none."""
    return isinstance(number, Integral) and not isinstance(number, bool)


def _malformed(allocation: Allocation, cluster: ClusterState) -> list[str]:
    up, known = cluster.up, len(cluster.up)
    broken = [part for pair in allocation for part in pair if type(part) is not int and not _whole(part)]
    if broken:
        return [f"{broken[0]!r} is no whole number, as nodes and their GPUs are, in {allocation}"]
    if len(allocation) == 1 and 0 <= allocation[0][0] < known and up[allocation[0][0]] and allocation[0][1] >= 1:
        return []  # as nearly all are
    nodes = [node for node, _ in allocation]
    reasons = [f"there is no node {node}" for node in nodes if not 0 <= node < known]
    if reasons:
        return reasons
    reasons += [f"node {node} is down" for node in nodes if not up[node]]
    reasons += [f"{gpus} GPUs on node {node}" for node, gpus in allocation if gpus < 1]
    if len(set(nodes)) < len(nodes):
        reasons.append(f"a node is named twice in {allocation}")
    elif nodes and gpu_type_of(cluster.cluster, allocation) is None:
        reasons.append(f"GPU types are mixed in {allocation}")
    return reasons
