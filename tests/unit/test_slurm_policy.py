"""Backfill through the engine equals the plan of the pure piece, job by job; weights and limits do what they say."""

from __future__ import annotations

import random

import numpy as np
import pytest
from simsched_policies.slurm.backfill import Releases
from simsched_policies.slurm.policy import SlurmBackfill

from simsched.engine.options import EngineOptions
from simsched.model.cluster import Cluster, NodeGroup
from simsched.model.job import JobSpec
from simsched.policy.tenants import Tenant
from simsched.testing.builders import run

GPUS = 8
NO_DELAY = EngineOptions(restart_delay_s=0, kill_at_time_limit=True)


def starts(policy: SlurmBackfill, jobs: list[JobSpec], cluster: Cluster | None = None) -> dict[str, float]:
    records = run(policy, jobs, cluster=cluster or Cluster.uniform(2, GPUS // 2), options=NO_DELAY)
    return {record.job_id: record.start_time_s for record in records.jobs}


def random_log(dice: random.Random) -> list[JobSpec]:
    jobs = []
    now = 0
    for i in range(40):
        now += dice.randint(0, 6)
        limit = dice.randint(2, 40)
        runs = min(dice.randint(1, 45), limit)
        jobs.append(JobSpec(f"j{i}", now, dice.randint(1, GPUS), duration_s=runs, time_limit_s=limit))
    return jobs


def planned(jobs: list[JobSpec], kind: str) -> dict[str, float]:
    """Replay second by second, with a pass of the pure piece wherever something changed."""
    releases, free, found = Releases(), GPUS, {}
    running: list[tuple[int, int, int]] = []
    now = 0
    while len(found) < len(jobs):
        over = [one for one in running if one[0] == now]
        running = [one for one in running if one[0] != now]
        for _, limit_end, gpus in over:
            releases.remove(limit_end, gpus)
            free += gpus
        waiting = [job for job in jobs if job.submit_time_s <= now and job.id not in found]
        if waiting and (over or any(job.submit_time_s == now for job in waiting)):
            gpus = np.array([job.num_gpus for job in waiting])
            limits = np.array([int(job.time_limit_s or 0) for job in waiting])
            plan = getattr(releases, kind)(free, now, gpus, limits)
            for job, start in zip(waiting, plan, strict=True):
                if start if kind == "easy" else start == now:
                    found[job.id] = float(now)
                    free -= job.num_gpus
                    releases.add(now + int(job.time_limit_s or 0), job.num_gpus)
                    running.append((now + int(job.duration_s), now + int(job.time_limit_s or 0), job.num_gpus))
        now += 1
    return found


@pytest.mark.parametrize("kind", ["easy", "conservative"])
@pytest.mark.parametrize("seed", range(4))
def test_backfill_through_the_engine_is_that_of_the_piece(kind, seed) -> None:
    jobs = random_log(random.Random(seed))
    assert starts(SlurmBackfill(backfill=kind), jobs) == planned(jobs, kind)


def test_without_backfill_the_first_that_must_wait_blocks() -> None:
    jobs = [
        JobSpec("runs", 0, 6, duration_s=100, time_limit_s=100),
        JobSpec("waits", 1, 4, duration_s=10, time_limit_s=10),
        JobSpec("short", 2, 2, duration_s=10, time_limit_s=10),
    ]
    assert starts(SlurmBackfill(backfill="none"), jobs) == {"runs": 0, "waits": 100, "short": 100}
    assert starts(SlurmBackfill(), jobs) == {"runs": 0, "waits": 100, "short": 2}


def test_weights_order_the_queue() -> None:
    jobs = [
        JobSpec("runs", 0, 8, duration_s=10, time_limit_s=10, tenant="a", user="u"),
        JobSpec("same", 1, 8, duration_s=10, time_limit_s=10, tenant="a", user="u"),
        JobSpec("other", 2, 8, duration_s=10, time_limit_s=10, tenant="b", user="v"),
        JobSpec("urgent", 3, 8, duration_s=10, time_limit_s=10, tenant="a", user="u", priority=1000),
    ]
    first_come = starts(SlurmBackfill(), jobs)
    assert sorted(first_come, key=lambda name: first_come[name]) == ["runs", "same", "other", "urgent"]
    fair = starts(SlurmBackfill(weight_fair_share=1.0, update_s=1), jobs)
    assert sorted(fair, key=lambda name: fair[name]) == ["runs", "other", "same", "urgent"]
    quality = starts(SlurmBackfill(weight_qos=1.0), jobs)
    assert sorted(quality, key=lambda name: quality[name]) == ["runs", "urgent", "same", "other"]


def test_a_tenant_holds_no_more_than_its_limit_and_blocks_nobody() -> None:
    jobs = [
        JobSpec("a1", 0, 4, duration_s=10, time_limit_s=10, tenant="a"),
        JobSpec("a2", 0, 4, duration_s=10, time_limit_s=10, tenant="a"),
        JobSpec("b1", 1, 4, duration_s=20, time_limit_s=20, tenant="b"),
    ]
    limited = SlurmBackfill(tenants={"a": Tenant(max_gpus=4)})
    assert starts(limited, jobs) == {"a1": 0, "b1": 1, "a2": 10}
    assert starts(SlurmBackfill(), jobs) == {"a1": 0, "a2": 0, "b1": 10}


def test_queues_are_bound_to_types() -> None:
    cluster = Cluster.of(NodeGroup(1, 4, "a100"), NodeGroup(1, 4, "t4"))
    jobs = [JobSpec(f"j{i}", 0, 4, duration_s=10, time_limit_s=10, queue="old") for i in range(2)]
    assert starts(SlurmBackfill(partitions={"old": "t4"}), jobs, cluster) == {"j0": 0, "j1": 10}
    assert starts(SlurmBackfill(), jobs, cluster) == {"j0": 0, "j1": 0}
