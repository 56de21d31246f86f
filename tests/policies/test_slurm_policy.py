"""Backfill through the engine equals the plan of the pure piece, job by job; weights and limits do what they say."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from simsched_policies.production.slurm.backfill import Releases
from simsched_policies.production.slurm.options import Backfill, Limits, Mode, Partition, PreemptionRules, Priority, Qos
from simsched_policies.production.slurm.policy import SlurmBackfill
from simsched_policies.production.slurm.usage import Usage

from simsched.engine.options import EngineOptions, FailureOptions
from simsched.engine.records import MemoryRecorder
from simsched.engine.simulation import simulate
from simsched.model.cluster import Cluster, NodeGroup, Tenant
from simsched.model.job import JobSpec
from simsched.testing.builders import Applications, run

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
    assert starts(SlurmBackfill(Backfill(kind)), jobs) == planned(jobs, kind)


def test_without_backfill_the_first_that_must_wait_blocks() -> None:
    jobs = [
        JobSpec("runs", 0, 6, duration_s=100, time_limit_s=100),
        JobSpec("waits", 1, 4, duration_s=10, time_limit_s=10),
        JobSpec("short", 2, 2, duration_s=10, time_limit_s=10),
    ]
    assert starts(SlurmBackfill(Backfill("none")), jobs) == {"runs": 0, "waits": 100, "short": 100}
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
    fair = starts(SlurmBackfill(priority=Priority(fair_share=1.0, update_s=1)), jobs)
    assert sorted(fair, key=lambda name: fair[name]) == ["runs", "other", "same", "urgent"]
    quality = starts(SlurmBackfill(priority=Priority(qos=1.0)), jobs)
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
    assert starts(SlurmBackfill(limits=Limits(partitions={"old": Partition("t4")})), jobs, cluster) == {
        "j0": 0,
        "j1": 10,
    }
    assert starts(SlurmBackfill(), jobs, cluster) == {"j0": 0, "j1": 0}


LOW, HIGH = "low", "high"


def records_of(policy: SlurmBackfill, jobs: list[JobSpec]) -> dict[str, tuple[float, float, int, str]]:
    """Return start, end, restarts and final state of each job on two nodes of four GPUs."""
    records = run(policy, jobs, cluster=Cluster.uniform(2, GPUS // 2), options=NO_DELAY)
    return {one.job_id: (one.start_time_s, one.end_time_s, one.restarts, one.status) for one in records.jobs}


def asks(name: str, at: int, gpus: int, lasts: int, qos: str = "", **rest: object) -> JobSpec:
    return JobSpec(name, at, gpus, duration_s=lasts, time_limit_s=lasts, qos=qos, user="u", **rest)  # type: ignore[arg-type]


def preempting(how: Mode, **rest: object) -> SlurmBackfill:
    rules = PreemptionRules(how, **rest)  # type: ignore[arg-type]
    return SlurmBackfill(preemption=rules, limits=Limits(qos={HIGH: Qos(preempts=(LOW,))}))


BUSY = [asks("long", 0, 8, 100, LOW), asks("urgent", 10, 4, 50, HIGH), asks("other", 20, 4, 30)]


def test_a_requeued_job_waits_for_room_again() -> None:
    assert records_of(preempting("requeue"), BUSY) == {
        "urgent": (10, 60, 0, ""),
        "other": (20, 50, 0, ""),
        "long": (0, 150, 1, ""),
    }
    assert records_of(SlurmBackfill(), BUSY)["urgent"] == (100, 150, 0, "")
    equals = [asks("long", 0, 8, 100, HIGH), BUSY[1]]
    assert records_of(preempting("requeue"), equals)["urgent"][0] == 100


def test_a_requeued_job_may_lose_what_it_has_not_saved_and_then_has_its_whole_limit_again() -> None:
    # From 60 on it takes its 100 s again, or, saved at second 8, those 92 that were left.
    assert records_of(preempting("requeue", requeue_loses=True), BUSY)["long"] == (0, 160, 1, "")
    recorder = MemoryRecorder()
    policy, saves = preempting("requeue", requeue_loses=True), FailureOptions(checkpoint_interval_s=4)
    cluster = Cluster.uniform(2, GPUS // 2)
    simulate(cluster, BUSY, Applications(), policy, NO_DELAY, 1, recorder, failures=saves, check_invariants=True)
    assert {one.job_id: one.end_time_s for one in recorder.jobs} == {"urgent": 60, "other": 50, "long": 152}


def test_no_job_runs_longer_than_the_longest_time() -> None:
    jobs = [asks("long", 0, 8, 7200), asks("other", 10, 8, 3600), asks("short", 20, 8, 60)]
    assert records_of(SlurmBackfill(limits=Limits(max_time_h=1)), jobs) == {
        "long": (0, 3600, 0, "Cancelled"),
        "other": (3600, 7200, 0, ""),
        "short": (7200, 7260, 0, ""),
    }
    with pytest.raises(ValueError, match="max_time_h must be above 0, not 0"):
        Limits(max_time_h=0)


def test_a_suspended_job_keeps_its_place() -> None:
    assert records_of(preempting("suspend"), BUSY) == {
        "urgent": (10, 60, 0, ""),
        "long": (0, 150, 1, ""),
        "other": (150, 180, 0, ""),
    }


def test_a_cancelled_job_ends() -> None:
    found = records_of(preempting("cancel"), BUSY)
    assert found == {"long": (0, 10, 0, "Cancelled"), "urgent": (10, 60, 0, ""), "other": (20, 50, 0, "")}


def test_victims_run_on_for_their_grace_and_may_be_spared() -> None:
    found = records_of(preempting("requeue", grace_s=5), BUSY[:2])
    assert found == {"urgent": (15, 65, 0, ""), "long": (0, 150, 1, "")}
    two = [asks("short", 0, 4, 12, LOW), asks("long", 1, 4, 100, LOW), BUSY[1]]
    found = records_of(preempting("requeue", grace_s=5), two)
    assert found == {"short": (0, 12, 0, ""), "long": (1, 101, 0, ""), "urgent": (12, 62, 0, "")}


def test_the_last_started_of_the_lowest_goes_and_nobody_in_vain() -> None:
    jobs = [
        asks("first", 0, 4, 100, LOW),
        asks("small", 1, 1, 100, "lowest"),
        asks("last", 2, 3, 100, LOW),
        asks("urgent", 10, 4, 10, HIGH),
    ]
    ranks = {"lowest": Qos(1), LOW: Qos(2), HIGH: Qos(3, (LOW, "lowest"))}

    def policy() -> SlurmBackfill:
        return SlurmBackfill(preemption=PreemptionRules("requeue"), limits=Limits(qos=ranks))

    found = records_of(policy(), jobs)
    assert {name for name, (_, _, restarts, _) in found.items() if restarts} == {"last", "small"}
    jobs[3] = asks("urgent", 10, 3, 10, HIGH)
    found = records_of(policy(), jobs)
    assert {name for name, (_, _, restarts, _) in found.items() if restarts} == {"last"}
    with pytest.raises(ValueError, match=r"needs 'limits\.qos'"):
        SlurmBackfill(preemption=PreemptionRules("cancel"))


def test_backfill_runs_at_its_interval_and_events_look_at_the_head() -> None:
    jobs = [asks("runs", 0, 4, 100), asks("head", 1, 8, 10), asks("fits", 2, 2, 20)]
    assert starts(SlurmBackfill(), jobs)["fits"] == 2
    assert starts(SlurmBackfill(Backfill(interval_s=30)), jobs) == {"runs": 0, "fits": 30, "head": 100}
    late = [asks("runs", 0, 8, 45), asks("next", 1, 8, 10)]
    assert starts(SlurmBackfill(Backfill(interval_s=30)), late)["next"] == 45


def test_limits_are_planned_in_steps() -> None:
    jobs = [asks("runs", 0, 4, 90), asks("head", 1, 8, 10), asks("fits", 2, 2, 88)]
    assert starts(SlurmBackfill(), jobs)["fits"] == 2  # until 90, when the head can start
    assert (
        starts(SlurmBackfill(Backfill(resolution_s=60)), jobs)["fits"] == 100
    )  # planned until 122, after the head's 120
    assert starts(SlurmBackfill(Backfill(resolution_s=60)), [*jobs[:2], asks("fits", 2, 2, 50)])["fits"] == 2


def test_an_array_counts_as_one_job_for_the_depth() -> None:
    tasks = [asks(f"{i}", 1, 8, 10, group="7") for i in range(3)]
    jobs = [asks("runs", 0, 6, 100), *tasks, asks("fits", 2, 2, 20)]
    policy = SlurmBackfill(Backfill("conservative", max_jobs=2))
    assert starts(policy, jobs)["fits"] == 2
    alone = [*jobs[:1], *(asks(f"{i}", 1, 8, 10) for i in range(3)), jobs[-1]]
    assert starts(SlurmBackfill(Backfill("conservative", max_jobs=2)), alone)["fits"] > 2


def test_queues_of_a_higher_tier_go_first() -> None:
    jobs = [asks("runs", 0, 8, 10), asks("first", 1, 8, 10, queue="slow"), asks("second", 2, 8, 10, queue="fast")]
    assert starts(SlurmBackfill(limits=Limits(partitions={"fast": Partition(tier=1)})), jobs)["second"] == 10


def test_accounts_share_within_their_parents() -> None:
    tenants = {"a": Tenant(parent="lab"), "b": Tenant(parent="lab"), "c": Tenant(), "lab": Tenant(weight=3.0)}
    usage = Usage(tenants, half_life_s=0)
    users = [usage.number(tenant, "u") for tenant in ("a", "b", "c")]
    for user, gpus in zip(users, (2, 1, 1), strict=True):
        usage.begin(user, gpus, 0)
    usage.update(100, 300)
    # lab has 0.75 of the shares and of the usage, c 0.25 of both: a tie, so that their members are compared:
    # b 0.5 / (1 / 3), the user of c 1 / 1, a 0.5 / (2 / 3).
    assert usage.factors()[users].tolist() == pytest.approx([1 / 3, 1, 2 / 3], abs=1e-9)
    usage.end(users[1], 1, 100)
    usage.update(500, 300)
    # lab 0.75 / (1100 / 1600), c 0.25 / (500 / 1600): lab goes first, and in it b, 0.5 / (100 / 1100).
    assert usage.factors()[users].tolist() == pytest.approx([2 / 3, 1, 1 / 3], abs=1e-9)


@pytest.mark.parametrize("how", ["requeue", "suspend", "cancel"])
def test_preemption_on_random_logs_loses_no_job(how) -> None:
    dice = random.Random(how)
    for _ in range(6):
        jobs = [
            replace(job, qos=dice.choice([LOW, "normal", HIGH]), tenant=dice.choice("ab"), group=dice.choice(["", "7"]))
            for job in random_log(dice)
        ]
        policy = SlurmBackfill(
            Backfill(dice.choice(["easy", "conservative", "none"]), interval_s=dice.choice([0, 30])),
            Priority(age=dice.choice([0.0, 1.0])),
            PreemptionRules(how, grace_s=dice.choice([0, 7])),
            Limits(qos={HIGH: Qos(preempts=(LOW, "normal")), "normal": Qos(preempts=(LOW,))}),
            tenants={"a": Tenant(max_gpus=8)},
        )
        found = records_of(policy, jobs)
        assert len(found) == len(jobs)
        cancelled = {name for name, (_, _, _, status) in found.items() if status == "Cancelled"}
        assert not cancelled or how == "cancel"
        by_name = {job.id: job for job in jobs}
        assert not any(by_name[name].qos == HIGH for name in cancelled)
        assert not any(restarts for name, (_, _, restarts, _) in found.items() if by_name[name].qos == HIGH)
