"""YARN's capacity scheduler, as clusters of deep-learning jobs have used it: queues with shares.

Idea: every tenant has a queue with a share of the cluster; within a queue jobs start first in, first out, on as few
machines as possible, and the head blocks those behind it (Jeon et al., ATC'19, section 2; Gu et al., Tiresias, NSDI'19,
section 5.1, with one queue). With `preemption`, a queue below its share takes GPUs back from those above
theirs, from the jobs started last, as YARN's monitor does (Hadoop documentation, "Capacity Scheduler", preemption),
once it has waited `preemption_wait_s` (15 s by YARN's default). A gang is stopped whole. The limit on reclaiming per
round, and relaxing locality after some retries, are left out: no source gives figures.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import floor
from typing import ClassVar, NamedTuple

import numpy as np

from simsched.agent import Agent, fixed_agent
from simsched.arithmetic import ordered_sum
from simsched.errors import input_error
from simsched.model import Allocation, ApplicationFacts, Capacity, Cluster, JobRequest, NodeShape, gpus_of
from simsched.policy import Becomes, Decision, JobView, Policy, Reasons, Traits, View, Wants, Why
from simsched.policy.physics import QUOTAS
from simsched.toolkit import PLACERS, PlacerName

_OTHERS = ""


#: Shares sum to one up to rounding, which must not cost a queue a GPU.
_ROUNDING_GPUS = 1e-6


class _Waiting(NamedTuple):
    id: str
    gpus: int
    types: tuple[int, ...]
    shape: NodeShape | None


class _Queue:
    def __init__(self, share: float) -> None:
        self.share = share
        self.waiting: deque[_Waiting] = deque()
        self.used = 0
        #: When the head was first refused GPUs within the share, None if it was not.
        self.short_since_s: float | None = None

    def gpus_of(self, capacity: int) -> int:
        """Return the share in GPUs, of this many in all."""
        return floor(self.share * capacity + _ROUNDING_GPUS)


_ONE_QUEUE = Becomes(
    "has one queue for all jobs, first in, first out on few nodes", "fifo", {"placement": "consolidated"}
)


@dataclass
class YarnCs(Policy):
    """Starts the head of the queue that uses least of its share, if it can be placed; else the next queue's head.

    `capacities` gives tenants their shares of the cluster, above 0 and at most 1 in all; undeclared tenants share one
    queue with the rest; without `capacities` there is one queue for all. A queue may use more than its share while GPUs
    are free, unless not `elastic`: then a job larger than its queue's share of the whole cluster is refused. With
    `preemption` a job that leaves its queue within its share stops jobs of queues above theirs, once it has waited for
    `preemption_wait_s` as the head of its queue.
    """

    name: ClassVar[str] = "yarn-cs"
    traits: ClassVar[Traits] = Traits(forgets=True)

    capacities: Mapping[str, float] = field(default_factory=dict)
    elastic: bool = True
    placement: PlacerName = "consolidated"
    preemption: bool = False
    preemption_wait_s: float = 0.0
    _queues: dict[str, _Queue] = field(init=False, repr=False)
    _held: dict[str, tuple[_Queue, Allocation]] = field(default_factory=dict, init=False, repr=False)
    _cluster_gpus: int = field(default=0, init=False, repr=False)
    _free: Capacity = field(default_factory=lambda: Capacity((), (), ()), init=False, repr=False)

    def __post_init__(self) -> None:
        """Create the queues; refuse invalid shares."""
        rest = 1 - ordered_sum(self.capacities.values())
        if rest < -1e-9 or any(not 0 < share <= 1 for share in self.capacities.values()):
            raise ValueError(f"capacities must be above 0 and at most 1 in all, not {dict(self.capacities)}")
        self._queues = {tenant: _Queue(share) for tenant, share in self.capacities.items()}
        if rest > 1e-9:
            self._queues[_OTHERS] = _Queue(rest)

    @property
    def counts_on(self) -> Wants:
        """Return the GPUs of tenants, unless `capacities` are given."""
        return {} if self.capacities else {QUOTAS: _ONE_QUEUE}

    def begin(self, cluster: Cluster) -> None:
        """Record the number of GPUs to share."""
        self._cluster_gpus = sum(node.gpus for node in cluster.nodes)

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        """Keep the batch size submitted; refuse jobs that their queue's share never lets run."""
        if request.tenant not in self._queues and _OTHERS not in self._queues:
            remedy = "name its tenant in 'capacities', or leave a rest for those not named"
            raise input_error(f"job '{request.id}'", f"tenant '{request.tenant}' has no share of the cluster", remedy)
        most = self._queue_of(request.tenant).gpus_of(self._cluster_gpus)
        if not self.elastic and request.num_gpus > most:
            message = f"asks for {request.num_gpus} GPUs, but the share of tenant '{request.tenant}' is {most}"
            raise input_error(f"job '{request.id}'", message, "give the tenant more, or set 'elastic: true'")
        return fixed_agent(request, facts)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Start the heads of the queues as far as possible."""
        self._update(view)
        start: dict[str, Allocation] = {}
        stop: dict[str, None] = {}
        open_queues = [queue for queue in self._queues.values() if queue.waiting]
        while open_queues and (self._free.total or self.preemption):
            queue = min(open_queues, key=lambda one: one.used / one.share)
            job_id, gpus, types, shape = queue.waiting[0]
            within = self.elastic or queue.used + gpus <= queue.gpus_of(self._capacity)
            allocation = self._free.choose(PLACERS[self.placement].within(shape), gpus, types) if within else None
            if allocation is None and self.preemption:
                allocation = self._take_back(queue, view, start, stop)
            if allocation is None:
                open_queues.remove(queue)
                continue
            queue.waiting.popleft()
            queue.short_since_s = None
            self._hold(job_id, queue, allocation, shape)
            start[job_id] = allocation
            stop.pop(job_id, None)
            if not queue.waiting:
                open_queues.remove(queue)
        if view.reasons is not None:
            self._tell(view.reasons)
        return Decision.change(start, list(stop), wake_at_s=self._wake(view.now_s))

    def _tell(self, reasons: Reasons) -> None:
        """Return the order of waiting jobs in their queues, with those beyond the share or blocked by the head."""
        for queue in self._queues.values():
            reasons.order({job.id: queue.used / queue.share for job in queue.waiting})
            share = queue.gpus_of(self._capacity)
            for place, job in enumerate(queue.waiting):
                if place:
                    reasons.wait(job.id, Why.ANOTHER_FIRST, f"{queue.waiting[0].id} waits before it")
                elif not self.elastic and queue.used + job.gpus > share:
                    reasons.wait(job.id, Why.OVER_QUOTA, f"its queue holds {queue.used} of {share} GPUs")

    def _wake(self, now_s: float) -> float | None:
        """Return when the next queue has waited long enough to take GPUs back."""
        since = [queue.short_since_s for queue in self._queues.values() if queue.short_since_s is not None]
        return min((at for one in since if (at := one + self.preemption_wait_s) > now_s), default=None)

    def _take_back(
        self, queue: _Queue, view: View, start: Mapping[str, Allocation], stop: dict[str, None]
    ) -> Allocation | None:
        """Stop the youngest jobs of queues above their share until the head of a queue within its own fits.

        No job is stopped if that does not help.
        """
        _, gpus, types, shape = queue.waiting[0]
        placer = PLACERS[self.placement].within(shape)
        if queue.used + gpus > queue.gpus_of(self._capacity):
            queue.short_since_s = None
            return None
        if queue.short_since_s is None:
            queue.short_since_s = view.now_s
        if view.now_s < queue.short_since_s + self.preemption_wait_s:
            return None
        victims: list[tuple[str, _Queue, Allocation]] = []
        allocation: Allocation | None = None
        for job_id in [one for one in reversed(self._held) if one not in start]:
            other, held = self._held[job_id]
            if allocation is None and other is not queue and other.used > other.gpus_of(self._capacity):
                self._free.give_back(held, view.jobs[job_id].request.shape)
                other.used -= gpus_of(held)
                victims.append((job_id, other, held))
                allocation = self._free.choose(placer, gpus, types)
        for job_id, other, held in victims:
            if allocation is None:
                self._free.take(held, view.jobs[job_id].request.shape)
                other.used += gpus_of(held)
            else:
                del self._held[job_id]
                other.waiting.appendleft(self._waiting(view.jobs[job_id]))
                stop[job_id] = None
        return allocation

    def _hold(self, job_id: str, queue: _Queue, allocation: Allocation, shape: NodeShape | None) -> None:
        self._free.take(allocation, shape)
        queue.used += sum(gpus for _, gpus in allocation)
        self._held[job_id] = (queue, allocation)

    def _update(self, view: View) -> None:
        changed = view.up != self._free.up or bool(view.lost)
        for job_id in view.finished:
            queue, allocation = self._held.pop(job_id, (None, ()))
            if queue is None:  # a user withdrew it
                for one in self._queues.values():
                    one.waiting = deque(job for job in one.waiting if job.id != job_id)
            else:
                queue.used -= sum(gpus for _, gpus in allocation)
                if not changed and view.beside is None:
                    self._free.give_back(allocation)
        if changed or view.beside is not None:
            self._free = Capacity.of(view)
        for job in view.arrived:
            self._queue_of(job.request.tenant).waiting.append(self._waiting(job))
        if changed:
            self._requeue_lost(view)

    def _requeue_lost(self, view: View) -> None:
        """Put jobs whose nodes went down back at the head of their queues, the earliest first."""
        lost = [view.jobs[job_id] for job_id in self._held if job_id in view.jobs and not view.jobs[job_id].running]
        for job in reversed(lost):
            queue, _ = self._held.pop(job.id)
            queue.used -= job.num_gpus
            queue.waiting.appendleft(self._waiting(job))

    def _waiting(self, job: JobView) -> _Waiting:
        return _Waiting(job.id, job.num_gpus, self._free.fitting(job.facts), job.request.shape)

    def _queue_of(self, tenant: str) -> _Queue:
        return self._queues.get(tenant) or self._queues[_OTHERS]

    @property
    def _capacity(self) -> int:
        return self._free.total + sum(queue.used for queue in self._queues.values())
