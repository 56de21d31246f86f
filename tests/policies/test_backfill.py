"""EASY and conservative backfill, job by job against a search over a table of free GPUs second by second."""

from __future__ import annotations

import random
from typing import NamedTuple

import numpy as np
import pytest
from simsched_policies.production.slurm.backfill import NEVER
from simsched_policies.production.slurm.nodes import EVERYBODY, Manner
from simsched_policies.production.slurm.options import Backfill
from simsched_policies.production.slurm.policy import SlurmBackfill
from simsched_policies.production.slurm.waiting import TypePool, Waiting, WaitingJob

from simsched.engine.options import EngineOptions, FailureOptions
from simsched.engine.records import MemoryRecorder
from simsched.engine.simulation import simulate
from simsched.model.cluster import Cluster
from simsched.model.job import JobSpec
from simsched.model.outages import Outage
from simsched.testing.builders import Applications, run

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


def replay(jobs: list[Job], total: int, kind: str) -> list[int]:
    """Return the start of each job under the policy, on one node."""
    specs = [
        JobSpec(str(i), job.submit, job.gpus, duration_s=job.runs, time_limit_s=job.limit) for i, job in enumerate(jobs)
    ]
    policy, options = SlurmBackfill(Backfill(kind)), EngineOptions(restart_delay_s=0)
    records = run(policy, specs, cluster=Cluster.uniform(1, total), options=options)
    starts = {int(one.job_id): int(one.start_time_s) for one in records.jobs}
    return [starts[i] for i in range(len(jobs))]


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


@pytest.mark.parametrize("kind", ["easy", "conservative"])
def test_random_traces_job_by_job(kind: str) -> None:
    dice = random.Random(kind)
    for _ in range(150):
        total = dice.randint(2, 8)
        jobs = trace(dice, total)
        assert replay(jobs, total, kind) == brute(jobs, total, only_first=kind == "easy"), jobs


def planned(pool: TypePool, free: int, jobs: list[tuple[int, int]], now: int = 0, horizon: int = FOREVER) -> list[int]:
    """Plan jobs of (GPUs, limit) in order, with a reservation for each."""
    gpus, limits = np.array(jobs, dtype=np.int64).T.copy()
    state, wants = pool.begin(free, gpus)
    return state.plan(now, wants, limits, horizon, Manner(EVERYBODY))[0].tolist()


def test_what_slurm_asserts_of_its_backfill() -> None:
    first, second, third = planned(TypePool(32), 32, [(1, 600), (32, 600), (31, 300)])
    assert first == third == 0
    assert second > 0


def test_nothing_is_reserved_beyond_the_window_nor_for_a_job_larger_than_the_pool() -> None:
    assert planned(TypePool(4), 4, [(4, 100)] * 3 + [(4, 50)], horizon=150) == [0, 100, -200, -200]
    assert planned(TypePool(4), 4, [(9, 10), (1, 10)]) == [NEVER, 0]


def test_a_job_that_fits_only_once_a_node_is_back_has_no_reservation() -> None:
    jobs = [
        JobSpec("runs", 0, 3, duration_s=50, time_limit_s=50),
        JobSpec("large", 20, 8, duration_s=10, time_limit_s=10),
        JobSpec("next", 21, 4, duration_s=10, time_limit_s=10),
        JobSpec("small", 22, 1, duration_s=100, time_limit_s=100),
    ]
    recorder, down = MemoryRecorder(), FailureOptions(outages=(Outage(1, 10, 100),))
    options, policy = EngineOptions(restart_delay_s=0), SlurmBackfill()
    simulate(Cluster.uniform(2, 4), jobs, Applications(), policy, options, 1, recorder, failures=down)
    assert {one.job_id: one.start_time_s for one in recorder.jobs} == {"runs": 0, "next": 50, "small": 60, "large": 160}


def test_a_job_past_its_limit_is_taken_to_end_at_the_next_tick() -> None:
    pool = TypePool(4)
    pool.releases.add(5, 4)
    assert planned(pool, 0, [(4, 10)], now=20) == [21]
    with pytest.raises(ValueError, match="no job of 3 GPUs ends at 5"):
        pool.releases.remove(5, 3)
    pool.releases.remove(5, 4)
    assert pool.releases.gpus == len(pool.releases) == 0


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
