"""AntMan: guaranteed jobs run as if alone; opportunistic ones use the idle time of their GPUs.

Idea: two classes of jobs (Xiao et al., AntMan, OSDI'20, sections 4 and 5). A guaranteed job waits for GPUs that no
guaranteed job holds, and reserves them as they become free; opportunistic jobs on them stay. An opportunistic job
starts where the GPU is idle, or busy for less than 80 % of the time with a guaranteed job. No job is preempted. The
engine decides the joint speed of two jobs on a GPU (`engine.sharing`); the guaranteed one gets its full speed and the
other the rest (`Guarantee`), which is the paper's local scheduler.

With tenants, a job that asks for a guarantee has one only within its tenant's own GPUs, and is opportunistic beyond
them. It is upgraded as soon as enough of the quota is free, in order of submission; a running job stays where it is,
and is not upgraded while a guaranteed job shares its GPUs or others have reserved them. No job is ever downgraded.
Without tenants every job that asks is guaranteed.

Published default: busy below 80 %. Deviations: how busy a job keeps its GPUs comes from its profile (the paper measures
it over 10 s), and a job without a profile counts as below the limit; memory is not spilled to the host: jobs share a
GPU only if both fit. Without shared GPUs the classes only queue separately.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from simsched.model import Allocation, Capacity, Cluster, gpus_of
from simsched.model.cluster import Tenant
from simsched.model.colocation import Guarantee
from simsched.model.placement import NOTHING
from simsched.policy import Becomes, Decision, JobView, Place, Policy, Traits, View, Why
from simsched.policy.physics import GUARANTEED_JOBS, OPPORTUNISTIC_JOBS, SHARED_GPUS, UNPACKED
from simsched.policy.signals import GPU_BUSY
from simsched.toolkit import GpuMemory, available_gpus, type_pools
from simsched.toolkit.placers import MOST_FREE


@dataclass
class AntMan(Policy):
    """Starts guaranteed jobs first, in order of submission, then opportunistic ones next to them.

    With `tenants`, a quota is the tenant's own GPUs, 0 for undeclared tenants.
    """

    name: ClassVar[str] = "antman"
    traits: ClassVar[Traits] = Traits(
        needs={GPU_BUSY},
        wants={
            SHARED_GPUS: UNPACKED,
            GUARANTEED_JOBS: Becomes("starts jobs in order of arrival, with backfill", "fifo", {"backfill": True}),
            OPPORTUNISTIC_JOBS: Becomes("reserves GPUs for each job in turn, so that no two share one"),
        },
        reads_tenants=True,
    )

    max_busy: float = 0.8
    packing: bool = True
    tenants: Mapping[str, Tenant] = field(default_factory=dict)
    _guaranteed: set[str] = field(default_factory=set, init=False, repr=False)
    _reserved: dict[str, Allocation] = field(default_factory=dict, init=False, repr=False)
    _memory: GpuMemory = field(default=GpuMemory(), init=False, repr=False)

    def begin(self, cluster: Cluster) -> None:
        """Record the memory of the GPUs."""
        self._memory = GpuMemory.of(cluster)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Start the jobs that can start; no GPUs are ever taken away."""
        start: dict[str, Allocation] = {}
        beside: dict[str, list[str]] = {}
        waiting = {job.id for job in view.jobs.values() if not job.running}
        self._reserved = {job_id: held for job_id, held in self._reserved.items() if job_id in waiting}
        classes = self._classify(view)
        sharing = self.packing and view.max_jobs_per_gpu > 1
        for pool in type_pools(view, rigid=True):
            board = _Board(pool.view, self._guaranteed, sharing=sharing)
            jobs = [job for job in pool.jobs.values() if not job.running and job.num_gpus <= board.total]
            for job in jobs:
                self._keep_reservation(job.id, board)
            self._tell(jobs, view)
            for job in jobs:
                if job.id in self._guaranteed:
                    held = self._reserve(job, board)
                    if gpus_of(held) == job.num_gpus:
                        start[job.id], beside[job.id] = held, board.others(held, guaranteed=False)
                        board.start(job, held, reserved=True)
            for job in jobs:
                if job.id not in self._guaranteed:
                    near = self._neighbours(job, board, pool.gpu_type)
                    picked = board.pick(job, near, pool.view)
                    if picked is not None:
                        start[job.id] = picked
                        beside[job.id] = [other.id for other in near if _touches(board.held[other.id], picked)]
                        board.start(job, picked)
        placed = {job_id: view.jobs[job_id].allocation for job_id in classes} | start
        others = beside if sharing else {}
        return Decision.change(
            {
                job_id: Place(at, others.get(job_id, ()), more=(Guarantee(classes.get(job_id)),))
                for job_id, at in placed.items()
            }
        )

    def _tell(self, jobs: Sequence[JobView], view: View) -> None:
        """Return the order of waiting jobs, and for which jobs GPUs are reserved from opportunistic ones."""
        if view.reasons is None:
            return
        order = sorted(jobs, key=lambda job: job.id not in self._guaranteed)
        view.reasons.order({job.id: (job.id not in self._guaranteed, job.request.submit_time_s) for job in order})
        kept = {job_id: gpus_of(held) for job_id, held in self._reserved.items() if held}
        for job in (job for job in order if kept and job.id not in self._guaranteed):
            view.reasons.wait(job.id, Why.RESERVED, ", ".join(f"{gpus} GPUs for {name}" for name, gpus in kept.items()))

    def _classify(self, view: View) -> dict[str, bool]:
        """Update the classes of jobs, and return those whose class is not, or no longer, the one they asked for."""
        asking = [job for job in view.jobs.values() if job.request.guaranteed]
        if not self.tenants:
            self._guaranteed = {job.id for job in asking}
            return {}
        self._guaranteed &= view.jobs.keys()
        changed = {job.id: False for job in view.arrived if job.request.guaranteed}
        total, used = available_gpus(view), dict.fromkeys((job.request.tenant for job in asking), 0)
        for job in asking:
            used[job.request.tenant] += job.num_gpus * (job.id in self._guaranteed)
        spare = self._spare(view)
        for job in asking:
            quota = self.tenants.get(job.request.tenant, Tenant()).own_gpus(total)
            within = used[job.request.tenant] + job.num_gpus <= quota
            if within and job.id not in self._guaranteed and self._may_stay(job, spare):
                self._guaranteed.add(job.id)
                changed[job.id] = True
                used[job.request.tenant] += job.num_gpus
                spare.take(job.allocation)
        return changed

    def _may_stay(self, job: JobView, spare: Capacity) -> bool:
        """Return whether a job could be guaranteed where it is."""
        return self._guaranteed.isdisjoint(job.neighbours) and spare.holds(job.allocation)

    def _spare(self, view: View) -> Capacity:
        """Return the GPUs that no guaranteed job holds or has reserved."""
        held = [job.allocation for job in view.jobs.values() if job.id in self._guaranteed]
        return Capacity.idle(view, [*held, *self._reserved.values()])

    def _keep_reservation(self, job_id: str, board: _Board) -> None:
        """Count a job's reserved GPUs as taken, or drop the reservation if a node is gone."""
        held = self._reserved.get(job_id, NOTHING)
        if board.guaranteed.holds(held):
            board.guaranteed.take(held)
        else:
            del self._reserved[job_id]

    def _reserve(self, job: JobView, board: _Board) -> Allocation:
        """Reserve GPUs without guaranteed jobs, all on one node if the job fits on a node."""
        held = dict(self._reserved.get(job.id, NOTHING))
        free = board.guaranteed.free
        missing = job.num_gpus - sum(held.values())
        nodes = sorted(held)
        if job.num_gpus > board.largest:
            nodes = sorted((node for node in range(len(free)) if free[node]), key=lambda node: (-free[node], node))
        elif not nodes and max(free, default=0):
            fitting = [node for node in range(len(free)) if free[node] >= missing]
            nodes = [min(fitting, key=free.__getitem__) if fitting else free.index(max(free))]
        for node in nodes:
            taken = min(missing, free[node])
            if taken:
                held[node] = held.get(node, 0) + taken
                board.guaranteed.take(((node, taken),))
                missing -= taken
        self._reserved[job.id] = tuple(sorted(held.items()))
        return self._reserved[job.id]

    def _neighbours(self, job: JobView, board: _Board, gpu_type: str) -> list[JobView]:
        """List the guaranteed jobs with which a job may share GPUs."""
        idle = (other for other in board.running if other.id in self._guaranteed and _busy(other) < self.max_busy)
        return [other for other in idle if self._memory.holds(gpu_type, job, other)]


