"""Volcano: gangs, queues that deserve GPUs in proportion to their weights, and packed nodes.

Idea: a job starts whole or not at all (plugin gang); each queue deserves a part of the cluster in proportion to its
weight, at most what it asks for, and the rest goes to queues that ask for more (plugin proportion); within a queue,
jobs go by priority, then those of the users who hold least (plugin drf); nodes are packed (plugin binpack). A job may
stop jobs of lower priority of its own queue (action preempt), and a queue takes back what it deserves from those that
hold more than they do (action reclaim). With the plugin capacity a queue deserves a declared amount, and borrows up to
its capability; queues form a tree, in which the nearest relatives are reclaimed from first. HyperNodes are the domains
of the cluster's levels. Source: Volcano documentation, "Actions", "Plugins", "Queue" and "Network Topology Aware
Scheduling". Deviations: GPUs are the only resource and hence the dominant one; drf compares what the users of a queue
hold, because a waiting gang holds nothing; gangs are stopped whole and keep their progress; the own jobs of a tenant
with others below it count at its node of the tree; network topology is hard; ancestorReclaimLevel is 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from simsched.arithmetic import ordered_sum
from simsched.model import Allocation, Capacity, Node, NodeShape, gpus_of
from simsched.model.cluster import Tenant
from simsched.model.placement import Amount
from simsched.policy import Becomes, Decision, JobView, Policy, Reasons, Traits, View, Why
from simsched.policy.physics import JOBS_OF_TENANTS, QUOTAS
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
    false. Jobs of the lowest priority are stopped first, of these the last submitted, and none in vain.

    With `queues: capacity`, a queue deserves its own GPUs and may grow to `max_gpus`; those of its own GPUs that it
    does not lend are guaranteed, and unavailable to others. Parents count too: their limits hold for all queues below
    them. With a `highest_tier` jobs stay within one HyperNode of at most this tier, 1 being the lowest level above the
    nodes.
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
    queues: Literal["proportion", "capacity"] = "proportion"
    highest_tier: int = 0

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Start the jobs whose queues deserve it."""
        session = _Session(view, self)
        session.allocate()
        if self.preempt:
            session.preempt()
        if self.reclaim:
            session.reclaim()
        if view.reasons is not None:
            session.tell(view.reasons)
        return Decision.change(session.start, list(session.stop))


