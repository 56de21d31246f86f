"""Shortest first and Tiresias' two-dimensional queues, as Muri's simulator plays them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tests.validation.oracles.muri_replay.inputs import NODE_GPUS, NODES, Job, first_fit
from tests.validation.oracles.muri_replay.record import Moment, advance, arrivals, earliest_end, start_or_stop

_LIMITS_GPU_S = (3250, 7200)


def replay_shortest(jobs: Sequence[Job], key: Callable[[Job], float]) -> None:
    """Run the jobs with the smallest key first; everything that fits runs, placed anew at every event."""
    waiting = arrivals(jobs)
    active: list[Job] = []
    end: Moment | None = None
    while waiting or end:
        now_s, ended, arrived = _next(waiting, end)
        for job in active:
            if job.running:
                advance(job, now_s)
        _finish(ended, active, now_s)
        for job in arrived:
            job.now_iteration_s, job.now_overhead_s = job.iteration_s, job.overhead_s
            active.append(job)
        active.sort(key=key)
        free = [NODE_GPUS] * NODES
        placed = {job for job in active if first_fit(free, job.gpus)}
        start_or_stop(active, placed, now_s)
        end = earliest_end((job for job in active if job.running), now_s)


def replay_tiresias(jobs: Sequence[Job]) -> None:
    """Run Tiresias-L: three queues by attained GPU time, counted GPUs, and a wake-up that is late for gangs."""
    waiting = arrivals(jobs)
    active: list[Job] = []
    queues: list[list[Job]] = [[], [], []]
    end: Moment | None = None
    wake_s = math.inf
    while waiting or end:
        if wake_s < min(waiting[0].time_s if waiting else math.inf, end.time_s if end else math.inf):
            now_s, ended, arrived = wake_s, [], []
        else:
            now_s, ended, arrived = _next(waiting, end)
        for job in active:
            if job.running:
                advance(job, now_s)
        for job in ended:
            queues[job.queue].remove(job)
        _finish(ended, active, now_s)
        for job in arrived:
            job.now_iteration_s, job.now_overhead_s = job.iteration_s, job.overhead_s
            active.append(job)
            queues[0].append(job)
        _demote(active, queues)
        _count(active, queues, now_s)
        running = [job for job in active if job.running]
        end = earliest_end(running, now_s, lambda one, other: one == other)
        wake_s = min((_crossing(job, now_s) for job in running if job.queue < 2), default=math.inf)


def _next(waiting: list[Moment], end: Moment | None) -> tuple[float, list[Job], list[Job]]:
    """Take the earlier of the next arrival and the next completion, or both if they are at the same time."""
    if end is None or (waiting and waiting[0].time_s < end.time_s):
        time_s, arrived = waiting.pop(0)
        return time_s, [], arrived
    if waiting and waiting[0].time_s == end.time_s:
        return end.time_s, end.jobs, waiting.pop(0).jobs
    return end.time_s, end.jobs, []


def _finish(ended: list[Job], active: list[Job], now_s: float) -> None:
    for job in ended:
        job.end_s, job.running = now_s, False
        active.remove(job)


def _demote(active: list[Job], queues: list[list[Job]]) -> None:
    for job in active:
        if job.running and job.queue < 2 and job.executed_s * job.gpus >= _LIMITS_GPU_S[job.queue]:
            queues[job.queue].remove(job)
            job.queue += 1
            queues[job.queue].append(job)


def _count(active: list[Job], queues: list[list[Job]], now_s: float) -> None:
    free = NODES * NODE_GPUS
    placed = set()
    for queue in queues:
        for job in queue:
            if job.gpus <= free:
                free -= job.gpus
                placed.add(job)
    start_or_stop(active, placed, now_s)
    for queue in queues:
        queue.sort(key=lambda job: not job.running)


def _crossing(job: Job, now_s: float) -> float:
    """Compute when a job is looked at again; executed seconds are not multiplied by GPUs, as in the original.

    That is after now, even where rounding leaves a job short of its limit by less than the clock can tell.
    """
    looks_s = now_s + math.ceil(_LIMITS_GPU_S[job.queue] / job.gpus) - job.executed_s
    return max(looks_s, math.nextafter(now_s, math.inf))
