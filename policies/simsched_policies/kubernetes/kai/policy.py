"""KAI: queues divide the cluster; waiting jobs consolidate others and reclaim what exceeds a fair share.

Idea: NVIDIA's KAI-Scheduler binds pods itself. Queues deserve GPUs and divide the remaining ones by weight; a round
allocates free GPUs, moves preemptible jobs to make room (consolidation), reclaims from queues above their fair share,
and preempts jobs of lower priority of the same queue (KAI-Scheduler v0.13, documentation and rules of its actions).
Deviations: a round follows every change instead of every second; victims leave at once, so that the pods for which KAI
reserves a place start in the same decision; jobs keep their progress; a job's pods are equal and as large as a node
holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np

from simsched.agent import Agent
from simsched.errors import input_error, nearest
from simsched.model import Allocation, ApplicationFacts, Cluster, JobRequest, gpus_of
from simsched.model.cluster import Tenant
from simsched.policy import (
    INPUT_FILE,
    Action,
    Becomes,
    Decision,
    JobView,
    Onto,
    Place,
    Policy,
    Reasons,
    Traits,
    View,
    Wants,
    Why,
)
from simsched.policy.physics import JOBS_OF_TENANTS, QUOTAS
from simsched_policies.kubernetes.kai.board import Board
from simsched_policies.kubernetes.kai.division import UsageWindow
from simsched_policies.kubernetes.kai.model import (
    FREE,
    GPU,
    UNLIMITED,
    Amounts,
    Ask,
    Constraint,
    Held,
    Job,
    Node,
    Pod,
    Queue,
    Quota,
    Rules,
    Snapshot,
    exceeds,
)
from simsched_policies.kubernetes.kai.objects import Declared, Group, read_declared
from simsched_policies.kubernetes.kai.order import Order
from simsched_policies.kubernetes.kai.round import run_round

#: The amount of a resource that a node does not declare.
_PLENTY = 1e12
_TOPOLOGY = "cluster"
#: 10^6 bytes, in which KAI counts memory, in a MiB.
_MB = 1.048576
#: Suffix of the leaf queue for the own jobs of a tenant with others below it: only leaves take jobs.
_OWN = "/own"


@dataclass
class Kai(Policy):
    """Runs rounds of KAI-Scheduler: allocate, consolidation, reclaim, preempt.

    Every tenant is a queue that deserves its own GPUs (`gpus` or `share`) and divides the rest by `weight`, at most
    `max_gpus`, below its `parent`. Guaranteed jobs are not preemptible and stay within what their queue deserves; they
    and jobs of higher priority preempt others of their queue. A waiting job within its queue's fair share reclaims from
    queues above theirs, after `reclaim_min_runtime_s`. Up to `max_consolidation_preemptees` jobs move to make room (0:
    none, -1: no limit). Jobs prefer not to cross the level `prefers_within` (0 is the lowest). With `usage_window_s`,
    queues that used less in that time get more of the over-quota resources, scaled by `k_value`; the weight of use
    halves every `usage_half_life_s`, and use is evaluated every `usage_period_s`. With `min_share` below 1 jobs are
    elastic and start with that share of their pods.

    With `objects`, a file or folder of Kubernetes objects, KAI's Queues define the queues, by the names of tenants, and
    PodGroups of their name or the labels of their workloads define jobs; other jobs are as above. `allow` names fields
    that are not modelled but accepted.
    """

    name: ClassVar[str] = "kai"
    traits: ClassVar[Traits] = Traits(
        wants={
            QUOTAS: Becomes("divides the cluster among the queues by weight"),
            JOBS_OF_TENANTS: Becomes("has one queue for all jobs"),
        },
        reads_tenants=True,
    )

    tenants: Mapping[str, Tenant] = field(default_factory=dict)
    objects: Annotated[str | None, INPUT_FILE] = None
    allow: Sequence[str] = ()
    gpus_per_pod: int = 0
    min_share: float = 1.0
    prefers_within: int = -1
    placement: Literal["binpack", "spread"] = "binpack"
    devices: Literal["pack", "spread"] = "pack"
    max_consolidation_preemptees: int = 16
    saturation_multiplier: float = 1.0
    preempt_min_runtime_s: float = 0.0
    reclaim_min_runtime_s: float = 0.0
    usage_window_s: float = 0.0
    usage_half_life_s: float = 0.0
    usage_period_s: float = 60.0
    k_value: float = 1.0
    schedule_period_s: float = 1.0
    _declared: Declared = field(default_factory=Declared, init=False, repr=False)
    #: Jobs by name, in order of arrival, which gives their ids.
    _jobs: dict[str, Job] = field(default_factory=dict, init=False, repr=False)
    _arrived: int = field(default=0, init=False, repr=False)
    #: The pods of the jobs that hold GPUs, and since when each job does.
    _held: dict[str, dict[str, Held]] = field(default_factory=dict, init=False, repr=False)
    _started_s: dict[str, float] = field(default_factory=dict, init=False, repr=False)
    _usage: UsageWindow = field(init=False, repr=False)
    _last: tuple[float, dict[str, Amounts], Amounts] | None = field(default=None, init=False, repr=False)
    _cluster: Cluster = field(default_factory=Cluster.uniform, init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse invalid values."""
        if not 0 < self.min_share <= 1 or self.gpus_per_pod < 0:
            raise ValueError("min_share must be above 0 and at most 1, gpus_per_pod at least 0")
        if self.schedule_period_s <= 0 or self.usage_period_s <= 0:
            raise ValueError("schedule_period_s and usage_period_s must be above 0")
        if self.objects is not None:
            if self.tenants:
                raise ValueError("objects and tenants exclude each other: the objects say who has which quota")
            self._declared = read_declared(Path(self.objects), self.allow)
        self._usage = UsageWindow(self.usage_window_s, self.usage_half_life_s)

    @property
    def rigid(self) -> bool:
        """Return whether jobs get the GPUs that they ask for or none."""
        return self.min_share >= 1 and all(group.min_member is None for group in self._declared.groups.values())

    @property
    def counts_on(self) -> Wants:
        """Return nothing if the objects declare the quotas."""
        return {} if self.objects is not None else super().counts_on

    @cached_property
    def _rules(self) -> Rules:
        consolidates = self.placement == "binpack"
        return Rules(
            ("allocate", *(("consolidation",) if consolidates else ()), "reclaim", "preempt"),
            self.k_value,
            self.max_consolidation_preemptees,
            self.saturation_multiplier,
            placement=self.placement,
            devices=self.devices,
        )

    def begin(self, cluster: Cluster) -> None:
        """Learn the size of nodes."""
        self._cluster = cluster

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        """Refuse a job that asks for exclusive nodes, which KAI cannot express."""
        if request.shape is not None and request.shape.exclusive:
            remedy = "take 'exclusive' out of the job's shape, or another policy"
            raise input_error(f"job {request.id}", "wants nodes to itself, and kai has no such request", remedy)
        return super().agent(request, facts)

    @property
    def follows(self) -> str:
        """Return the release of KAI that is modelled."""
        return "KAI-Scheduler v0.13"

    def check_jobs(self, jobs: Sequence[JobView], cluster: Cluster) -> None:
        """Refuse a job that its queue can never admit: above a limit, or guaranteed and above what is deserved."""
        total = cluster.total_gpus
        for job in jobs:
            group = self._group(job)
            gpus = job.num_gpus * (job.request.gpu_share if job.num_gpus == 1 else 1)
            name: str | None = group.queue
            while name is not None:
                queue = self._queue(name, total)
                quota = queue.quotas[GPU]
                most = quota.limit if group.preemptible or exceeds(gpus, quota.limit) else quota.quota
                if group.min_member is None and exceeds(gpus, most):
                    what = (
                        "asks for too much" if most == quota.limit else "is guaranteed and asks for more than deserved"
                    )
                    message = f"{what}: {gpus:g} GPUs, and queue '{name}' has {most:g}"
                    raise input_error(f"job {job.id}", message, "give the queue more, or have the job ask for less")
                name = queue.parent

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Run a round on the state in the view."""
        self._look(view)
        snapshot = self._snapshot(view)
        board = run_round(snapshot)
        if view.reasons is not None:
            self._tell(board, view.reasons)
        start, stop = self._changes(view, board)
        waits = any(board.pending(job) for job in board.jobs.values())
        self._last = (view.now_s, {n: e.allocated for n, e in board.ledger.entries.items()}, board.ledger.total)
        again_s = self._next_round_s(view.now_s, snapshot.queues, stopped=bool(stop)) if waits else None
        return Decision.change(start, stop, wake_at_s=again_s)

    def _tell(self, board: Board, reasons: Reasons) -> None:
        """Return the order of waiting jobs, and the limits or quotas of queues that keep them waiting."""
        names = {job.id: name for name, job in self._jobs.items()}
        waiting = [job for job in board.jobs.values() if board.pending(job)]
        order = Order(board, waiting, lambda job: board.asks(board.pending(job)))
        found: dict[str, float] = {}
        while (job := order.pop()) is not None:
            found[names[job.id]] = -job.priority
            if board.ledger.refuses(job.queue, board.asks(board.pending(job)), preemptible=job.preemptible):
                reasons.wait(names[job.id], Why.OVER_QUOTA, f"queue {job.queue} may not hold more for it")
        reasons.order(found)

    def _next_round_s(self, now_s: float, queues: Sequence[Queue], *, stopped: bool) -> float | None:
        """Return when to decide again while jobs wait: after jobs stop, at a sample of use, or when protection ends."""
        coming = [now_s + self.schedule_period_s] if stopped else []
        if self.usage_window_s > 0:
            coming.append((now_s // self.usage_period_s + 1) * self.usage_period_s)
        spans_s = {s for one in queues for s in (one.preempt_min_runtime_s, one.reclaim_min_runtime_s) if s}
        ends_s = (self._started_s[name] + span_s for name in self._held for span_s in spans_s)
        return min((*coming, *(end_s for end_s in ends_s if end_s > now_s)), default=None)

    def _look(self, view: View) -> None:
        """Record arrivals, completions, losses, and the use of queues since the last decision."""
        if self.usage_window_s > 0 and self._last is not None:
            since_s, held, capacity = self._last
            self._usage.note(since_s, view.now_s, held, capacity)
        for job in view.arrived:
            self._arrived += 1
            self._jobs[job.id] = self._job(job, f"{self._arrived:09d}", view)
        for name in view.finished:
            self._jobs.pop(name, None)
            self._held.pop(name, None)
        for name in [name for name in self._held if not view.jobs[name].running]:
            del self._held[name]

    def _job(self, view: JobView, number: str, all_: View) -> Job:
        """Return a job with its pods: one per node of its shape, or equal ones that fit on nodes."""
        request = view.request
        shape, shares = request.shape, request.gpu_share < 1 and all_.max_jobs_per_gpu > 1 and view.num_gpus == 1
        kinds = None if shape is None else shape.gpu_types
        fitting = [
            n for n in self._cluster.nodes if view.facts.runs_on(n.gpu_type) and (not kinds or n.gpu_type in kinds)
        ]
        largest = max((node.gpus for node in fitting), default=0)
        if shape is not None and shape.nodes:
            pods, gpus = shape.nodes, shape.each.gpus
        else:
            most = max(1, min(largest, self.gpus_per_pod or largest))
            gpus = max(size for size in range(1, min(most, view.num_gpus or 1) + 1) if (view.num_gpus or 1) % size == 0)
            pods, gpus = max(1, view.num_gpus // gpus), min(gpus, view.num_gpus)
        cpu, memory_mib = (0, 0) if shape is None else shape.beside(gpus)
        ask = Ask(cpu, memory_mib * _MB, gpus, request.gpu_share if shares else 1.0)
        group = self._group(view)
        if group.nodes is not None:
            fitting = [node for node in fitting if node.index in group.nodes]
        nodes = None if len(fitting) == len(self._cluster.nodes) else frozenset(_name(node.index) for node in fitting)
        least = group.min_member or max(1, int(np.ceil(self.min_share * pods - 1e-9)))
        if least > pods:
            message, remedy = (
                f"its minMember is {least}, and the job has {pods} pods",
                "have it ask for no more than these",
            )
            raise input_error(f"PodGroup {view.id}", message, remedy)
        return Job(
            number,
            group.queue,
            tuple(Pod(f"{number}-{index:04d}", ask, nodes=nodes) for index in range(pods)),
            group.priority,
            group.preemptible,
            least,
            constraint=self._constraint(None if shape is None else shape.within, pods),
            created_s=request.submit_time_s,
        )

    def _constraint(self, within: int | None, pods: int) -> Constraint | None:
        """Return the levels that a job must not or preferably does not cross; a job never mixes GPU types."""
        required = "gpu-type" if len(self._cluster.gpus_by_type) > 1 and pods > 1 else ""
        preferred = _label(self.prefers_within) if 0 <= self.prefers_within < len(self._cluster.levels) else ""
        if within is not None:
            required = _label(within)
            preferred = preferred if 0 <= self.prefers_within < within else ""
        return Constraint(_TOPOLOGY, required, preferred) if required or preferred else None

    def _group(self, job: JobView) -> Group:
        """Return a job's PodGroup, or one from its request; raises `InputError` for a queue that takes no jobs."""
        request = job.request
        own = Group(self._leaf(request.tenant), None, request.priority, not request.guaranteed)
        group = self._declared.groups.get(job.id, own)
        group = group if group.queue else replace(group, queue=own.queue)
        if self.objects is not None and not self._declared.is_leaf(group.queue):
            message = f"is for queue '{group.queue}', which is not declared or has others below it"
            leaves = filter(self._declared.is_leaf, self._declared.queues)
            raise input_error(f"job {job.id}", message, nearest(group.queue, leaves))
        return group

    def _leaf(self, tenant: str) -> str:
        return tenant + _OWN if tenant in {one.parent for one in self.tenants.values()} and tenant else tenant

    def _snapshot(self, view: View) -> Snapshot:
        nodes = tuple(
            Node(
                _name(node.index),
                node.gpus,
                _PLENTY if node.cpu_milli is None else node.cpu_milli,
                _PLENTY if node.memory_mib is None else node.memory_mib * _MB,
                labels={"gpu-type": node.gpu_type, **{_label(n): str(domain) for n, domain in enumerate(node.domains)}},
            )
            for node, up in zip(view.nodes, view.up, strict=True)
            if up
        )
        levels = ("gpu-type", *(_label(number) for number in reversed(range(len(self._cluster.levels)))))
        jobs = tuple(
            replace(job, started_s=self._started_s[name]) if name in self._held else job
            for name, job in self._jobs.items()
            if name in view.jobs
        )
        total = sum(node.gpus for node in nodes)
        return Snapshot(
            nodes,
            self._queues(jobs, total),
            jobs,
            {pod: held for pods in self._held.values() for pod, held in pods.items()},
            {_TOPOLOGY: levels},
            self._usage.at(view.now_s) if self.usage_window_s > 0 else {},
            view.now_s,
            replace(self._rules, max_per_device=view.max_jobs_per_gpu),
        )

    def _queues(self, jobs: tuple[Job, ...], total: int) -> tuple[Queue, ...]:
        """Return the queues of tenants, and one of quota 0 for each tenant that is undeclared or a parent."""
        names = [*sorted(self.tenants), *sorted({job.queue for job in jobs} - self.tenants.keys())]
        return tuple(self._queue(name, total) for name in self._declared.queues or names)

    def _tenant(self, name: str) -> Tenant:
        above = name.removesuffix(_OWN)
        return self.tenants.get(name) or Tenant(parent=above if above != name and above in self.tenants else "")

    def _queue(self, name: str, total: int) -> Queue:
        preempt_s, reclaim_s = self.preempt_min_runtime_s, self.reclaim_min_runtime_s
        if name in self._declared.queues:
            queue = self._declared.queues[name]
            if queue.parent is None:  # the search for a minimum runtime ends here
                preempt_s = preempt_s if queue.preempt_min_runtime_s is None else queue.preempt_min_runtime_s
                reclaim_s = reclaim_s if queue.reclaim_min_runtime_s is None else queue.reclaim_min_runtime_s
                queue = replace(queue, preempt_min_runtime_s=preempt_s, reclaim_min_runtime_s=reclaim_s)
            return queue
        tenant = self._tenant(name)
        most = tenant.most_gpus(total)
        gpus = Quota(tenant.own_gpus(total), UNLIMITED if most >= total else most, tenant.weight)
        above = tenant.parent if tenant.parent in self.tenants else None
        return Queue(name, above, (FREE, FREE, gpus), 100, 0.0, preempt_s, reclaim_s)

    def _changes(self, view: View, board: Board) -> tuple[dict[str, Allocation | Action], list[str]]:
        """Return the jobs that start, move or stop; record the new places of pods."""
        start: dict[str, Allocation | Action] = {}
        stop: list[str] = []
        seats: dict[str, dict[str, Held]] = {}
        for pod, seat in board.seats().items():
            if seat.future is not None:
                where = Held(board.room.nodes[seat.future.node].name, seat.future.devices)
                seats.setdefault(board.job_of[pod].id, {})[pod] = where
        changed: dict[str, dict[str, Held]] = {}
        for name, job in self._jobs.items():
            new = seats.get(job.id, {})
            if new != self._held.get(name, {}):
                changed[name] = new
        kept = {name: pods for name, pods in self._held.items() if name not in changed}
        hosts = {device: name for name, pods in kept.items() for held in pods.values() for device in held.devices}
        for name, pods in changed.items():
            if not pods:
                stop.append(name)
                del self._held[name]
                continue
            at = self._allocation(board, pods)
            devices = [device for held in pods.values() for device in held.devices]
            host = next((hosts[device] for device in devices if device in hosts), None)
            same = at == view.jobs[name].allocation
            if devices or not same:
                terms = () if host is None else (Onto(host),)
                start[name] = Place(at, restart=same, more=terms) if terms or same else at
            hosts.update({device: name for device in devices if device not in hosts})
            if name not in self._held or gpus_of(view.jobs[name].allocation) == 0:
                self._started_s[name] = view.now_s
            self._held[name] = pods
        return start, stop

    @staticmethod
    def _allocation(board: Board, pods: Mapping[str, Held]) -> Allocation:
        gpus: Counter[int] = Counter()
        for pod, held in pods.items():
            gpus[int(held.node)] += board.pods[pod].ask.gpus
        return tuple(sorted(gpus.items()))


def _name(node: int) -> str:
    return f"{node:06d}"


def _label(level: int) -> str:
    return f"level-{level}"