class _Board:
    """The holders of GPUs during a decision; without `sharing` both classes are served from the same GPUs."""

    def __init__(self, view: View, guaranteed: Collection[str], *, sharing: bool) -> None:
        self.sharing = sharing
        self._names = guaranteed
        self.guaranteed = Capacity.idle(view)
        self._opportunistic = Capacity.idle(view) if sharing else self.guaranteed
        self.total, self.largest = self.guaranteed.total, max(self.guaranteed.free)
        self.running: list[JobView] = []
        self.held: dict[str, Allocation] = {}
        for job in view.jobs.values():
            if job.running:
                self.start(job, job.allocation)

    def start(self, job: JobView, allocation: Allocation, *, reserved: bool = False) -> None:
        """Record that a job holds GPUs, unless its reservation already did."""
        self.running.append(job)
        self.held[job.id] = allocation
        if not reserved:
            (self.guaranteed if job.id in self._names else self._opportunistic).take(allocation)

    def others(self, allocation: Allocation, *, guaranteed: bool) -> list[str]:
        """List the jobs of a class on the nodes of an allocation."""
        jobs = (job for job in self.running if (job.id in self._names) == guaranteed)
        return [job.id for job in jobs if _touches(self.held[job.id], allocation)]

    def pick(self, job: JobView, near: list[JobView], view: View) -> Allocation | None:
        """Choose GPUs for an opportunistic job, from the nodes with most usable GPUs, nodes ascending."""
        usable = self._opportunistic
        barred = {other.id for other in self.running if other.id in self._names} - {other.id for other in near}
        if barred and self.sharing:
            left = list(usable.free)
            for node, gpus in (pair for job_id in barred for pair in self.held[job_id]):
                left[node] = max(0, left[node] - gpus)
            usable = Capacity(view.nodes, view.up, left)
        picked = usable.choose(MOST_FREE, job.num_gpus)
        return None if picked is None else tuple(sorted(picked))


def _touches(one: Allocation, other: Allocation) -> bool:
    return not {node for node, _ in one}.isdisjoint(node for node, _ in other)


def _busy(job: JobView) -> float:
    return job[GPU_BUSY] or 0.0
