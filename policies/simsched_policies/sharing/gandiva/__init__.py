"""Gandiva: jobs take turns on GPUs, share them in pairs if a trial shows a gain, and migrate.

Idea: introspection instead of profiles (Xiao et al., Gandiva, OSDI'18, sections 3 and 4). Every job has a home, the
GPUs on which it takes its turns in slices of a minute. A new job goes to the least loaded node with room among those
kept for jobs of its size, else to an empty one, else to any with room; without room it takes turns with others of its
size, and if no node is kept for that size it queues. New room goes to the queue, then to jobs that wait for a turn
elsewhere. After departures, jobs move to nodes kept for their size, and off nodes that are almost empty. While any job
waits, one is packed onto the GPUs of a running one; both are measured, and unless the sum of their speeds, each
relative to running alone, exceeds 1, they are separated and not tried again. Once no job waits, pairs get separate GPUs
if some are free. With `grow`, jobs then double into idle GPUs of their node, shrink back if they are no faster, and
release the GPUs as soon as a job waits.

Published: slices of 60 s, the order in which nodes are chosen, migration while a node in use has three quarters of its
GPUs free. From memory: room goes to waiting jobs, and a trial lasts about a minute, here two slices. Only the first of
a pair counts as load. A job larger than a node takes whole nodes, kept for such jobs, and places the rest like a small
job.

Deviations: only jobs that have run alone are tried, because speeds are compared with measured ones, in order of GPU
utilisation in their profile, lowest first; a request cannot declare that its job may grow: with `grow`, all jobs that
can use more GPUs at the requested batch do, by default none. `time-slicing` is the reduced form without pairs, homes
and migration.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import ClassVar

import numpy as np

from simsched.agent import Agent
from simsched.errors import input_error
from simsched.model import Allocation, ApplicationFacts, Cluster, JobRequest, gpus_of
from simsched.policy import Action, Decision, JobView, Onto, Place, Policy, Quantum, Traits, View
from simsched.policy.physics import SHARED_GPUS, UNPACKED
from simsched.policy.signals import GPU_BUSY, MEASURED_SPEEDS
from simsched.toolkit import usable_gpus
from simsched_policies.sharing.gandiva.homes import Fit, Homes, Pairs


@dataclass
class Gandiva(Policy):
    """Rotates jobs every `quantum_s` seconds on the nodes of their size, packs pairs on trial, and migrates.

    Without `affinity` every node is kept for any size. A node in use is almost empty if `sparse_share` of its GPUs are
    free.
    """

    name: ClassVar[str] = "gandiva"
    traits: ClassVar[Traits] = Traits(
        needs={GPU_BUSY, MEASURED_SPEEDS}, wants={SHARED_GPUS: UNPACKED}, quantum="quantum_s"
    )

    quantum_s: int = 60
    packing: bool = True
    migration: bool = True
    grow: bool = False
    affinity: bool = True
    trial_slices: int = 2
    sparse_share: float = 0.75
    _quantum: Quantum = field(init=False, repr=False)
    _numbers: count[int] = field(default_factory=count, init=False, repr=False)
    _turns: dict[str, int] = field(default_factory=dict, init=False, repr=False)
    _cluster: Cluster = field(init=False, repr=False)
    _homes: Homes = field(init=False, repr=False)
    _pairs: Pairs = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Start without jobs; raises `ValueError` for a trial without slices or an invalid share."""
        if self.trial_slices < 1 or not 0 <= self.sparse_share <= 1:
            raise ValueError("trial_slices must be at least 1, and sparse_share between 0 and 1")
        self._quantum = Quantum(self.name, self.quantum_s)
        self.begin(Cluster(()))

    @property
    def rigid(self) -> bool:
        """Return whether jobs keep the number of GPUs that they ask for."""
        return not self.grow

    def begin(self, cluster: Cluster) -> None:
        """Record the nodes, the memory of their GPUs, and their distances."""
        self._cluster = cluster
        self._homes = Homes(cluster, by_affinity=self.affinity, sparse_share=self.sparse_share)
        self._pairs = Pairs(cluster, self.trial_slices * self.quantum_s)

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        """Keep the requested batch; with `grow` refuse a job that can never get its GPUs."""
        gpus = max(self._cluster.gpus_by_type.values(), default=request.num_gpus)
        if self.grow and request.num_gpus > gpus:
            message = f"asks for {request.num_gpus} GPUs, and no type has more than {gpus}"
            raise input_error(f"job '{request.id}'", message, "drop the job, or add nodes")
        return super().agent(request, facts)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Evaluate the trials, give every job a home, let jobs take turns, and try new pairs."""
        self._update(view)
        shrunk = self._shrunk(view)
        if shrunk:
            return Decision.change(shrunk, wake_at_s=view.now_s + 1)
        parted = self._part(view)
        hosts = [job for job in view.jobs.values() if job.id not in {*self._pairs.guests.values(), *parted}]
        if self._quantum.over(view) and not all(job.running for job in hosts):
            for job in sorted((job for job in hosts if job.running), key=lambda job: self._turns[job.id]):
                self._turns[job.id] = next(self._numbers)
        order = sorted(hosts, key=lambda job: self._turns[job.id])
        if view.reasons is not None:
            view.reasons.order({job.id: self._turns[job.id] for job in order})
        self._house(order, view)
        allocations = self._homes.running(order, view)
        waiting = self._relieved([job for job in order if job.id not in allocations], allocations)
        if self.packing and waiting and view.max_jobs_per_gpu > 1:
            for guest in self._pairs.pack(waiting, allocations, view):
                self._homes.leave(guest)
        unpacked = [] if waiting else self._unpack(allocations, view)
        if self.grow and not waiting and not self._pairs.guests:
            self._grow(allocations, view)
        return self._decision(allocations, unpacked, view)

    def _decision(self, allocations: dict[str, Allocation], unpacked: list[str], view: View) -> Decision:
        jobs: dict[str, Allocation | Action] = dict(allocations)
        for guest in unpacked:
            if guest in allocations:
                jobs[guest] = Place(allocations[guest], restart=True)
        for host, guest in self._pairs.guests.items():
            if host in allocations:
                at = allocations[host]
                stays = host in view.jobs[guest].neighbours and view.jobs[host].allocation == at
                jobs[guest] = at if stays else Place(at, more=(Onto(host),), restart=True)
        waits = len(jobs) < len(view.jobs)
        wake_at_s = self._quantum.end_s(view.now_s) if waits or self._pairs.on_trial or self.grow else None
        return Decision(jobs, wake_at_s=wake_at_s)

    def _update(self, view: View) -> None:
        """Forget finished jobs and queue new ones; guests left alone stay where they are."""
        for job in view.arrived:
            self._turns[job.id] = next(self._numbers)
        for gone in view.finished:
            self._turns.pop(gone, None)
        for host, guest in self._pairs.update(view).items():
            home = self._homes.of(host)
            self._homes.leave(host)
            if home is not None:
                self._homes.move(view.jobs[guest], home)
        self._homes.update(view)

    def _part(self, view: View) -> list[str]:
        """Separate the pairs without gain, and return the guests, which now take turns with their hosts."""
        parted = self._pairs.judge(view)
        for host, guest in parted.items():
            home = self._homes.of(host)
            if home is not None:
                self._homes.move(view.jobs[guest], home)
        return list(parted.values())

    def _house(self, order: Iterable[JobView], view: View) -> None:
        """Give queued jobs homes, longest waiting first, and migrate after departures."""
        queue = [job for job in order if self._homes.of(job.id) is None]
        queue = [job for job in queue if not self._homes.settle(job)]
        if self.migration and view.finished:
            self._homes.migrate(order)
            for job in queue:
                self._homes.settle(job)

    def _relieved(self, waiting: Iterable[JobView], allocations: dict[str, Allocation]) -> list[JobView]:
        """Move jobs that wait for a turn to nodes with room, and return those that still wait."""
        still = []
        for job in waiting:
            if self._homes.of(job.id) is not None and self._homes.settle(job, worst=Fit.ROOM):
                self._run(job, allocations)
            else:
                still.append(job)
        return still

    def _unpack(self, allocations: dict[str, Allocation], view: View) -> list[str]:
        """Give guests separate GPUs if some are free, since jobs share only under overload, and return these guests."""
        unpacked = []
        for host, guest in list(self._pairs.guests.items()):
            if self._homes.settle(view.jobs[guest], worst=Fit.ROOM):
                self._pairs.part(host)
                self._run(view.jobs[guest], allocations)
                unpacked.append(guest)
        return unpacked

    def _run(self, job: JobView, allocations: dict[str, Allocation]) -> None:
        home = self._homes.of(job.id)
        if home is not None:
            allocations[job.id] = home

    def _shrunk(self, view: View) -> dict[str, Allocation]:
        """Return the jobs that must shrink to their requested GPUs, since others wait or growth brought no gain."""
        grown = [job for job in view.jobs.values() if gpus_of(job.allocation) > job.num_gpus]
        waits = any(not job.running for job in view.jobs.values())
        shrunk: dict[str, Allocation] = {}
        for job in grown:
            if waits or not self._pairs.gains(job, gpus_of(job.allocation)):
                shrunk[job.id] = ((job.allocation[0][0], job.num_gpus),)
                self._homes.move(job, shrunk[job.id])
        return shrunk

    def _grow(self, allocations: dict[str, Allocation], view: View) -> None:
        """Double jobs into idle GPUs of their node, longest wait for a turn first."""
        for job_id, held in allocations.items():
            job, (node, gpus) = view.jobs[job_id], held[0]
            can = job.limits is not None and len(held) == 1 and held == job.allocation and gpus == job.num_gpus
            fits = gpus <= self._homes.room(node) and usable_gpus(job, 2 * gpus) == 2 * gpus
            if can and fits and self._pairs.gains(job, 2 * gpus):
                allocations[job_id] = ((node, 2 * gpus),)
                self._homes.move(job, allocations[job_id])
