"""Horus: jobs share GPUs if their predicted utilisations sum to at most one GPU.

Idea: Yeung et al., Horus, IEEE TPDS 33(1), 2022: how busy a job keeps its GPUs is predicted before it runs, from its
model; a job goes where the predicted utilisations interfere least. All of this is from memory: no available source
gives the rule, and no number of the paper is checked here.

Here jobs wait in order of expected duration x GPUs, learned from finished jobs (`simsched.toolkit.estimates`), and
are not preempted. A job that finds no free GPUs shares those of a job that has the same number and runs alone there,
the one with the least predicted utilisation, if both together stay within `most_busy` and the memory suffices.
Deviations: the prediction is the job's profile, or `assumed_busy` without one; the paper's fairness between queues of
sizes is left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from simsched.model import Allocation, Capacity, Cluster
from simsched.policy import Action, Becomes, Decision, JobView, Onto, Place, Policy, Traits, View
from simsched.policy.physics import BUSY_GPUS, SHARED_GPUS, UNPACKED
from simsched.policy.signals import GPU_BUSY
from simsched.toolkit import GpuMemory, TypePool, type_pools
from simsched.toolkit.estimates import DurationHistory, LearnedDurations
from simsched.toolkit.placers import MOST_FREE


@dataclass
class Horus(Policy):
    """Starts jobs by expected GPU-time, sharing GPUs if the predicted utilisations allow it."""

    name: ClassVar[str] = "horus"
    traits: ClassVar[Traits] = Traits(
        needs={GPU_BUSY},
        wants={
            SHARED_GPUS: UNPACKED,
            BUSY_GPUS: Becomes("takes every job to keep its GPUs busy for `assumed_busy` of the time"),
        },
    )

    most_busy: float = 1.0
    assumed_busy: float = 0.5
    packing: bool = True
    prior_s: float = 3600.0
    window: int = 100
    _expected: LearnedDurations = field(init=False, repr=False)
    _memory: GpuMemory = field(default=GpuMemory(), init=False, repr=False)

    def __post_init__(self) -> None:
        """Start without history."""
        self._expected = LearnedDurations(DurationHistory(prior_s=self.prior_s, window=self.window))

    def begin(self, cluster: Cluster) -> None:
        """Record the memory of the GPUs."""
        self._memory = GpuMemory.of(cluster)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Learn from finished jobs, then start others."""
        self._expected.learn(view)
        start: dict[str, Allocation | Action] = {}
        for pool in type_pools(view, rigid=True):
            free = Capacity.of(pool.view)
            shares = self.packing and view.max_jobs_per_gpu > 1
            running = (job for job in pool.jobs.values() if job.running and not job.neighbours)
            hosts = {job.id: job.allocation for job in running}
            waiting = [job for job in pool.jobs.values() if not job.running]
            waiting.sort(key=self._expected.gpu_time_gpu_s)
            if view.reasons is not None:
                view.reasons.order({job.id: self._expected.gpu_time_gpu_s(job) for job in waiting})
            for job in waiting:
                picked = free.place(MOST_FREE, job.num_gpus)
                host = self._host(job, hosts, pool) if shares and picked is None else None
                if picked is not None:
                    start[job.id] = hosts[job.id] = picked
                elif host is not None:
                    start[job.id] = Place(hosts.pop(host), more=(Onto(host),))
                if job.id in start:
                    self._expected.started(job, view.now_s)
        return Decision.change(start)

    def _host(self, job: JobView, hosts: Iterable[str], pool: TypePool) -> str | None:
        """Return the job with the least predicted interference with another, None if all interfere too much."""
        fitting = [
            host
            for host in map(pool.jobs.__getitem__, hosts)
            if host.num_gpus == job.num_gpus
            and self._memory.holds(pool.gpu_type, host, job)
            and self._busy(host) + self._busy(job) <= self.most_busy
        ]
        best = min(fitting, key=self._busy, default=None)
        return None if best is None else best.id

    def _busy(self, job: JobView) -> float:
        busy = job[GPU_BUSY]
        return self.assumed_busy if busy is None else busy
