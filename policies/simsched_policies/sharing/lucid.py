"""Lucid: jobs are profiled on a few nodes first, then start by expected GPU-time, in non-intrusive pairs.

Idea: Hu et al., Lucid, ASPLOS'23. A new job runs for a while on the profiling nodes, smallest jobs first; short ones
finish there. Its profile gives it a share score: 0 (tiny), 1 (medium) or 2 (jumbo). Then jobs wait in order of expected
duration x GPUs and are not preempted. A job that finds no free GPUs shares those of a job that has the same number,
runs alone there, and is expected to take at least half as long, if the scores sum to at most 2 and the memory suffices.
While few jobs are expected to arrive, no jobs share, and the first job that does not fit blocks the others.

Published defaults (its simulator): profiles of at most 500 s, shares of jobs of up to 8 GPUs, sharing while more than 2
jobs are expected. From memory: these are jobs per hour. Our choices: one profiling node in each GPU type, the bounds of
the scores (a decision tree there, on utilisation and memory), a job without a profile counts as medium, the expected
arrivals are those of the previous hour. Deviations: expected durations are means of similar finished jobs (an additive
model there, `simsched.toolkit.estimates`); a job that leaves the profiling nodes keeps its progress and pays a restart;
jobs too large for the other nodes may use all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from simsched.model import Allocation, Capacity, Cluster
from simsched.policy import Action, Becomes, Decision, JobView, Onto, Place, Policy, Traits, View
from simsched.policy.physics import BUSY_GPUS, SHARED_GPUS, UNPACKED
from simsched.policy.signals import GPU_BUSY
from simsched.toolkit import GpuMemory, TypePool, type_pools
from simsched.toolkit.estimates import DurationHistory, LearnedDurations
from simsched.toolkit.placers import most_free_among

_HOUR_S = 3600
_MOST_SHARED_GPUS = 8
_MOST_SCORE = 2
_MEDIUM = 1


@dataclass
class _Changes:
    """The changes of a decision."""

    start: dict[str, Allocation | Action] = field(default_factory=dict)
    stop: list[str] = field(default_factory=list)


@dataclass
class Lucid(Policy):
    """Profiles every job, then starts jobs by expected GPU-time, and packs them in pairs while load is high."""

    name: ClassVar[str] = "lucid"
    traits: ClassVar[Traits] = Traits(
        needs={GPU_BUSY}, wants={SHARED_GPUS: UNPACKED, BUSY_GPUS: Becomes("gives every job the medium share score")}
    )

    profile_s: int = 500
    profiling_nodes: int = 1
    profiled_gpus: int = 8
    least_jobs_per_h: float = 2
    tiny_below: float = 0.3
    jumbo_above: float = 0.7
    packing: bool = True
    prior_s: float = 3600.0
    window: int = 100
    _expected: LearnedDurations = field(init=False, repr=False)
    _profiling: dict[str, float] = field(default_factory=dict, init=False, repr=False)
    _profiled: set[str] = field(default_factory=set, init=False, repr=False)
    _arrivals_s: deque[float] = field(default_factory=deque, init=False, repr=False)
    _memory: GpuMemory = field(default=GpuMemory(), init=False, repr=False)

    def __post_init__(self) -> None:
        """Start without history."""
        if self.profile_s < 0 or self.profiling_nodes < 0:
            raise ValueError("profile_s and profiling_nodes must not be negative")
        self._expected = LearnedDurations(DurationHistory(prior_s=self.prior_s, window=self.window))

    def begin(self, cluster: Cluster) -> None:
        """Record the memory of the GPUs."""
        self._memory = GpuMemory.of(cluster)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """End finished profiles, start others, then serve the queue of each GPU type."""
        self._update(view)
        changes = _Changes()
        shares = self.packing and view.max_jobs_per_gpu > 1 and len(self._arrivals_s) > self.least_jobs_per_h
        for pool in type_pools(view, rigid=True):
            self._serve(pool, changes, shares=shares)
        for job_id in changes.start:
            self._expected.started(view.jobs[job_id], view.now_s)
        wake_at_s = min(self._profiling.values(), default=None)
        return Decision.change(changes.start, changes.stop, wake_at_s=wake_at_s)

    def _update(self, view: View) -> None:
        self._expected.learn(view)
        self._profiled.difference_update(view.finished)
        self._arrivals_s.extend(job.request.submit_time_s for job in view.arrived)
        while self._arrivals_s and self._arrivals_s[0] <= view.now_s - _HOUR_S:
            self._arrivals_s.popleft()
        held = {job_id for job_id in self._profiling if job_id in view.jobs and view.jobs[job_id].running}
        self._profiling = {job_id: end_s for job_id, end_s in self._profiling.items() if job_id in held}

    def _serve(self, pool: TypePool, changes: _Changes, *, shares: bool) -> None:
        view = pool.view
        free = Capacity.of(view)
        profiling = self._partition(pool)
        over = [job for job in pool.jobs.values() if self._profiling.get(job.id, view.now_s + 1) <= view.now_s]
        for job in over:
            del self._profiling[job.id]
            self._profiled.add(job.id)
            free.give_back(job.allocation)
        self._begin_profiles(pool, profiling, free, changes)
        queue = [job for job in pool.jobs.values() if not job.running and job.id not in changes.start]
        queue = [job for job in queue if job.id in self._profiled or not self._is_profiled(job, profiling, view)]
        self._start([*over, *queue], pool, profiling, free, changes, shares=shares)
        changes.stop += [job.id for job in over if job.id not in changes.start]

    def _partition(self, pool: TypePool) -> frozenset[int]:
        """Return the nodes that profile: the last ones of the type, never all."""
        count = min(self.profiling_nodes, len(pool.nodes) - 1) if self.profile_s else 0
        return frozenset(pool.nodes[len(pool.nodes) - count :])

    def _is_profiled(self, job: JobView, profiling: Collection[int], view: View) -> bool:
        return job.num_gpus <= min(self.profiled_gpus, _capacity(view, profiling))

    def _begin_profiles(self, pool: TypePool, profiling: Collection[int], free: Capacity, changes: _Changes) -> None:
        """Profile new jobs, fewest GPUs first."""
        view = pool.view
        placer = most_free_among(profiling)
        new = [job for job in pool.jobs.values() if not job.running and job.id not in self._profiled]
        for job in sorted(new, key=lambda job: job.num_gpus):
            picked = free.place(placer, job.num_gpus) if self._is_profiled(job, profiling, view) else None
            if picked is None:
                break
            changes.start[job.id] = picked
            self._profiling[job.id] = view.now_s + self.profile_s

    def _start(
        self,
        queue: Sequence[JobView],
        pool: TypePool,
        profiling: Collection[int],
        free: Capacity,
        changes: _Changes,
        *,
        shares: bool,
    ) -> None:
        """Start jobs in order of expected GPU-time, on free or shared GPUs."""
        gpu_time = {job.id: self._expected.gpu_time_gpu_s(job) for job in queue}
        main = [node for node in pool.nodes if node not in profiling]
        largest = _capacity(pool.view, main)
        inside, anywhere = most_free_among(main), most_free_among(pool.nodes)
        hosts = self._hosts(pool, queue) if shares else {}
        queue = sorted(queue, key=lambda job: gpu_time[job.id])
        if pool.view.reasons is not None:
            pool.view.reasons.order({job.id: gpu_time[job.id] for job in queue})
        for job in queue:
            picked = free.place(anywhere if job.num_gpus > largest else inside, job.num_gpus)
            if picked is not None:
                changes.start[job.id] = hosts[job.id] = picked
                continue
            if not shares:
                break
            fitting = (pool.jobs[host] for host in hosts)
            host = next((one for one in fitting if self._may_share(job, one, pool.gpu_type, gpu_time[job.id])), None)
            if host is not None:
                changes.start[job.id] = Place(hosts.pop(host.id), more=(Onto(host.id),))

    def _hosts(self, pool: TypePool, queue: Iterable[JobView]) -> dict[str, Allocation]:
        """Return the GPUs of jobs that run alone and stay there."""
        others = {job.id for job in queue} | self._profiling.keys()
        running = (job for job in pool.jobs.values() if job.running and not job.neighbours)
        return {job.id: job.allocation for job in running if job.id not in others}

    def _may_share(self, job: JobView, host: JobView, gpu_type: str, gpu_time_gpu_s: float) -> bool:
        return (
            job.num_gpus == host.num_gpus <= _MOST_SHARED_GPUS
            and self._score(job) + self._score(host) <= _MOST_SCORE
            and self._memory.holds(gpu_type, job, host)
            and gpu_time_gpu_s <= 2 * self._expected.gpu_time_gpu_s(host)
        )

    def _score(self, job: JobView) -> int:
        busy = job[GPU_BUSY]
        if busy is None:
            return _MEDIUM
        return 0 if busy < self.tiny_below else _MEDIUM if busy <= self.jumbo_above else _MOST_SCORE


def _capacity(view: View, nodes: Iterable[int]) -> int:
    return sum(view.nodes[node].gpus for node in nodes if view.up[node])
