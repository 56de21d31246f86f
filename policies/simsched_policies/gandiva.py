"""Gandiva: jobs take turns on GPUs, share them in pairs where a trial shows that this pays, and move together.

Idea: introspection instead of profiles (Xiao et al., Gandiva, OSDI'18, section 3). Jobs take turns in slices of a
minute. While any waits, a waiting job is put onto the GPUs of one that runs; what both achieve is measured, and unless
the sum of their speeds, each relative to its own when alone, exceeds 1, they are parted and not tried again. Once
nobody waits, pairs get GPUs of their own where some are free, and when jobs have left, others move off nodes that are
almost empty. With `grow` jobs then double into idle GPUs of their node, go back if they are no faster for it, and give
the GPUs back as soon as anybody waits.

Published: slices of 60 s, migration while a node that is in use has three quarters of its GPUs free. The trial lasts
two slices (from memory: about a minute). Deviations: only jobs that have run alone are tried, because a speed can only
be compared with a measured one, and of those first the ones whose profile keeps the GPU least busy, where there is a
profile; nodes have no affinity to sizes of jobs; a request cannot declare that its job may grow, so with `grow` all do
that can use more GPUs at the batch asked for, and by default none.
`time-slicing` is the reduced form without pairs and migration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import ClassVar

import numpy as np

from simsched.agent.agent import Agent
from simsched.errors import input_error
from simsched.model.application import ApplicationFacts
from simsched.model.cluster import Cluster
from simsched.model.job import JobRequest
from simsched.model.placement import Allocation, Site, gpus_of
from simsched.model.topology import site_of
from simsched.policy import Decision, JobView, Policy, Signal, View
from simsched.policy.elastic import usable_gpus
from simsched.policy.gang import most_free_first, run_in_order
from simsched.policy.gpu_memory import GpuMemory
from simsched.policy.quantum import Quantum
from simsched.policy.signals import MEASURED_SPEEDS

_SPARSE = 0.75
_TRIAL_SLICES = 2


@dataclass
class Gandiva(Policy):
    """Takes turns every `quantum_s` seconds, packs pairs on trial, and migrates jobs when others have left."""

    name: ClassVar[str] = "gandiva"
    needs: ClassVar[frozenset[Signal]] = frozenset({MEASURED_SPEEDS})

    quantum_s: int = 60
    packing: bool = True
    migration: bool = True
    grow: bool = False
    _quantum: Quantum = field(init=False, repr=False)
    _numbers: count[int] = field(default_factory=count, init=False, repr=False)
    _turns: dict[str, int] = field(default_factory=dict, init=False, repr=False)
    _guests: dict[str, str] = field(default_factory=dict, init=False, repr=False)
    _trials: dict[str, float] = field(default_factory=dict, init=False, repr=False)
    _alone: dict[tuple[str, Site], float] = field(default_factory=dict, init=False, repr=False)
    _refused: set[frozenset[str]] = field(default_factory=set, init=False, repr=False)
    _cluster: Cluster = field(default=Cluster(()), init=False, repr=False)
    _memory: GpuMemory = field(default=GpuMemory(), init=False, repr=False)

    def __post_init__(self) -> None:
        """Start without jobs."""
        self._quantum = Quantum(self.name, self.quantum_s)
        if self.grow:  # of this instance only: the class is rigid
            vars(self)["rigid"] = False

    def begin(self, cluster: Cluster) -> None:
        """Learn how much memory the GPUs have, and how close nodes are."""
        self._cluster, self._memory = cluster, GpuMemory.of(cluster)

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        """Keep the batch asked for; with `grow` refuse a job that can never get its GPUs."""
        gpus = max(self._cluster.gpus_by_type.values(), default=request.num_gpus)
        if self.grow and request.num_gpus > gpus:
            message = f"asks for {request.num_gpus} GPUs, and no type has more than {gpus}"
            raise input_error(f"job '{request.id}'", message, "drop the job, or add nodes")
        return super().agent(request, facts)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Judge the trials, let jobs take turns, and try new pairs."""
        self._update(view)
        shrunk = self._shrunk(view)
        if shrunk:
            return Decision.change(shrunk, wake_at_s=view.now_s + 1)
        parted = self._judge(view)
        hosts = [job for job in view.jobs.values() if job.id not in {*self._guests.values(), *parted}]
        waits = any(not job.running for job in hosts)
        if self._quantum.over(view) and waits:
            for job in sorted((job for job in hosts if job.running), key=lambda job: self._turns[job.id]):
                self._turns[job.id] = next(self._numbers)
        allocations = run_in_order(sorted(hosts, key=lambda job: self._turns[job.id]), view)
        waiting = [job for job in hosts if job.id not in allocations]
        if self.packing and waiting and view.max_jobs_per_gpu > 1:
            self._pack(waiting, allocations, view)
        if not waiting:
            self._unpack(allocations, view)
        if self.migration and view.finished and not waiting:
            self._migrate(allocations, view)
        if self.grow and not waiting and not self._guests:
            self._grow(allocations, view)
        return self._decision(allocations, view)

    def _decision(self, allocations: dict[str, Allocation], view: View) -> Decision:
        onto: dict[str, str] = {}
        anew: list[str] = []
        for host, guest in self._guests.items():
            if host in allocations:
                allocations[guest] = allocations[host]
                if host not in view.jobs[guest].neighbours or view.jobs[host].allocation != allocations[host]:
                    onto[guest] = host
                    anew.append(guest)
        waits = len(allocations) < len(view.jobs)
        wake_at_s = self._quantum.end_s(view.now_s) if waits or self._trials or self.grow else None
        return Decision(allocations, onto=onto, anew=anew, wake_at_s=wake_at_s)

    def _update(self, view: View) -> None:
        """Forget what has finished, queue what has arrived, and note the speeds of those that run alone."""
        for job in view.arrived:
            self._turns[job.id] = next(self._numbers)
        for gone in view.finished:
            self._turns.pop(gone, None)
        self._guests = {host: guest for host, guest in self._guests.items() if host in view.jobs and guest in view.jobs}
        self._trials = {host: end_s for host, end_s in self._trials.items() if host in self._guests}
        for job in view.jobs.values():
            speed = self._speed(job)
            if speed and not job.neighbours:
                self._alone[job.id, site_of(self._cluster, job.allocation)] = speed

    def _judge(self, view: View) -> list[str]:
        """Part the pairs whose trial is over and does not pay, and return the guests; they wait for their turn.

        A trial stops while its pair does not run.
        """
        parted: list[str] = []
        for host in [host for host, end_s in self._trials.items() if end_s <= view.now_s]:
            pair = [view.jobs[host], view.jobs[self._guests[host]]]
            if not all(job.running for job in pair):
                self._trials[host] = view.now_s + _TRIAL_SLICES * self.quantum_s
                continue
            del self._trials[host]
            if sum(self._relative(job) for job in pair) <= 1:
                parted.append(self._guests.pop(host))
                self._refused.add(frozenset((host, parted[-1])))
        return parted

    def _relative(self, job: JobView) -> float:
        alone = self._alone.get((job.id, site_of(self._cluster, job.allocation)), 0.0)
        return self._speed(job) / alone if alone else 0.0

    def _speed(self, job: JobView) -> float:
        """Return the examples a second of a running job, else its progress; 0 where nothing is measured."""
        measured = job[MEASURED_SPEEDS].get(site_of(self._cluster, job.allocation)) if job.running else None
        return 0.0 if measured is None else measured.throughput or measured.rate

    def _pack(self, waiting: list[JobView], allocations: Mapping[str, Allocation], view: View) -> None:
        """Put waiting jobs onto the GPUs of others, on trial; a pair that waits stays as it is."""
        free = [view.jobs[host] for host in allocations if host not in self._guests]
        for guest in sorted((job for job in waiting if job.id not in self._guests), key=_busy):
            for host in sorted(free, key=_busy):
                if self._may_share(host, guest, site_of(self._cluster, allocations[host.id])):
                    self._guests[host.id] = guest.id
                    self._trials[host.id] = view.now_s + _TRIAL_SLICES * self.quantum_s
                    free.remove(host)
                    break

    def _unpack(self, allocations: dict[str, Allocation], view: View) -> None:
        """Give guests GPUs of their own where some are free: jobs share only while the cluster is overloaded."""
        free = [node.gpus if up else 0 for node, up in zip(view.nodes, view.up, strict=True)]
        for held in allocations.values():
            for node, gpus in held:
                free[node] -= gpus
        for host, guest in list(self._guests.items()):
            kind = view.nodes[allocations[host][0][0]].gpu_type
            own = [count if view.nodes[node].gpu_type == kind else 0 for node, count in enumerate(free)]
            picked = most_free_first(own, view.jobs[guest].num_gpus)
            if picked is not None:
                del self._guests[host]
                self._trials.pop(host, None)
                allocations[guest] = picked
                for node, gpus in picked:
                    free[node] -= gpus

    def _may_share(self, host: JobView, guest: JobView, site: Site) -> bool:
        known = (host.id, site) in self._alone and (guest.id, site) in self._alone
        fits = self._memory.holds(site.gpu_type, host, guest)
        return known and fits and frozenset((host.id, guest.id)) not in self._refused

    def _shrunk(self, view: View) -> dict[str, Allocation]:
        """Return jobs that have to go back to the GPUs that they ask for, since others wait or it did not pay."""
        grown = [job for job in view.jobs.values() if gpus_of(job.allocation) > job.num_gpus]
        waits = any(not job.running for job in view.jobs.values())
        return {
            job.id: ((job.allocation[0][0], job.num_gpus),)
            for job in grown
            if waits or not self._gains(job, gpus_of(job.allocation))
        }

    def _gains(self, job: JobView, gpus: int) -> bool:
        """Return whether a job is faster on more GPUs of its node, as far as it has measured that."""
        node = job.allocation[0][0]
        few, many = (
            self._alone.get((job.id, site_of(self._cluster, ((node, count),)))) for count in (job.num_gpus, gpus)
        )
        return few is None or many is None or many > few

    def _grow(self, allocations: dict[str, Allocation], view: View) -> None:
        """Double jobs into idle GPUs of their node, those that have waited longest for a turn first."""
        free = [node.gpus if up else 0 for node, up in zip(view.nodes, view.up, strict=True)]
        for held in allocations.values():
            for node, gpus in held:
                free[node] -= gpus
        for job_id, held in allocations.items():
            job, (node, gpus) = view.jobs[job_id], held[0]
            can = job.limits is not None and len(held) == 1 and held == job.allocation and gpus == job.num_gpus
            if can and gpus <= free[node] and usable_gpus(job, 2 * gpus) == 2 * gpus and self._gains(job, 2 * gpus):
                allocations[job_id] = ((node, 2 * gpus),)
                free[node] -= gpus

    def _migrate(self, allocations: dict[str, Allocation], view: View) -> None:
        """Move jobs from nodes that are almost empty to others in use, the fullest that has room first."""
        used = [0] * len(view.nodes)
        for held in allocations.values():
            for node, gpus in held:
                used[node] += gpus
        sizes = [node.gpus if up else 0 for node, up in zip(view.nodes, view.up, strict=True)]
        for job_id, held in list(allocations.items()):
            source, gpus = held[0][0], gpus_of(held)
            if len(held) > 1 or used[source] > (1 - _SPARSE) * sizes[source]:
                continue
            kind = view.nodes[source].gpu_type
            targets = [
                node
                for node, size in enumerate(sizes)
                if (used[node], -node) > (used[source], -source) and used[node] + gpus <= size
                and view.nodes[node].gpu_type == kind
            ]  # fmt: skip
            if targets:
                best = min(targets, key=lambda node: sizes[node] - used[node])
                used[source] -= gpus
                used[best] += gpus
                allocations[job_id] = ((best, gpus),)


def _busy(job: JobView) -> float:
    return 1.0 if job.gpu_busy is None else job.gpu_busy
