"""ElasticFlow: jobs with deadlines get as few GPUs as keep them in time, and spare GPUs go where they save most.

Idea: Gu et al., ElasticFlow, ASPLOS'23, section 4. Time is cut into slots. A job is admitted if it and everybody
admitted before can be in time, each on its minimum satisfactory share; GPUs left over in this slot double the share of
the job with the greatest marginal return, GPU-time saved per GPU more. Jobs without a deadline, and those that were not
admitted, use what is left, in order of submission.

Published defaults: slots of 60 s, sizes that are powers of two. Deviations: a job that is not admitted is not dropped
but runs as best effort, so that every job finishes and late ones are counted; rates are true step times of consolidated
placements at the batch size submitted and remaining work is an oracle (the paper profiles both beforehand); because
scaling costs a restart here, jobs keep what they hold while there is room, grow only if they end sooner for it, and are
admitted with two restarts to spare; plans look at most `horizon_slots` slots ahead. On several GPU types it runs in
each by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import numpy as np

from simsched.agent.agent import Agent
from simsched.agent.fixed_agent import fixed_agent
from simsched.model.application import ApplicationFacts
from simsched.model.batch import batch_for_target
from simsched.model.job import JobRequest
from simsched.model.placement import Allocation, Site, consolidated_shape, gpus_of
from simsched.policy import Decision, JobView, Policy, Signal, Triggers, View
from simsched.policy.deadlines import DeadlineJob, Plan, admits, plan_all, scale_up
from simsched.policy.elastic import fixed_batch, place_counts, required_limits, usable_gpus
from simsched.policy.gang import available_gpus
from simsched.policy.signals import REMAINING_WORK, STEP_TIMES, RemainingWork
from simsched.policy.type_pools import TypePool, type_pools


@dataclass
class ElasticFlow(Policy):
    """Admits jobs whose deadline can be met, and scales them slot by slot."""

    name: ClassVar[str] = "elasticflow"
    needs: ClassVar[frozenset[Signal]] = frozenset({STEP_TIMES, REMAINING_WORK})
    rigid: ClassVar[bool] = False

    slot_s: int = 60
    horizon_slots: int = 1440
    _admitted: dict[str, bool] = field(default_factory=dict, init=False, repr=False)
    _steps_s: dict[tuple[str, str, int, int], float] = field(default_factory=dict, init=False, repr=False)

    @property
    def triggers(self) -> Triggers:
        """Decide every slot."""
        return Triggers(interval_s=self.slot_s)

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        """Keep the batch size submitted; refuse jobs that know only a duration."""
        required_limits(self.name, "step times", request, facts)
        return fixed_agent(request, facts)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Plan within each GPU type, then place the jobs whose number of GPUs changes."""
        for job_id in view.finished:
            self._admitted.pop(job_id, None)
        allocations: dict[str, Allocation] = {}
        before = set(self._admitted)
        for pool in type_pools(view):
            allocations |= place_counts(self._count(pool), pool.view, largest_first=True)
        declined = [job_id for job_id, admitted in self._admitted.items() if not admitted and job_id not in before]
        return Decision(allocations, declined=declined)

    def _count(self, pool: TypePool) -> dict[str, int]:
        gpus = available_gpus(pool.view)
        if not gpus:
            return {}
        in_time = [self._in_time(job, pool, gpus) for job in pool.jobs.values() if self._admitted.get(job.id, True)]
        planned, plans = self._admit([one for one in in_time if one is not None], gpus)
        names = {one.id for one in planned}
        rest = [self._at_leisure(job, pool, gpus) for job in pool.jobs.values() if job.id not in names]
        counts = scale_up(planned, plans, gpus - min(len(rest), max(gpus - _held(planned, plans), 0)))
        left = gpus - sum(counts.values())
        for one in rest:
            counts[one.id] = min(left, 1)
            left -= counts[one.id]
        return _grow(counts, rest, left)

    def _admit(self, jobs: list[DeadlineJob], gpus: int) -> tuple[list[DeadlineJob], dict[str, Plan]]:
        """Return the jobs that can be in time, and their plans; all together, else admitted one after the other.

        One that was admitted and is late after all, because of overheads, becomes best effort.
        """
        plans = plan_all(jobs, gpus)
        planned = jobs if plans is not None else []
        if plans is None:
            for one in jobs:
                if admits(planned, one, gpus):
                    planned.append(one)
            plans = plan_all(planned, gpus) or {}
        names = {one.id for one in planned}
        self._admitted.update({one.id: one.id in names for one in jobs})
        return planned, plans

    def _in_time(self, job: JobView, pool: TypePool, gpus: int) -> DeadlineJob | None:
        if job.request.deadline_s is None:
            return None
        restart_s = pool.view.restart_delay_s * (1 if job.running else 2)  # one for now, and one for later
        slots = int((job.request.deadline_s - job.age_s - restart_s) // self.slot_s)
        return self._job(job, pool, gpus, min(max(slots, 0), self.horizon_slots))

    def _at_leisure(self, job: JobView, pool: TypePool, gpus: int) -> DeadlineJob:
        return self._job(job, pool, gpus, self.horizon_slots)

    def _job(self, job: JobView, pool: TypePool, gpus: int, slots: int) -> DeadlineJob:
        limits = job.limits
        assert limits is not None  # `agent` refuses jobs without
        batch = fixed_batch(job)
        most = usable_gpus(job, gpus)
        rate: Callable[[int], float] = partial(self._rate, job, pool, batch)
        work = _iterations_left(job, batch, limits.init_batch_size)
        restart_slots = pool.view.restart_delay_s / self.slot_s
        return DeadlineJob(job.id, work, slots, most, rate, gpus_of(job.allocation), restart_slots)

    def _rate(self, job: JobView, pool: TypePool, batch: int, gpus: int) -> float:
        """Return the iterations of a slot."""
        if not gpus:
            return 0.0
        key = (job.request.application, pool.gpu_type, batch, gpus)
        if key not in self._steps_s:
            limits = job.limits
            assert limits is not None
            split = batch_for_target(limits, batch, gpus)
            site = Site(consolidated_shape(gpus, pool.gpus_per_node), pool.gpu_type)
            step_s, sync_s = job[STEP_TIMES](site, split.local_bsz)
            self._steps_s[key] = step_s + (step_s - sync_s) * split.accum_steps
        return self.slot_s / self._steps_s[key]


def _iterations_left(job: JobView, batch: int, initial: int) -> float:
    remaining = job[REMAINING_WORK]
    last, epoch = remaining.epochs - 1, remaining.epoch
    later = remaining.iterations(batch, last) - remaining.iterations(batch, epoch)
    # Progress counts iterations at the initial batch size, which tell how much of the epoch in progress is left.
    of_epoch = _of_epoch(remaining, initial, epoch)
    left = remaining.progress - remaining.iterations(initial, last) + remaining.iterations(initial, epoch)
    return later + min(max(left / of_epoch, 0.0), 1.0) * _of_epoch(remaining, batch, epoch)


def _of_epoch(remaining: RemainingWork, batch: int, epoch: int) -> float:
    """Return the iterations of one epoch."""
    before = remaining.iterations(batch, epoch - 1) if epoch else 0.0
    return remaining.iterations(batch, epoch) - before


def _held(planned: list[DeadlineJob], plans: dict[str, tuple[int, ...]]) -> int:
    return sum(plans[one.id][0] for one in planned if plans.get(one.id))


def _grow(counts: dict[str, int], jobs: list[DeadlineJob], left: int) -> dict[str, int]:
    """Double the GPUs of jobs without a deadline in turn, while any can use them."""
    grown = True
    while grown:
        grown = False
        for one in jobs:
            have = counts[one.id]
            if 0 < have <= left and 2 * have <= one.max_gpus and one.rate(2 * have) > one.rate(have):
                counts[one.id] = 2 * have
                left -= have
                grown = True
    return counts
