"""Checks a decision against cluster and jobs, never repairing it, and carries it out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from numbers import Integral
from types import MappingProxyType
from typing import Any

from simsched.engine.errors import EngineError, InfeasibleDecisionError
from simsched.engine.failures import Nodes
from simsched.engine.holders import Holders
from simsched.engine.ledger import Ledger
from simsched.engine.lifecycles import Watches
from simsched.engine.options import Terms
from simsched.engine.records import CANCELLED, Moves
from simsched.engine.state import ClusterState, JobState, gpu_type_of
from simsched.model import Allocation, NodeShape
from simsched.model.capacity import beside_of, cores_of
from simsched.model.cluster import Level
from simsched.model.colocation import Guarantee
from simsched.model.placement import NOTHING, describe
from simsched.model.topology import Route
from simsched.policy import Action, Cancel, Decision, Decline, Onto, Place, Stop
from simsched.words import counted

#: What `Place.more` may hold.
_TERMS = (Onto, Guarantee, Route)
#: The placement of a job that shares nothing.
ALONE = Place(NOTHING)


@dataclass(slots=True, eq=False)
class Changes:
    """The GPUs of jobs that a decision changes (() stops one; takeovers come last), and the actions it names."""

    gpus: dict[str, Allocation]
    actions: Mapping[str, Action]

    def saves(self, job_id: str) -> bool:
        """Return whether a job that loses its GPUs keeps its progress."""
        action = self.actions.get(job_id)
        return not isinstance(action, Place | Stop) or action.saved

    @property
    def cancelled(self) -> list[str]:
        """The jobs to cancel now."""
        return [job_id for job_id, action in self.actions.items() if isinstance(action, Cancel)]

    @property
    def shared(self) -> dict[str, Place]:
        """The jobs placed next to others or onto their GPUs."""
        places = ((job_id, one) for job_id, one in self.actions.items() if isinstance(one, Place))
        return {job_id: place for job_id, place in places if place.beside or host_of(place) is not None}


def host_of(action: Action) -> str | None:
    """Return the job whose GPUs a job gets exactly, None if none is named."""
    onto = action.term(Onto) if isinstance(action, Place) else None
    return None if onto is None else onto.job


NO_CHANGES = Changes({}, MappingProxyType({}))


def changes_of(decision: Decision, active: Mapping[str, JobState]) -> Changes:
    """Reduce a well-formed decision to its changes, in workload order if it names all jobs."""
    jobs, nothing = decision.jobs, NOTHING
    named = active if decision.rest == "stops" else jobs
    changes: dict[str, Any] = {
        job_id: jobs.get(job_id, nothing) for job_id in named if active[job_id].allocation != jobs.get(job_id, nothing)
    }
    actions = {job_id: new for job_id, new in jobs.items() if isinstance(new, Action)}
    for job_id, action in actions.items():
        held = active[job_id].allocation
        changes[job_id] = action.at
        if held == action.at and not (held and isinstance(action, Place) and _restarts(action, active[job_id])):
            del changes[job_id]
        elif host_of(action) is not None:
            changes[job_id] = changes.pop(job_id)
    return Changes(changes, actions or NO_CHANGES.actions)


def _restarts(place: Place, job: JobState) -> bool:
    """Return whether a job restarts on the GPUs that it holds: at the policy's request, or with another plan."""
    return place.restart or (place.plan is not None and place.plan != job.batch.plan)


