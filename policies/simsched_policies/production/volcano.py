"""Volcano: gangs, queues that deserve GPUs in proportion to their weights, and packed nodes.

Idea: a job starts whole or not at all (plugin gang); each queue deserves a part of the cluster in proportion to its
weight, at most what it asks for, the rest going to those that ask for more (plugin proportion); within a queue,
priority goes first and then those who hold least (plugin drf); nodes are filled up (plugin binpack). A job may stop
jobs of lower priority of its own queue (action preempt), and a queue takes back what it deserves from those that hold
more than they do (action reclaim). Source: Volcano documentation, "Actions", "Plugins" and "Queue". Deviations: GPUs
are the only resource and hence the dominant one; drf compares what the users of a queue hold, because a waiting gang
holds nothing; gangs are stopped whole and keep their progress.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from simsched.arithmetic import ordered_sum
from simsched.model import Allocation, Capacity, Tenant, gpus_of
from simsched.policy import JOBS_OF_TENANTS, QUOTAS, Becomes, Decision, JobView, Policy, Traits, View
from simsched.toolkit import PLACERS, PlacerName, available_gpus


def deserved(weights: Mapping[str, float], wanted: Mapping[str, int], total: int) -> dict[str, float]:
    """Divide `total` GPUs by weight, no queue getting more than it wants and the rest going to the others.

    Source: Volcano, plugin proportion.
    """
    found = dict.fromkeys(wanted, 0.0)
    left, hungry = float(total), [name for name in sorted(wanted) if weights[name] > 0 and wanted[name] > 0]
    while hungry and left > 1e-9:
        weight = ordered_sum(weights[name] for name in hungry)
        parts = {name: min(left * weights[name] / weight, wanted[name] - found[name]) for name in hungry}
        for name, part in parts.items():
            found[name] += part
        left -= ordered_sum(parts.values())
        full = [name for name in hungry if wanted[name] - found[name] <= 1e-9]
        if not full:
            break
        hungry = [name for name in hungry if name not in full]
    return found


@dataclass
class Volcano(Policy):
    """Starts gangs from the queue that holds least of what it deserves.

    Every tenant is a queue with its weight (default 1) and at most its `max_gpus`. A queue that holds what it deserves
    or more waits; within one, higher priority goes first, then the user who holds least, then age. A job that does not
    fit is skipped. With `preempt`, it stops jobs of lower priority of its own queue; with `reclaim`, a job that leaves
    its queue within what it deserves stops jobs of queues that hold more than that, unless its tenant's `reclaims` is
    false. Jobs of the lowest priority are stopped first, of these the last submitted, and nobody in vain.
    """

    name: ClassVar[str] = "volcano"
    traits: ClassVar[Traits] = Traits(
        wants={
            QUOTAS: Becomes("gives the queues of all tenants the same weight"),
            JOBS_OF_TENANTS: Becomes("has one queue for all jobs"),
        },
        reads_tenants=True,
    )

    tenants: Mapping[str, Tenant] = field(default_factory=dict)
    placement: PlacerName = "fragments"
    preempt: bool = False
    reclaim: bool = False

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Start what the queues deserve."""
        session = _Session(view, self.tenants, self.placement)
        session.allocate()
        if self.preempt:
            session.preempt()
        if self.reclaim:
            session.reclaim()
        return Decision.change(session.start, list(session.stop))


