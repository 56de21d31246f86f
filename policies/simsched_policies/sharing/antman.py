"""AntMan: jobs with a guarantee run as if alone, opportunistic ones use what the guaranteed leave of the GPUs.

Idea: two classes of jobs (Xiao et al., AntMan, OSDI'20, sections 4 and 5). A guaranteed job waits for GPUs that no
guaranteed job holds, and reserves them as they become free; opportunistic jobs on them stay. An opportunistic job
starts where the GPU is idle, or where the guaranteed job on it keeps it busy for less than 80 % of the time. Nobody is
preempted. What two jobs do together on a GPU is for the engine to say (`engine.sharing`), as for every policy; of that
the guaranteed one gets all of its speed and the other the rest (`guaranteed_first`), which is the paper's local
scheduler.

With tenants, a job that asks for a guarantee has one only within its tenant's own GPUs, and is opportunistic beyond
them. As soon as enough of the quota is free it is upgraded, the first submitted first; one that runs stays where it
is, and is not upgraded while a guaranteed job shares its GPUs or others have reserved them. Nobody is ever downgraded.
Without tenants everybody who asks is guaranteed.

Published default: busy below 80 %. Deviations: how busy a job keeps its GPUs is known from its profile (the paper
measures it over 10 s), and a job without a profile counts as below the limit; memory is not spilled to the host, so
jobs share a GPU only where both fit. Without shared GPUs the classes only queue apart.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from simsched.model import Allocation, Cluster, Tenant, from_counts
from simsched.policy import (
    GPU_BUSY,
    GUARANTEED_JOBS,
    OPPORTUNISTIC_JOBS,
    SHARED_GPUS,
    UNPACKED,
    Becomes,
    Decision,
    JobView,
    Policy,
    Signal,
    View,
    Wants,
)
from simsched.toolkit import GpuMemory, available_gpus, most_free_first, type_pools


@dataclass
class AntMan(Policy):
    """Starts guaranteed jobs first, in order of submission, then opportunistic ones beside them.

    Where there are `tenants`, the quota of each is its own GPUs; one that is not named has none.
    """

    name: ClassVar[str] = "antman"
    needs: ClassVar[frozenset[Signal]] = frozenset({GPU_BUSY})
    guaranteed_first: ClassVar[bool] = True
    wants: ClassVar[Wants] = {
        SHARED_GPUS: UNPACKED,
        GUARANTEED_JOBS: Becomes("starts jobs in order of arrival, with backfill", "fifo", {"backfill": True}),
        OPPORTUNISTIC_JOBS: Becomes("reserves GPUs for each job in turn, so that no two share one"),
    }

    max_busy: float = 0.8
    packing: bool = True
    tenants: Mapping[str, Tenant] = field(default_factory=dict)
    _guaranteed: set[str] = field(default_factory=set, init=False, repr=False)
    _reserved: dict[str, list[int]] = field(default_factory=dict, init=False, repr=False)
    _memory: GpuMemory = field(default=GpuMemory(), init=False, repr=False)

    def begin(self, cluster: Cluster) -> None:
        """Learn how much memory the GPUs have."""
        self._memory = GpuMemory.of(cluster)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Start what can start; nothing is ever taken away."""
        start: dict[str, Allocation] = {}
        beside: dict[str, list[str]] = {}
        waiting = {job.id for job in view.jobs.values() if not job.running}
        self._reserved = {job_id: held for job_id, held in self._reserved.items() if job_id in waiting}
        classes = self._classify(view)
        for pool in type_pools(view, rigid=True):
            board = _Board(pool.view, self._guaranteed, sharing=self.packing and view.max_jobs_per_gpu > 1)
            jobs = [job for job in pool.jobs.values() if not job.running and job.num_gpus <= board.total]
            for job in jobs:
                self._keep_reservation(job.id, board)
            for job in jobs:
                if job.id in self._guaranteed:
                    held = self._reserve(job, board)
                    if sum(held) == job.num_gpus:
                        start[job.id], beside[job.id] = from_counts(held), board.others(held, guaranteed=False)
                        board.start(job, held)
            for job in jobs:
                if job.id not in self._guaranteed:
                    near = self._neighbours(job, board, pool.gpu_type)
                    counts = board.pick(job, near)
                    if counts is not None:
                        start[job.id] = from_counts(counts)
                        beside[job.id] = [other.id for other in near if _touches(board.held[other.id], counts)]
                        board.start(job, counts)
        shared = {job_id: others for job_id, others in beside.items() if others}
        return Decision.change(start, beside=shared, guaranteed=classes)

    def _classify(self, view: View) -> dict[str, bool]:
        """Settle who is guaranteed, and return the jobs whose class is not, or not any more, the one they asked for."""
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
                for node, gpus in job.allocation:
                    spare[node] -= gpus
        return changed

    def _may_stay(self, job: JobView, spare: list[int]) -> bool:
        """Return whether a job could be guaranteed where it is."""
        alone = self._guaranteed.isdisjoint(job.neighbours)
        return alone and all(gpus <= spare[node] for node, gpus in job.allocation)

    def _spare(self, view: View) -> list[int]:
        """Count the GPUs of each node that no guaranteed job holds or has reserved."""
        spare = [node.gpus if up else 0 for node, up in zip(view.nodes, view.up, strict=True)]
        for job in view.jobs.values():
            if job.id in self._guaranteed:
                for node, gpus in job.allocation:
                    spare[node] -= gpus
        for held in self._reserved.values():
            spare = [count - gpus for count, gpus in zip(spare, held, strict=True)]
        return spare

    def _keep_reservation(self, job_id: str, board: _Board) -> None:
        """Count what a job has reserved as taken, or drop it where a node is gone."""
        held = self._reserved.get(job_id)
        if held is not None and all(count <= room for count, room in zip(held, board.guaranteed_free, strict=True)):
            board.guaranteed_free = [free - count for free, count in zip(board.guaranteed_free, held, strict=True)]
        else:
            self._reserved.pop(job_id, None)

    def _reserve(self, job: JobView, board: _Board) -> list[int]:
        """Reserve GPUs that no guaranteed job has, for a job that fits on a node all of them on one."""
        held = self._reserved.setdefault(job.id, [0] * len(board.sizes))
        free = board.guaranteed_free
        missing = job.num_gpus - sum(held)
        nodes = [node for node, count in enumerate(held) if count]
        if job.num_gpus > max(board.sizes):
            nodes = sorted((node for node in range(len(free)) if free[node]), key=lambda node: (-free[node], node))
        elif not nodes and max(free, default=0):
            fitting = [node for node in range(len(free)) if free[node] >= missing]
            nodes = [min(fitting, key=free.__getitem__) if fitting else free.index(max(free))]
        for node in nodes:
            taken = min(missing, free[node])
            held[node] += taken
            free[node] -= taken
            missing -= taken
        board.reserve(held)
        return held

    def _neighbours(self, job: JobView, board: _Board, gpu_type: str) -> list[JobView]:
        """List the guaranteed jobs beside which a job may run."""
        idle = (other for other in board.running if other.id in self._guaranteed and _busy(other) < self.max_busy)
        return [other for other in idle if self._memory.holds(gpu_type, job, other)]