def plain_changes(decision: Decision, active: Mapping[str, JobState], cluster: ClusterState) -> Changes | None:
    """Return in one pass the changes of a decision that is clearly feasible, as nearly all are.

    Clearly feasible are changes to plain GPUs of one type, as many as the job asked for, that differ from those it
    holds. None sends a decision to the checks that cover all cases and describe faults.
    """
    plain = cluster.occupancy is None and cluster.beside is None
    if not plain or decision.rest != "stays" or decision.nodes is not None:
        return None
    up, free, left, short = cluster.up, cluster.free, dict[int, int](), False
    for job_id, new in decision.jobs.items():
        if job_id not in active:
            return None
        job = active[job_id]
        if type(new) is not tuple or new == job.allocation or job.request.shape is not None:
            return None
        for node, gpus in job.allocation:
            left[node] = (left[node] if node in left else free[node]) + gpus
        missing = job.request.num_gpus if new else 0
        for node, gpus in new:
            if type(node) is not int or type(gpus) is not int or not (gpus > 0 <= node < cluster.size and up[node]):
                return None
            left[node] = (left[node] if node in left else free[node]) - gpus
            short |= left[node] < 0  # a job named later may leave
            missing -= gpus
        if missing or (new[1:] and (*dict(new).items(),) != new):  # or a node is named twice
            return None
        if cluster.several_types and new and gpu_type_of(cluster.cluster, new) is None:
            return None
    if short and min(left.values()) < 0:
        return None
    return Changes(dict(decision.jobs), NO_CHANGES.actions)  # type: ignore[arg-type]  # all of them are tuples


def wish_faults(decision: Decision, active: Mapping[str, JobState], nodes: int, now_s: float) -> Iterator[str]:
    """Yield the faults of a decision's form: inactive jobs, unknown nodes, times and thresholds that have been."""
    jobs, watch, wanted, wake_at_s = decision.jobs, decision.watch, decision.nodes, decision.wake_at_s
    if not (jobs.keys() <= active.keys() and watch.keys() <= active.keys()):
        yield from (f"job '{one}' is not active" for one in sorted(map(str, {*jobs, *watch} - active.keys())))
    if wanted is not None and not all(_whole(node) and 0 <= node < nodes for node in wanted):
        yield f"there are no other nodes to provision than 0 to {nodes - 1}"
    if wake_at_s is not None and not now_s < wake_at_s < inf:
        yield f"wake_at_s={wake_at_s} is no time in the future"
    for job_id, threshold in watch.items():
        attained = active[job_id].attained_gpu_s if job_id in active else -inf
        if not threshold > attained:
            yield f"job '{job_id}' is watched for {threshold} GPU-s, but has attained {attained} already"
    if decision.rest not in ("stops", "stays"):
        yield f"the rest of the jobs 'stops' or 'stays', and is to {decision.rest!r:.40}"
    for job_id, new in jobs.items():
        if type(new) is not tuple and not isinstance(new, Action | Sequence):
            yield f"job '{job_id}' is to get {new!r:.40}, which is neither GPUs, as in ((node, gpus),), nor an action"


def change_faults(
    changes: Changes, active: Mapping[str, JobState], cluster: ClusterState, *, rigid: bool = False
) -> list[str]:
    """List malformed allocations, those that nodes cannot hold, and GPUs that a job cannot use.

    `rigid` policies grant every job all GPUs it asked for or none.
    """
    reasons: list[str] = []
    balance: dict[int, int] = {}
    for job_id, new in changes.gpus.items():
        job = active[job_id]
        for node, gpus in job.allocation:
            balance[node] = balance.get(node, 0) + gpus
        if new == NOTHING:
            continue
        malformed = _malformed(new, cluster, min(job.request.num_gpus, 1))
        if malformed:
            reasons += [f"job '{job_id}': {reason}" for reason in malformed]
            continue
        given = 0
        for node, gpus in new:
            balance[node] = balance.get(node, 0) - gpus
            given += gpus
        if new and given != job.request.num_gpus:
            reasons += _wrong_count(job, given, rigid=rigid)
        if job.request.shape is not None:
            reasons += _out_of_shape(job, job.request.shape, new, cluster, rigid=rigid)
    if changes.actions:
        reasons += _wrong_plans(changes, active, cluster)
        reasons += _wrong_terms(changes, cluster.cluster.levels)
        reasons += _wrong_neighbours(changes, active, sharing=cluster.occupancy is not None)
    if not reasons and cluster.occupancy is not None:
        reasons += _short_of_shares(changes, cluster.occupancy, balance)
    elif not reasons:
        for node in sorted(balance):
            left = cluster.free[node] + balance[node]
            if left < 0:
                users = [job_id for job_id, new in changes.gpus.items() if any(node == at for at, _ in new)]
                capacity = cluster.cluster.nodes[node].gpus
                reasons.append(f"node {node} ({capacity} GPUs) is {-left} GPUs short for jobs {', '.join(users)}")
    shapes = (active[job_id].request.shape for job_id in changes.gpus)
    shaped = cluster.beside is not None or any(shape is not None and shape.exclusive for shape in shapes)
    if shaped and not reasons:
        reasons += _short_beside(changes, active, cluster, balance)
    return reasons


