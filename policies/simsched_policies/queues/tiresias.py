"""Tiresias: least attained service in two dimensions, discretised into queues (Tiresias-L).

Idea: a job's priority falls in steps as its attained service (GPUs x time) grows: short jobs overtake long ones
although durations are unknown, and long jobs do not preempt each other constantly (Gu et al., NSDI'19, sections 3.2 and
3.3).

It runs in two ways, by `interval_s`:

- With an interval (the default, 60 s) it is the variant that Pollux compares with (OSDI'21, section 5.1, and its
  simulator): queues are examined every `interval_s`, where demotions take effect; a queue is ordered by time of entry;
  promotion is off; and a starting job takes the nodes with most free GPUs.
- Without one (`interval_s: null`) it is the paper's: decisions at every arrival and completion and at the second in
which a job crosses a threshold; in a queue, jobs that have run come before those that have not, the former ordered
  by their first start and the latter by arrival: no job is preempted for one of the same queue that has yet to start.
  The paper's own setting is one threshold of 3,200 GPU-seconds, no promotion and `placement: skew`.

Service counts restarts, as it does in both sources. With promotion, a job that reaches the first threshold while still
restarting (threshold / GPUs below the delay) cycles without progress: take thresholds well above the delay times the
GPUs of the largest jobs.

Deviations: the profiler is not simulated, the skew of a model is known when its job arrives; a promoted job keeps its
position by first start, which the paper leaves open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import ClassVar

import numpy as np

from simsched.agent import Agent, fixed_agent
from simsched.model import ApplicationFacts, JobRequest
from simsched.policy import Decision, JobView, Policy, Traits, View, Wants
from simsched.toolkit import Key, PriorityScheduler
from simsched.toolkit.levels import Levels, start_order
from simsched.toolkit.skew import PlacementName, SkewPlacement

#: Times of crossings are sums of floats; what is due within this is looked at.
_SLACK_S = 1e-3


@dataclass
class Tiresias(Policy):
    """Two-dimensional least attained service with K queues, first in, first out within a queue.

    `queue_thresholds_gpu_s` are the K - 1 ascending limits on attained service in GPU-seconds (16 GPU-hours in Pollux's
    evaluation, 3,200 GPU-seconds in the Tiresias testbed). A job that has waited `promote_knob` times as long as it has
    run returns to the first queue; null never promotes. `placement` is `skew` (consolidate models of which one tensor
    makes up more than `skew_limit`, fill fragments with the others) or the same placer for all jobs.
    """

    name: ClassVar[str] = "tiresias"
    traits: ClassVar[Traits] = Traits(interval="interval_s", forgets=True)

    queue_thresholds_gpu_s: Sequence[int] = (57_600,)
    interval_s: float | None = 60
    promote_knob: float | None = None
    placement: PlacementName = "most-free"
    skew_limit: float = 0.4
    _levels: Levels = field(init=False, repr=False)
    _placement: SkewPlacement = field(init=False, repr=False)
    _scheduler: PriorityScheduler = field(default_factory=PriorityScheduler, init=False, repr=False)
    #: When running jobs reach the limits of their queues, for decisions at intervals; `_due_s` has the latest by job.
    _reaching: list[tuple[float, str]] = field(default_factory=list, init=False, repr=False)
    _due_s: dict[str, float] = field(default_factory=dict, init=False, repr=False)
    _entries: count[int] = field(default_factory=count, init=False, repr=False)

    def __post_init__(self) -> None:
        """Start with empty queues."""
        self._levels = Levels(self.queue_thresholds_gpu_s, self.promote_knob)
        self._placement = SkewPlacement(self.placement, self.skew_limit)

    @property
    def counts_on(self) -> Wants:
        """Return the signal of model tensors if placement uses them."""
        return self._placement.wants

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        """Keep the batch size submitted, and record the skew of the model."""
        self._placement.note(request, facts)
        return fixed_agent(request, facts)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Update the queues, then admit from the first queue to the last; jobs that do not fit are skipped."""
        levels, scheduler = self._levels, self._scheduler
        scheduler.update(view)
        for job_id in view.finished:
            levels.leave(job_id)
        for job in view.arrived:
            levels.enter(job.id)
            scheduler.add(job, self._key(job, runs=False), self._placement.placer(job.id))
        moved = self._demote(view) if view.reached_threshold or self.interval_s is not None else []
        if levels.promotes:
            moved += levels.promote_all(view)
        for job_id in moved:
            scheduler.rekey(job_id, self._key(view.jobs[job_id], runs=scheduler.runs(job_id)))
        start, stop = scheduler.schedule()
        for job_id in start:
            if self.interval_s is not None:
                self._await_limit(view.jobs[job_id], view.now_s)
            elif (job := view.jobs[job_id]).first_start_s is None:
                scheduler.rekey(job_id, self._key(job, runs=True))
                moved.append(job_id)
        if levels.promotes:
            for job_id in start:
                levels.started(job_id)
            for job_id in stop:
                levels.stopped(job_id, view.now_s, view.jobs[job_id].held_s)
        if self.interval_s is not None or not (moved or levels.promotes):
            return Decision.change(start, stop)
        return Decision.change(start, stop, watch=self._watch(moved), wake_at_s=levels.next_promotion_s())

    def _demote(self, view: View) -> list[str]:
        """Demote the jobs that have reached the limit of their queue, in order of arrival."""
        levels = self._levels
        if self.interval_s is None:
            crossed = [job for job in view.reached_threshold if job.id in levels]
        else:
            crossed = self._due(view)
        demoted = [job.id for job in crossed if levels.demote(job.id, job.attained_gpu_s)]
        if self.interval_s is not None:
            for job in crossed:
                self._await_limit(job, view.now_s)
        return demoted

    def _await_limit(self, job: JobView, now_s: float) -> None:
        """Note when a job that runs will have attained the service at the limit of its queue."""
        limit_gpu_s = self._levels.limit_gpu_s(job.id)
        if limit_gpu_s is not None:
            due_s = self._due_s[job.id] = now_s + (limit_gpu_s - job.attained_gpu_s) / job.num_gpus
            heappush(self._reaching, (due_s, job.id))

    def _due(self, view: View) -> list[JobView]:
        """Return the running jobs that may have reached their limits by now, in order of arrival."""
        scheduler, reaching, due = self._scheduler, self._reaching, []
        while reaching and reaching[0][0] <= view.now_s + _SLACK_S:
            due_s, job_id = heappop(reaching)
            if self._due_s.get(job_id) == due_s:
                del self._due_s[job_id]
                if job_id in view.jobs and scheduler.runs(job_id):
                    due.append(job_id)
        return [view.jobs[job_id] for job_id in sorted(due, key=scheduler.number)]

    def _watch(self, job_ids: Sequence[str]) -> dict[str, float]:
        """Request a decision when jobs reach the limits of their queues."""
        limits = {job_id: self._levels.limit_gpu_s(job_id) for job_id in job_ids}
        return {job_id: limit for job_id, limit in limits.items() if limit is not None}

    def _key(self, job: JobView, *, runs: bool) -> Key:
        """Order by queue, then by time of entry, or by first start and arrival."""
        level = self._levels.level(job.id)
        if self.interval_s is not None:
            return (level, next(self._entries))
        return (level, *start_order(job, runs=runs))