class _Board:
    """Who holds how many GPUs of each node, while a decision is made."""

    def __init__(self, view: View, guaranteed: Collection[str], *, sharing: bool) -> None:
        self.sharing = sharing
        self._guaranteed = guaranteed
        self.sizes = [node.gpus if up else 0 for node, up in zip(view.nodes, view.up, strict=True)]
        self.total = sum(self.sizes)
        self.running: list[JobView] = []
        self.held: dict[str, list[int]] = {}
        self.guaranteed_free = list(self.sizes)
        self._opportunistic_free = list(self.sizes)
        for job in view.jobs.values():
            if job.running:
                counts = [0] * len(self.sizes)
                for node, gpus in job.allocation:
                    counts[node] = gpus
                self._lower(job, counts)

    def reserve(self, held: list[int]) -> None:
        """Keep opportunistic jobs off reserved GPUs where they could not be shared."""
        if not self.sharing:
            pairs = zip(self._opportunistic_free, self.guaranteed_free, strict=True)
            self._opportunistic_free = [min(pair) for pair in pairs]

    def start(self, job: JobView, counts: list[int]) -> None:
        """Note that a job holds GPUs; a guaranteed one has reserved them before."""
        if job.id in self._guaranteed:
            self.guaranteed_free = [free + count for free, count in zip(self.guaranteed_free, counts, strict=True)]
        self._lower(job, list(counts))

    def others(self, counts: Iterable[int], *, guaranteed: bool) -> list[str]:
        """List the jobs of a class on the nodes of an allocation."""
        wanted = list(counts)
        jobs = (job for job in self.running if (job.id in self._guaranteed) == guaranteed)
        return [job.id for job in jobs if _touches(self.held[job.id], wanted)]

    def pick(self, job: JobView, near: list[JobView]) -> list[int] | None:
        """Choose GPUs for an opportunistic job, from nodes with the most that it may use."""
        usable = list(self._opportunistic_free)
        barred = {other.id for other in self.running if other.id in self._guaranteed} - {other.id for other in near}
        for job_id in barred if self.sharing else ():
            usable = [max(0, free - count) for free, count in zip(usable, self.held[job_id], strict=True)]
        picked = most_free_first(usable, job.num_gpus)
        if picked is None:
            return None
        counts = [0] * len(usable)
        for node, gpus in picked:
            counts[node] = gpus
        return counts

    def _lower(self, job: JobView, counts: list[int]) -> None:
        self.running.append(job)
        self.held[job.id] = counts
        for node, count in enumerate(counts):
            if job.id in self._guaranteed or not self.sharing:
                self.guaranteed_free[node] -= count
            if job.id not in self._guaranteed or not self.sharing:
                self._opportunistic_free[node] -= count


def _touches(one: Iterable[int], other: Iterable[int]) -> bool:
    return any(mine and theirs for mine, theirs in zip(one, other, strict=True))


def _busy(job: JobView) -> float:
    return job[GPU_BUSY] or 0.0