def _out_of_shape(
    job: JobState, shape: NodeShape, new: Allocation, cluster: ClusterState, *, rigid: bool
) -> Iterator[str]:
    """Yield the faults of GPUs of another type than the job asked for or, under rigid policies, in another shape."""
    kind = gpu_type_of(cluster.cluster, new)
    wrong_type = shape.gpu_types is not None and kind not in shape.gpu_types
    if wrong_type or (rigid and not shape.is_like(tuple(gpus for _, gpus in new))):
        yield f"job '{job.request.id}' asked for {shape.said} and is given {describe(new)} (node:GPUs) of type {kind}"


def _short_beside(
    changes: Changes, active: Mapping[str, JobState], cluster: ClusterState, balance: Mapping[int, int]
) -> Iterator[str]:
    """Yield the nodes that lack cores or memory, or that a job needs exclusively but shares."""
    nodes = cluster.cluster.nodes
    taken: dict[int, tuple[int, int]] = {}
    alone: dict[int, tuple[int, int]] = {}

    def held(node: int) -> tuple[int, int]:
        return (0, 0) if cluster.beside is None else cluster.beside[node]

    for job_id, new in changes.gpus.items():
        shape = active[job_id].request.shape
        if shape is None:
            continue
        for sign, at in ((-1, active[job_id].allocation), (1, new)):
            for (node, (cpu, memory)), (_, gpus) in zip(beside_of(nodes, shape, at), at, strict=True):
                had = taken[node] if node in taken else held(node)
                taken[node] = had[0] + sign * cpu, had[1] + sign * memory
                if sign > 0 and shape.exclusive:
                    alone[node] = cpu, gpus
    for node in sorted({node for new in changes.gpus.values() for node, _ in new}):
        (cpu, memory), has = taken.get(node, held(node)), nodes[node]
        if node in alone:
            idle = cluster.free[node] + balance.get(node, 0) + alone[node][1] == has.gpus
            if not idle or cpu != alone[node][0]:
                yield f"node {node} is to be one job's alone, and others hold some of it"
        elif cpu > cores_of(has):
            yield f"node {node} is {(cpu - cores_of(has)) / 1000:g} cores short, or another job's alone"
        if has.memory_mib is not None and memory > has.memory_mib:
            yield f"node {node} is {memory - has.memory_mib} MiB of memory short"


def _wrong_plans(changes: Changes, active: Mapping[str, JobState], cluster: ClusterState) -> Iterator[str]:
    """Yield the reasons why jobs cannot run the plans named for them."""
    for job_id, action in changes.actions.items():
        plan = action.plan if isinstance(action, Place) else None
        if plan is None or not action.at or any(_malformed(action.at, cluster, 1)):
            continue
        known, kind = active[job_id].facts.plans, gpu_type_of(cluster.cluster, action.at)
        if known is None or kind is None:
            yield f"job '{job_id}' is to run the plan '{plan}', and {active[job_id].app.name} knows no plans"
            continue
        reason = known.refusal(plan, kind, sum(gpus for _, gpus in action.at), active[job_id].request.batch_size)
        if reason is not None:
            yield f"job '{job_id}' cannot run the plan '{plan}': {reason}"


