"""Optimus with an oracle: gives each GPU in turn to the job whose completion it brings forward most.

Idea: greedy marginal gains in remaining time (Peng et al., EuroSys'18, section 4.1). This is the "Optimus+Oracle" that
Pollux compares with (section 5.1 there): one knob, the number of GPUs, instead of workers and parameter servers; true
step times and true remaining iterations at the submitted batch size. It keeps the quirks of Pollux's simulator on which
the published results depend: the estimate of remaining iterations leaves out the epoch in progress, one GPU is
predicted with at least two micro-batches, and placement is taken to be consolidated. Parameters correct the first two
(docs/validation.md gives the effect). With several GPU types it runs on each separately
(`simsched.toolkit.type_pools`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from simsched.agent import Agent, fixed_agent
from simsched.model import Allocation, ApplicationFacts, BatchLimits, JobRequest, Site
from simsched.model.batch import clip_to_max, split_batch
from simsched.model.placement import consolidated_shape
from simsched.policy import REMAINING_WORK, Decision, JobView, Policy, Traits, View
from simsched.policy.signals import STEP_TIMES
from simsched.toolkit import TypePool, available_gpus, type_pools
from simsched.toolkit.elastic import fixed_batch, place_counts, required_limits


@dataclass
class Optimus(Policy):
    """Gives every job a GPU in order of arrival, then each further GPU to the largest gain in remaining time.

    By default it estimates as the published simulator does. With `count_current_epoch` the epoch in progress counts as
    remaining work too; with `plain_one_gpu` a batch that fits on one GPU is predicted to run there in one piece.
    """

    name: ClassVar[str] = "optimus"
    traits: ClassVar[Traits] = Traits(interval="interval_s", needs={STEP_TIMES, REMAINING_WORK}, rigid=False)

    interval_s: int = 60
    count_current_epoch: bool = False
    plain_one_gpu: bool = False
    _step_times: dict[tuple[str, str, int, int], float] = field(default_factory=dict, init=False, repr=False)

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        """Keep the batch size submitted; refuse jobs described only by a duration."""
        required_limits(self.name, "step times", request, facts)
        return fixed_agent(request, facts)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Count GPUs job by job within each GPU type, then place those whose count changed."""
        allocations: dict[str, Allocation] = {}
        for pool in type_pools(view):
            allocations |= place_counts(self._count(pool), pool.view)
        return Decision(allocations)

    def _count(self, pool: TypePool) -> dict[str, int]:
        free = available_gpus(pool.view)
        counts: dict[str, int] = {}
        gains: dict[str, float] = {}
        for job in pool.jobs.values():
            counts[job.id] = min(free, 1)
            free -= counts[job.id]
            gains[job.id] = self._gain(job, 1, pool) if free else 0.0
        while free and gains:
            best = max(gains, key=gains.__getitem__)
            if gains[best] <= 0:
                break
            counts[best] += 1
            free -= 1
            gains[best] = self._gain(pool.jobs[best], counts[best], pool) if free else 0.0
        return counts

    def _gain(self, job: JobView, gpus: int, pool: TypePool) -> float:
        """Return the seconds that one more GPU saves, 0 if the job cannot use it."""
        limits = job.limits
        assert limits is not None  # `agent` refuses jobs without
        batch = fixed_batch(job)
        most = batch // limits.min_local_bsz
        if gpus + 1 > (most if job.max_gpus is None else min(most, job.max_gpus)):
            return 0.0
        faster = self._step_time(job, limits, batch, gpus + 1, pool)
        return (self._step_time(job, limits, batch, gpus, pool) - faster) * self._remaining_iterations(job, batch)

    def _step_time(self, job: JobView, limits: BatchLimits, batch: int, gpus: int, pool: TypePool) -> float:
        key = (job.request.application, pool.gpu_type, batch, gpus)
        known = self._step_times.get(key)
        if known is None:
            least = 2 if gpus == 1 and not self.plain_one_gpu else 1
            split = clip_to_max(limits, split_batch(limits, batch, gpus, least_micro_batches=least), gpus)
            site = Site(consolidated_shape(gpus, pool.gpus_per_node), pool.gpu_type)
            step_s, sync_s = job[STEP_TIMES](site, split.local_bsz)
            known = self._step_times[key] = step_s + (step_s - sync_s) * split.accum_steps
        return known

    def _remaining_iterations(self, job: JobView, batch: int) -> float:
        remaining = job[REMAINING_WORK]
        last = remaining.epochs - 1
        done = remaining.epoch - 1 if self.count_current_epoch else remaining.epoch
        if done >= last:
            return 1.0
        return remaining.iterations(batch, last) - (remaining.iterations(batch, done) if done >= 0 else 0.0)