class _Session:
    """One decision: what queues and users hold, what queues deserve, and the waiting jobs."""

    def __init__(self, view: View, policy: Volcano) -> None:
        self._free = Capacity.of(view)
        self._placer = PLACERS[policy.placement]
        self._tiers = _tiers(view.nodes)[: policy.highest_tier]
        self._held: dict[str, int] = {}
        self._users: dict[tuple[str, str], int] = {}
        self._waiting: dict[str, list[JobView]] = {}
        self._running: dict[str, list[JobView]] = {}
        self.start: dict[str, Allocation] = {}
        self.stop: dict[str, None] = {}
        self._capacity = policy.queues == "capacity"
        tenants = policy.tenants
        self._above = {name: tenant.parent for name, tenant in tenants.items() if self._capacity}
        wanted: dict[str, int] = {}
        for job in view.jobs.values():
            queue, gpus = job.request.tenant, gpus_of(job.allocation)
            wanted[queue] = wanted.get(queue, 0) + job.num_gpus
            self._count(job, gpus)
            (self._running if job.running else self._waiting).setdefault(queue, []).append(job)
        total = available_gpus(view)
        known = {name: tenants.get(name, Tenant()) for name in {**wanted, **(tenants if self._capacity else {})}}
        self._most = {name: tenant.most_gpus(total) for name, tenant in known.items()}
        self._reclaims = {name for name, tenant in known.items() if tenant.reclaims}
        self._guaranteed = dict.fromkeys(known, 0)
        if self._capacity:
            self._due = {name: float(tenant.own_gpus(total)) for name, tenant in known.items()}
            lent = {name: tenant.lends for name, tenant in known.items() if tenant.lends is not None}
            self._guaranteed |= {name: max(int(self._due[name]) - lends, 0) for name, lends in lent.items()}
            for name in sorted(known, key=lambda name: len(self._lineage(name))):
                self._most[name] = min(self._most[name], self._beside_guarantees(name, total))
        else:
            limits = {name: min(wanted[name], self._most[name]) for name in known}
            self._due = deserved({name: tenant.weight for name, tenant in known.items()}, limits, total)

    def allocate(self) -> None:
        """Start jobs on free GPUs, from the queue that holds least of what it deserves."""
        asking = {queue: list(jobs) for queue, jobs in self._waiting.items()}
        while asking and self._free.total:
            queue = min(asking, key=self._standing)
            overused = not self._capacity and self._held[queue] >= self._due[queue]
            if overused and any(job.num_gpus for job in asking[queue]):
                del asking[queue]
                continue
            job = min(asking[queue], key=self._urgency)
            asking[queue].remove(job)
            allocation = self._fitting(job)
            if allocation is not None:
                self._place(job, allocation)
            if not asking[queue]:
                del asking[queue]

    def tell(self, reasons: Reasons) -> None:
        """Return the order of waiting jobs in their queues, and which queues hold all that they may or deserve."""
        for queue, jobs in self._waiting.items():
            reasons.order({job.id: self._urgency(job) for job in sorted(jobs, key=self._urgency)})
            full = not self._capacity and self._held[queue] >= self._due[queue]
            due = f"its queue holds {self._held[queue]} GPUs, deserves {self._due[queue]:.3g}, may {self._most[queue]}"
            for job in jobs:
                if full or any(self._held[name] + job.num_gpus > self._most[name] for name in self._lineage(queue)):
                    reasons.wait(job.id, Why.OVER_QUOTA, due)

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
                    self._take(job, others, reclaimed=True)

    def _take(self, job: JobView, candidates: Iterable[JobView], *, reclaimed: bool = False) -> None:
        """Stop candidates until a job fits and start it; stop none if it cannot fit."""
        victims: list[JobView] = []
        allocation = self._fitting(job)

        def worst_first(one: JobView) -> tuple[int, float, float, str]:
            far = self._distance(job.request.tenant, one.request.tenant) if reclaimed else 0
            return (far, one.request.priority, -one.request.submit_time_s, one.id)

        for one in sorted(candidates, key=worst_first):
            if allocation is not None:
                break
            if reclaimed and not self._gives(one):
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

    def _beside_guarantees(self, queue: str, total: int) -> int:
        """Return what a queue may hold, given the guarantees of its siblings at every level above."""
        above = self._lineage(queue)[1:2]
        siblings = (name for name in self._most if name != queue and self._lineage(name)[1:2] == above)
        return (self._most[above[0]] if above else total) - sum(self._guaranteed[name] for name in siblings)

    def _gives(self, victim: JobView) -> bool:
        """Return whether a queue holds more than it deserves, and keeps its guarantee without a job."""
        queue = victim.request.tenant
        left = self._held[queue] - gpus_of(victim.allocation)
        return self._held[queue] > self._due[queue] + 1e-9 and left >= self._guaranteed[queue]

    def _standing(self, queue: str) -> tuple[tuple[float, bool, str], ...]:
        """Rank a queue among others: by held over deserved GPUs, those of its ancestors first."""
        return tuple(self._share(name) for name in reversed(self._lineage(queue)))

    def _share(self, queue: str) -> tuple[float, bool, str]:
        due, none = self._due[queue], 1.0 if self._capacity else np.inf
        return (self._held.get(queue, 0) / due if due else none, not due, queue)

    def _lineage(self, queue: str) -> list[str]:
        """Return a queue and its ancestors; queues of the plugin proportion have none."""
        found = [queue]
        while (above := self._above.get(found[-1], "")) in self._above:
            found.append(above)
        return found

    def _distance(self, one: str, other: str) -> int:
        """Return how far up two queues have a common ancestor; nearest relatives have the least."""
        theirs = set(self._lineage(other))
        return next((up for up, name in enumerate(self._lineage(one)) if name in theirs), len(self._lineage(one)))

    def _fitting(self, job: JobView) -> Allocation | None:
        if any(self._held[name] + job.num_gpus > self._most[name] for name in self._lineage(job.request.tenant)):
            return None
        if self._tiers:
            return self._in_hypernode(job)
        return self._free.choose(self._placer.within(job.request.shape), job.num_gpus, self._free.fitting(job.facts))

    def _in_hypernode(self, job: JobView) -> Allocation | None:
        """Choose GPUs in the lowest tier that has room, in the HyperNode that they fill most."""
        shape = job.request.shape or NodeShape(0, Amount(job.num_gpus))
        tiers = self._tiers if shape.within is None else self._tiers[: shape.within + 1]
        kinds = tuple(self._free.types[kind] for kind in self._free.fitting(job.facts))
        named = kinds if shape.gpu_types is None else tuple(kind for kind in kinds if kind in shape.gpu_types)
        inside = shape._replace(within=None, gpu_types=named)
        for tier in tiers:
            for domain in sorted(tier, key=lambda domain: sum(self._free.free[node] for node in domain) / tier[domain]):
                found = self._free.place_of(inside, sum(1 << node for node in domain))
                if found is not None:
                    return found
        return None

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
        queue, user = job.request.tenant, job.request.user
        for name in self._lineage(queue):
            self._held[name] = self._held.get(name, 0) + gpus
        self._users[queue, user] = self._users.get((queue, user), 0) + gpus

    def _urgency(self, job: JobView) -> tuple[float, int, float]:
        request = job.request
        return (-request.priority, self._users[request.tenant, request.user], request.submit_time_s)


def _tiers(nodes: Sequence[Node]) -> list[dict[tuple[int, ...], int]]:
    """Return the HyperNodes of each tier, the lowest first: their nodes, with the GPUs of these."""
    found: list[dict[int, list[Node]]] = [{} for _ in (nodes[0].domains if nodes else ())]
    for node in nodes:
        for tier, domain in zip(found, node.domains, strict=True):
            tier.setdefault(domain, []).append(node)
    return [
        {tuple(node.index for node in inside): sum(node.gpus for node in inside) for inside in tier.values()}
        for tier in found
    ]