def _wrong_terms(changes: Changes, levels: Sequence[Level]) -> Iterator[str]:
    """Yield the terms that no physics understands, and the paths that do not exist."""
    there = tuple(level.paths for level in levels)
    for job_id, action in changes.actions.items():
        if not isinstance(action, Place):
            continue
        for term in action.more:
            if not isinstance(term, _TERMS):
                yield f"job '{job_id}' is placed with {term!r:.40}, and a term is an Onto, a Guarantee or a Route"
        route = action.term(Route)
        paths = None if route is None else route.paths
        if paths is None:
            continue
        if len(paths) != len(there) or any(path not in range(most) for path, most in zip(paths, there, strict=True)):
            yield f"job '{job_id}' is to take the paths {paths}, and the levels of the cluster have {there}"


def _wrong_neighbours(changes: Changes, active: Mapping[str, JobState], *, sharing: bool) -> Iterator[str]:
    """Yield the faults of jobs placed next to others without sharing, or next to jobs without GPUs."""
    shared = changes.shared
    for job_id, place in shared.items():
        host = host_of(place)
        if host in changes.gpus and host in shared and host_of(shared[host]) is not None:
            yield f"job '{job_id}' is to get the GPUs of job '{host}', which is to get those of a third"
    for job_id, place in shared.items():
        if not sharing:
            yield f"job '{job_id}' is to share GPUs, which engine.sharing.max_jobs does not allow"
            continue
        host = host_of(place)
        for other in (*place.beside, *(() if host is None else (host,))):
            if other not in active or not changes.gpus.get(other, active[other].allocation):
                yield f"job '{job_id}' is to share GPUs with job '{other}', which does not run"


def _short_of_shares(changes: Changes, occupancy: Holders, nodes: Collection[int]) -> Iterator[str]:
    """Try the changes on a copy of the holders."""
    trial, shared = occupancy.copy_of(nodes), changes.shared
    for job_id in changes.gpus:
        trial.give_back(job_id)
    for job_id, new in changes.gpus.items():
        place = shared.get(job_id, ALONE)
        short = trial.take(job_id, new, place.beside, host_of(place)) if new else None
        if short is not None:
            yield f"job '{job_id}': {short}"


def _wrong_count(job: JobState, given: int, *, rigid: bool) -> list[str]:
    """List the faults of a GPU count: it breaks the policy's promise, or the job's duration on it is unknown."""
    said = f"job '{job.request.id}' asked for {counted(job.request.num_gpus, 'GPU')} and is given {given}"
    if rigid:
        return [f"{said}, but the policy is rigid; declare Traits(rigid=False) if it may do so"]
    if not job.facts.other_counts:
        return [f"{said}, where its duration is not known; declare workload.speedup, or use a rigid policy"]
    return []


def leaving_faults(nodes: Collection[int], gpus: Mapping[str, Allocation], active: Mapping[str, JobState]) -> list[str]:
    """List the nodes outside `nodes` that are to go but hold jobs, each with its jobs."""
    kept, users = set(nodes), dict[int, list[str]]()
    for job_id, job in active.items():
        for node, _ in gpus.get(job_id, job.allocation):
            if node not in kept:
                users.setdefault(node, []).append(job_id)
    return [f"node {node} is to go but holds jobs {', '.join(users[node])}" for node in sorted(users)]


def _whole(number: object) -> bool:
    """Return whether a value is an integer, numpy's included, but not a bool."""
    return isinstance(number, Integral) and not isinstance(number, bool)


