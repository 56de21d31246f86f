"""Volcano: gangs, queues that deserve GPUs in proportion to their weights, and packed nodes.

Idea: a job starts whole or not at all (plugin gang); each queue deserves a part of the cluster in proportion to its
weight, at most what it asks for, the rest going to those that ask for more (plugin proportion); within a queue,
priority goes first and then those who hold least (plugin drf); nodes are filled up (plugin binpack). Source: Volcano
documentation, "Plugins" and "Queue". Deviations: GPUs are the only resource, so that the dominant share is that of
GPUs; drf compares what the users of a queue hold, because a gang that waits holds nothing; nobody is
preempted or reclaimed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from simsched.model.placement import Allocation, gpus_of
from simsched.policy import Decision, Policy, View
from simsched.policy.gang import available_gpus
from simsched.policy.placers import PLACERS, FreeGpus, PlacerName
from simsched.policy.tenants import Tenant
from simsched.policy.view import JobView


def deserved(weights: Mapping[str, float], wanted: Mapping[str, int], total: int) -> dict[str, float]:
    """Divide `total` GPUs by weight, no queue getting more than it wants and the rest going to the others.

    Source: Volcano, plugin proportion.
    """
    found = dict.fromkeys(wanted, 0.0)
    left, hungry = float(total), [name for name in sorted(wanted) if weights[name] > 0 and wanted[name] > 0]
    while hungry and left > 1e-9:
        weight = sum(weights[name] for name in hungry)
        parts = {name: min(left * weights[name] / weight, wanted[name] - found[name]) for name in hungry}
        for name, part in parts.items():
            found[name] += part
        left -= sum(parts.values())
        full = [name for name in hungry if wanted[name] - found[name] <= 1e-9]
        if not full:
            break
        hungry = [name for name in hungry if name not in full]
    return found


@dataclass
class Volcano(Policy):
    """Starts gangs from the queue that holds least of what it deserves, without preemption.

    Every tenant is a queue with its weight (1 for those not named) and at most its `max_gpus`. A queue that holds what
    it deserves or more waits; within one, higher priority goes first, then the user who holds least, then age. A job
    that does not fit is passed over.
    """

    name: ClassVar[str] = "volcano"

    tenants: Mapping[str, Tenant] = field(default_factory=dict)
    placement: PlacerName = "fragments"

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Start what the queues deserve."""
        free = FreeGpus(view.nodes, view.up, view.free)
        held: dict[str, int] = {}
        users: dict[tuple[str, str], int] = {}
        wanted: dict[str, int] = {}
        waiting: dict[str, list[JobView]] = {}
        for job in view.jobs.values():
            queue, gpus = job.request.tenant, gpus_of(job.allocation)
            wanted[queue] = wanted.get(queue, 0) + job.num_gpus
            held[queue] = held.get(queue, 0) + gpus
            users[queue, job.request.user] = users.get((queue, job.request.user), 0) + gpus
            if not job.running:
                waiting.setdefault(queue, []).append(job)
        total = available_gpus(view)
        known = {name: self.tenants.get(name, Tenant()) for name in wanted}
        limits = {name: min(wanted[name], tenant.most_gpus(total)) for name, tenant in known.items()}
        due = deserved({name: tenant.weight for name, tenant in known.items()}, limits, total)
        start: dict[str, Allocation] = {}
        while waiting and free.total:
            queue = min(waiting, key=lambda name: (held[name] / due[name] if due[name] else np.inf, name))
            if held[queue] >= due[queue]:
                del waiting[queue]
                continue
            job = min(waiting[queue], key=lambda one: self._urgency(one, users))
            waiting[queue].remove(job)
            fits = held[queue] + job.num_gpus <= known[queue].most_gpus(total)
            types = free.fitting(job.facts)
            allocation = free.choose(PLACERS[self.placement], job.num_gpus, types) if fits else None
            if allocation is not None:
                free.take(allocation)
                start[job.id] = allocation
                held[queue] += job.num_gpus
                users[queue, job.request.user] += job.num_gpus
            if not waiting[queue]:
                del waiting[queue]
        return Decision.change(start)

    @staticmethod
    def _urgency(job: JobView, users: Mapping[tuple[str, str], int]) -> tuple[float, int, float]:
        request = job.request
        return (-request.priority, users[request.tenant, request.user], request.submit_time_s)