class _Session:
    """One decision: what queues and users hold, what queues deserve, and who waits."""

    def __init__(self, view: View, tenants: Mapping[str, Tenant], placement: PlacerName) -> None:
        self._free = Capacity.of(view)
        self._placer = PLACERS[placement]
        self._held: dict[str, int] = {}
        self._users: dict[tuple[str, str], int] = {}
        self._waiting: dict[str, list[JobView]] = {}
        self._running: dict[str, list[JobView]] = {}
        self.start: dict[str, Allocation] = {}
        self.stop: dict[str, None] = {}
        wanted: dict[str, int] = {}
        for job in view.jobs.values():
            queue, gpus = job.request.tenant, gpus_of(job.allocation)
            wanted[queue] = wanted.get(queue, 0) + job.num_gpus
            self._held[queue] = self._held.get(queue, 0) + gpus
            self._users[queue, job.request.user] = self._users.get((queue, job.request.user), 0) + gpus
            (self._running if job.running else self._waiting).setdefault(queue, []).append(job)
        total = available_gpus(view)
        known = {name: tenants.get(name, Tenant()) for name in wanted}
        self._most = {name: tenant.most_gpus(total) for name, tenant in known.items()}
        self._reclaims = {name for name, tenant in known.items() if tenant.reclaims}
        limits = {name: min(wanted[name], self._most[name]) for name in known}
        self._due = deserved({name: tenant.weight for name, tenant in known.items()}, limits, total)

    def allocate(self) -> None:
        """Start jobs on free GPUs, from the queue that holds least of what it deserves."""
        asking = {queue: list(jobs) for queue, jobs in self._waiting.items()}
        while asking and self._free.total:
            queue = min(asking, key=self._standing)
            if self._held[queue] >= self._due[queue] and any(job.num_gpus for job in asking[queue]):
                del asking[queue]
                continue
            job = min(asking[queue], key=self._urgency)
            asking[queue].remove(job)
            allocation = self._fitting(job)
            if allocation is not None:
                self._place(job, allocation)
            if not asking[queue]:
                del asking[queue]

    def preempt(self) -> None:
        """Stop jobs for those of higher priority of their own queue."""
        for queue in sorted(self._waiting):
            for job in sorted(self._waiting[queue], key=self._urgency):
                priority = job.request.priority
                self._take(job, (one for one in self._running.get(queue, ()) if one.request.priority < priority))

    def reclaim(self) -> None:
        """Stop jobs of queues that hold more than they deserve, for queues that stay within what they deserve."""
        for queue in sorted(self._waiting, key=self._standing):
            for job in sorted(self._waiting[queue], key=self._urgency):
                within = self._held[queue] + job.num_gpus <= self._due[queue] + 1e-9
                if within and queue in self._reclaims:
                    others = (one for name in self._running if name != queue for one in self._running[name])
                    self._take(job, others, only_above_due=True)

    def _take(self, job: JobView, candidates: Iterable[JobView], *, only_above_due: bool = False) -> None:
        """Stop candidates until a job fits and start it; stop nobody where it will not."""
        victims: list[JobView] = []
        allocation = self._fitting(job)
        for one in sorted(candidates, key=lambda one: (one.request.priority, -one.request.submit_time_s, one.id)):
            if allocation is not None:
                break
            tenant = one.request.tenant
            if only_above_due and self._held[tenant] <= self._due[tenant] + 1e-9:
                continue
            self._release(one)
            victims.append(one)
            allocation = self._fitting(job)
        if allocation is None:
            for one in victims:
                self._hold(one, one.allocation)
            return
        for one in victims:
            self._running[one.request.tenant].remove(one)
            self.stop[one.id] = None
        self._place(job, allocation)

    def _standing(self, queue: str) -> tuple[float, str]:
        due = self._due[queue]
        return (self._held[queue] / due if due else np.inf, queue)

    def _fitting(self, job: JobView) -> Allocation | None:
        queue = job.request.tenant
        if self._held[queue] + job.num_gpus > self._most[queue]:
            return None
        return self._free.choose(self._placer.within(job.request.shape), job.num_gpus, self._free.fitting(job.facts))

    def _place(self, job: JobView, allocation: Allocation) -> None:
        self._hold(job, allocation)
        self._waiting[job.request.tenant].remove(job)
        self.start[job.id] = allocation

    def _hold(self, job: JobView, allocation: Allocation) -> None:
        self._free.take(allocation, job.request.shape)
        self._count(job, gpus_of(allocation))

    def _release(self, job: JobView) -> None:
        self._free.give_back(job.allocation, job.request.shape)
        self._count(job, -gpus_of(job.allocation))

    def _count(self, job: JobView, gpus: int) -> None:
        self._held[job.request.tenant] += gpus
        self._users[job.request.tenant, job.request.user] += gpus

    def _urgency(self, job: JobView) -> tuple[float, int, float]:
        request = job.request
        return (-request.priority, self._users[request.tenant, request.user], request.submit_time_s)