def _malformed(allocation: Allocation, cluster: ClusterState, least: int) -> list[str]:
    up, known = cluster.up, len(cluster.up)
    broken = [part for pair in allocation for part in pair if type(part) is not int and not _whole(part)]
    if broken:
        return [f"{broken[0]!r} is not a whole number, as nodes and their GPUs are, in {allocation}"]
    if len(allocation) == 1 and 0 <= allocation[0][0] < known and up[allocation[0][0]] and allocation[0][1] >= least:
        return []  # the common case
    nodes = [node for node, _ in allocation]
    reasons = [f"there is no node {node}" for node in nodes if not 0 <= node < known]
    if reasons:
        return reasons
    reasons += [f"node {node} is down" for node in nodes if not up[node]]
    reasons += [f"{gpus} GPUs on node {node}" for node, gpus in allocation if gpus < least]
    if len(set(nodes)) < len(nodes):
        reasons.append(f"a node is named twice in {allocation}")
    elif nodes and gpu_type_of(cluster.cluster, allocation) is None:
        reasons.append(f"GPU types are mixed in {allocation}")
    return reasons


@dataclass(eq=False)
class Enactment:
    """Applies decisions to the active jobs through the ledger, nodes and watches."""

    _terms: Terms
    _ledger: Ledger
    _nodes: Nodes
    _watches: Watches

    def check(self, decision: Decision) -> Changes:
        """Return what a decision changes; raises `InfeasibleDecisionError` if it is infeasible."""
        active, cluster = self._ledger.active, self._ledger.cluster
        changes = plain_changes(decision, active, cluster)
        if changes is not None and decision.wake_at_s is None and not decision.watch:
            return changes
        self._refuse(wish_faults(decision, active, cluster.size, self._ledger.clock.now_s))
        if changes is not None:
            return changes
        changes = changes_of(decision, active)
        self._refuse(change_faults(changes, active, cluster, rigid=self._terms.rigid))
        if decision.nodes is not None:
            self._refuse(leaving_faults(decision.nodes, changes.gpus, active))
        return changes

    def _refuse(self, faults: Iterable[str]) -> None:
        reasons = list(faults)
        if reasons:
            raise InfeasibleDecisionError(self._terms.name, self._ledger.clock.now_s, reasons)

    def carry_out(self, changes: Changes, decision: Decision) -> Moves:
        """Carry out a checked decision; raises `InfeasibleDecisionError` if jobs do not fit on the GPUs they share."""
        for job_id, action in changes.actions.items() if changes.actions else ():
            if isinstance(action, Decline):
                self._ledger.active[job_id].declined = True
            elif isinstance(action, Place) and action.more:
                self._ledger.agree(self._ledger.active[job_id], action)
        try:
            moves = self._move(changes)
            if self._ledger.neighbourhood is not None or self._ledger.share_uplinks is not None:
                self._ledger.set_speeds()
        except EngineError as error:
            raise InfeasibleDecisionError(self._terms.name, self._ledger.clock.now_s, [str(error)]) from error
        if decision.nodes is not None:
            self._nodes.provision(set(decision.nodes))
        if decision.watch:
            self._ledger.tell(self._watches, first=True)
            for job_id, attained_gpu_s in decision.watch.items():
                self._watches.watch(self._ledger.active[job_id], attained_gpu_s)
        return moves

    def _move(self, changes: Changes) -> Moves:
        ledger, active = self._ledger, self._ledger.active
        placed = held = moved = 0
        for job_id, allocation in changes.gpus.items():
            job = active[job_id]
            if job.allocation:
                held += 1
                if allocation:
                    moved += 1
                if changes.actions and not changes.saves(job_id):
                    ledger.begin_anew(job)
                else:
                    ledger.release(job)
        for job_id in changes.cancelled if changes.actions else ():
            ledger.complete(active[job_id], CANCELLED)
        for job_id, allocation in changes.gpus.items():
            named = changes.actions.get(job_id) if changes.actions else None
            if not allocation:
                continue
            placed += 1
            if named is not None and isinstance(named, Place):
                ledger.place(active[job_id], allocation, named.beside, host_of(named), named.plan)
            else:
                ledger.place(active[job_id], allocation)
        return placed - moved, held - moved, moved
