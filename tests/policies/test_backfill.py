"""EASY and conservative backfill, job by job against a search over a table of free GPUs second by second."""

from __future__ import annotations

import random
from typing import NamedTuple

import numpy as np
import pytest
from simsched_policies.production.slurm.backfill import NEVER, Releases
from simsched_policies.production.slurm.waiting import Waiting, WaitingJob

FOREVER = 10**6


class Job(NamedTuple):
    submit: int
    gpus: int
    limit: int
    runs: int


def trace(dice: random.Random, gpus: int) -> list[Job]:
    jobs = []
    for _ in range(dice.randint(3, 9)):
        limit = dice.randint(1, 9)
        jobs.append(Job(dice.randint(0, 12), dice.randint(1, gpus), limit, dice.randint(1, limit)))
    return sorted(jobs, key=lambda job: job.submit)


def starts_easy(releases: Releases, free: int, now: int, waiting: list[Job]) -> list[bool]:
    gpus, limits = columns(waiting)
    return releases.easy(free, now, gpus, limits).tolist()


def starts_conservative(releases: Releases, free: int, now: int, waiting: list[Job]) -> list[bool]:
    gpus, limits = columns(waiting)
    return [start == now for start in releases.conservative(free, now, gpus, limits).tolist()]


def columns(jobs: list[Job]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([job.gpus for job in jobs], dtype=np.int64), np.array([job.limit for job in jobs], dtype=np.int64)


def replay(jobs: list[Job], total: int, decide) -> list[int]:
    """Run a trace with a pass at every second at which something changed; return the start of each job."""
    starts = [-1] * len(jobs)
    releases, free = Releases(), total
    for now in range(FOREVER):
        changed = False
        for i, job in enumerate(jobs):
            if starts[i] >= 0 and starts[i] + job.runs == now:
                releases.remove(starts[i] + job.limit, job.gpus)
                free, changed = free + job.gpus, True
            changed |= job.submit == now
        waiting = [i for i, job in enumerate(jobs) if starts[i] < 0 and job.submit <= now]
        if changed and waiting:
            for i, start in zip(waiting, decide(releases, free, now, [jobs[i] for i in waiting]), strict=True):
                if start:
                    starts[i], free = now, free - jobs[i].gpus
                    releases.add(now + jobs[i].limit, jobs[i].gpus)
        if min(starts) >= 0:
            return starts
    raise AssertionError("never ends")


class Table:
    """Free GPUs at every second from now on, as an optimist would tabulate them."""

    def __init__(self, jobs: list[Job], starts: list[int], total: int, now: int) -> None:
        self.now, self.free = now, [total] * 200
        for job, start in zip(jobs, starts, strict=True):
            if start >= 0 and start + job.runs > now:
                self.take(job.gpus, now, start + job.limit)

    def take(self, gpus: int, start: int, end: int) -> None:
        for second in range(start, end):
            self.free[second - self.now] -= gpus

    def fits(self, job: Job, start: int) -> bool:
        return all(self.free[second - self.now] >= job.gpus for second in range(start, start + job.limit))

    def earliest(self, job: Job) -> int:
        return next(second for second in range(self.now, self.now + 150) if self.fits(job, second))


def brute(jobs: list[Job], total: int, *, only_first: bool) -> list[int]:
    """Replay with the table: reserve for the first that waits, or for everyone."""
    starts = [-1] * len(jobs)
    now = 0
    while min(starts) < 0:
        busy = {start + job.runs for job, start in zip(jobs, starts, strict=True) if start >= 0}
        if now in busy or any(job.submit == now for job in jobs):
            table, blocked = Table(jobs, starts, total, now), False
            for i, job in enumerate(jobs):
                if starts[i] >= 0 or job.submit > now:
                    continue
                at = table.earliest(job)
                if at == now:
                    starts[i] = now
                if at == now or not (only_first and blocked):
                    table.take(job.gpus, at, at + job.limit)
                blocked |= at > now
        now += 1
    return starts


@pytest.mark.parametrize("block", range(10))
def test_a_thousand_traces_job_by_job(block: int) -> None:
    dice = random.Random(block)
    for _ in range(100):
        total = dice.randint(2, 8)
        jobs = trace(dice, total)
        assert replay(jobs, total, starts_easy) == brute(jobs, total, only_first=True), jobs
        assert replay(jobs, total, starts_conservative) == brute(jobs, total, only_first=False), jobs


def plan(jobs: list[tuple[int, int, int]], total: int = 32) -> list[int]:
    """Plan jobs of (priority, nodes, minutes) on an empty cluster; starts in minutes, in the order given."""
    order = sorted(range(len(jobs)), key=lambda i: -jobs[i][0])
    gpus = np.array([jobs[i][1] for i in order], dtype=np.int64)
    limits = np.array([jobs[i][2] * 60 for i in order], dtype=np.int64)
    got = Releases().conservative(total, 0, gpus, limits).tolist()
    return [got[order.index(i)] // 60 if got[order.index(i)] >= 0 else NEVER for i in range(len(jobs))]


def test_what_slurm_asserts_of_its_backfill() -> None:
    first, second, third = plan([(10, 1, 10), (5, 32, 10), (1, 31, 5)])
    assert first == 0
    assert second > 0
    assert third == 0
    equal = plan([(1, 1, 1)] * 1000)
    assert equal[499] != NEVER
    assert equal[500] == NEVER


def test_nothing_is_planned_beyond_the_window() -> None:
    gpus, limits = np.array([4, 4, 4]), np.array([100, 100, 100])
    assert Releases().conservative(4, 0, gpus, limits, window=150).tolist() == [0, 100, NEVER]
    assert Releases().conservative(4, 0, gpus, limits, window=None).tolist() == [0, 100, 200]


def test_a_job_larger_than_the_pool_holds_up_nobody() -> None:
    gpus, limits = np.array([9, 1]), np.array([10, 10])
    assert Releases().easy(4, 0, gpus, limits).tolist() == [False, True]
    assert Releases().conservative(4, 0, gpus, limits).tolist() == [NEVER, 0]


def test_a_job_past_its_limit_is_taken_to_end_at_the_next_tick() -> None:
    releases = Releases()
    releases.add(5, 4)
    assert releases.conservative(0, 20, np.array([4]), np.array([10])).tolist() == [21]
    with pytest.raises(ValueError, match="no job of 3 GPUs ends at 5"):
        releases.remove(5, 3)
    releases.remove(5, 4)
    assert len(releases) == 0


def test_columns_follow_the_jobs_that_wait() -> None:
    dice, waiting, left, number = random.Random(4), Waiting(), list[WaitingJob](), 0
    for step in range(60):
        for _ in range(dice.randint(0, 20)):
            job = WaitingJob(f"job-{number}", *(dice.randint(1, 99) for _ in range(9)))
            waiting.add(job)
            left.append(job)
            number += 1
        if step % 3 == 0:  # columns are read now and then only, and may have to grow by then
            assert list(zip(*(column.tolist() for column in waiting.columns), strict=True)) == [job[1:] for job in left]
        gone = dice.sample(range(len(left)), len(left) if step % 20 == 19 else len(left) // 9)
        if gone:
            waiting.remove(gone)
            left = [job for place, job in enumerate(left) if place not in gone]
        assert waiting.jobs == left
        assert not left or waiting.least_gpus == min(job.gpus for job in left)
