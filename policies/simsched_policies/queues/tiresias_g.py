"""Tiresias with a known distribution: the Gittins index in two dimensions, discretised into queues (Tiresias-G).

Idea: as in Tiresias-L a job is demoted by one queue when its attained service (GPUs x time) crosses a threshold; within
a queue the job most likely to finish per unit of service comes first, judged by the service of past jobs (Gu et al.,
NSDI'19, sections 3.2 and 3.3). The index of queue i takes the queue's upper threshold as its service quantum; the last
queue is first in, first out.

The distribution comes from samples, from a file, or from finished jobs; never from a job's own future. Indices are
precomputed. A job is ranked when it enters a queue, when it loses its GPUs, and, while it runs, at `ranks` points of
each queue; the paper does not say how often it ranks. Frequent ranking makes jobs of one queue preempt each other: on
the testbed's mix, ranking once equals Tiresias-L, and ranking 4 times doubles the preemptions, whereas the paper counts
a third more. Ties, and the last queue, go by first start, then by arrival.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import numpy as np

from simsched.agent import Agent, fixed_agent
from simsched.model import ApplicationFacts, JobRequest
from simsched.policy import INPUT_FILE, Decision, JobView, Policy, Traits, View, Wants
from simsched.policy.signals import SERVICE_HISTORY
from simsched.toolkit import Key, PriorityScheduler
from simsched.toolkit.gittins import IndexTable, ServiceDistribution, ServiceHistory
from simsched.toolkit.levels import Levels, start_order
from simsched.toolkit.skew import PlacementName, SkewPlacement


@dataclass
class TiresiasG(Policy):
    """Two-dimensional Gittins index with K queues; jobs that do not fit are skipped.

    `queue_thresholds_gpu_s` are the K - 1 ascending limits on attained service in GPU-seconds, by default that of the
    paper's testbed. The total service of past jobs in GPU-seconds is given as `history_gpu_s` or in the file
    `history_file` (one number a line), or else learned from finished jobs; until ten have finished, queues are first
    in, first out. `promote_knob`, `placement` and `skew_limit` are those of `tiresias`.
    """

    name: ClassVar[str] = "tiresias-g"
    traits: ClassVar[Traits] = Traits(needs={SERVICE_HISTORY})

    queue_thresholds_gpu_s: Sequence[int] = (3200,)
    history_gpu_s: Sequence[int] = ()
    history_file: Annotated[str | None, INPUT_FILE] = None
    promote_knob: float | None = None
    placement: PlacementName = "skew"
    skew_limit: float = 0.4
    ranks: int = 4
    _levels: Levels = field(init=False, repr=False)
    _history: ServiceHistory = field(init=False, repr=False)
    _placement: SkewPlacement = field(init=False, repr=False)
    _scheduler: PriorityScheduler = field(default_factory=PriorityScheduler, init=False, repr=False)
    _tables: list[IndexTable] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        """Start with empty queues."""
        self._levels = Levels(self.queue_thresholds_gpu_s, self.promote_knob)
        if self.ranks < 1:
            raise ValueError(f"ranks must be at least 1, not {self.ranks}")
        self._history = ServiceHistory(self.history_gpu_s, self.history_file)
        self._placement = SkewPlacement(self.placement, self.skew_limit)
        if self._history.distribution is not None:
            self._tables = _tables(self._history.distribution, self._levels.limits_gpu_s, self.ranks)

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        """Keep the batch size submitted, and record the skew of the model."""
        self._placement.note(request, facts)
        return fixed_agent(request, facts)

    @property
    def counts_on(self) -> Wants:
        """Return the signal of model tensors if placement uses them."""
        return self._placement.wants

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Update queues and ranks, then admit from the first queue to the last."""
        levels, scheduler = self._levels, self._scheduler
        scheduler.update(view)
        for job_id in view.finished:
            levels.leave(job_id)
        self._learn(view)
        for job in view.arrived:
            levels.enter(job.id)
            scheduler.add(job, self._key(job, runs=False), self._placement.placer(job.id))
        moved = [job.id for job in view.reached_threshold if job.id in levels]
        for job_id in moved:
            levels.demote(job_id, view.jobs[job_id].attained_gpu_s)
        moved += levels.promote_all(view)
        for job_id in moved:
            scheduler.rekey(job_id, self._key(view.jobs[job_id], runs=scheduler.runs(job_id)))
        start, stop = scheduler.schedule()
        for job_id in start:
            levels.started(job_id)
            if view.jobs[job_id].first_start_s is None:
                scheduler.rekey(job_id, self._key(view.jobs[job_id], runs=True))
                moved.append(job_id)
        for job_id in stop:
            levels.stopped(job_id, view.now_s, view.jobs[job_id].held_s)
            scheduler.rekey(job_id, self._key(view.jobs[job_id], runs=False))
        return Decision.change(start, stop, watch=self._watch(moved, view), wake_at_s=levels.next_promotion_s())

    def _learn(self, view: View) -> None:
        """Rank all jobs again when enough others have finished."""
        if not self._history.learn(view[SERVICE_HISTORY]) or self._history.distribution is None:
            return
        self._tables = _tables(self._history.distribution, self._levels.limits_gpu_s, self.ranks)
        for job_id in list(self._scheduler.ids):
            self._scheduler.rekey(job_id, self._key(view.jobs[job_id], runs=self._scheduler.runs(job_id)))

    def _key(self, job: JobView, *, runs: bool) -> Key:
        """Order by queue, then by index (none in the last), then by first start and arrival."""
        level = self._levels.level(job.id)
        index = 0.0
        if level < len(self._tables):
            index = self._tables[level].value(self._levels.counted_gpu_s(job.id, job.attained_gpu_s))
        return (level, -index, *start_order(job, runs=runs))

    def _watch(self, job_ids: Sequence[str], view: View) -> dict[str, float]:
        """Request a decision when a job is next ranked, or reaches the limit of its queue."""
        levels = self._levels
        watch: dict[str, float] = {}
        for job_id in job_ids:
            limit, level = levels.limit_gpu_s(job_id), levels.level(job_id)
            if limit is None:
                continue
            watch[job_id] = limit
            if level < len(self._tables):
                attained = view.jobs[job_id].attained_gpu_s
                counted = levels.counted_gpu_s(job_id, attained)
                point = self._tables[level].next_point(counted)
                if point is not None:
                    watch[job_id] = min(limit, attained + point - counted)
        return watch


def _tables(distribution: ServiceDistribution, limits_gpu_s: Sequence[int], ranks: int) -> list[IndexTable]:
    """Compute the index of each queue but the last, at points that are denser for small service."""
    tables = []
    low = 0
    for limit in limits_gpu_s:
        points = sorted({low, *(low + round((limit - low) * (i / ranks) ** 2) for i in range(1, ranks))})
        tables.append(IndexTable(points, distribution.table(points, limit)))
        low = limit
    return tables
