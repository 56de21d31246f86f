"""Slurm's backfill and limits on nodes: the smallest cases of each rule, worked out by hand.

Sources are SchedMD's pages by name: slurm.conf, "Scheduling Configuration Guide" (backfill), "Preemption",
"Resource Limits", "Quality of Service (QOS)", "Job Array Support", "Licenses Guide", "Advanced Resource Reservation
Guide", sbatch.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest
from simsched_policies.production.slurm.nodes import EASY, EVERYBODY, Manner, Pass
from simsched_policies.production.slurm.options import (
    Account,
    Backfill,
    Caps,
    Limits,
    Mode,
    Partition,
    PreemptionRules,
    Qos,
    Reservation,
)
from simsched_policies.production.slurm.policy import SlurmBackfill

from simsched.engine.options import EngineOptions, FailureOptions
from simsched.engine.records import MemoryRecorder
from simsched.engine.simulation import simulate
from simsched.model import Cluster, JobSpec, NodeGroup, NodeShape
from simsched.model.cluster import Tenant
from simsched.model.outages import Outage
from simsched.model.placement import Amount, Terms
from simsched.testing.builders import Applications, run

H = 3600
NO_DELAY = EngineOptions(restart_delay_s=0, kill_at_time_limit=True)
TWO_OF_EIGHT = Cluster.uniform(2, 8, "a100")
ONE_OF_EIGHT = Cluster.uniform(1, 8, "a100")


def asks(name: str, at: int, gpus: int, lasts: int, *, nodes: int = 1, limit: int = 0, **rest: object) -> JobSpec:
    """Make a job of so many GPUs on each of its nodes."""
    shape = rest.pop("shape", NodeShape(nodes, Amount(gpus)))
    limit = limit or lasts
    return JobSpec(name, at, gpus * nodes, duration_s=lasts, time_limit_s=limit, shape=shape, **rest)  # type: ignore[arg-type]


def records_of(policy: SlurmBackfill, jobs: list[JobSpec], cluster: Cluster = ONE_OF_EIGHT) -> dict:
    return {one.job_id: one for one in run(policy, jobs, cluster=cluster, options=NO_DELAY).jobs}


def starts(policy: SlurmBackfill, jobs: list[JobSpec], cluster: Cluster = ONE_OF_EIGHT) -> dict[str, float]:
    return {name: one.start_time_s for name, one in records_of(policy, jobs, cluster).items()}


@pytest.mark.parametrize("kind", ["easy", "conservative"])
def test_eight_on_one_node_wait_ten_hours_and_not_four(kind) -> None:
    # From 4 h on 4 GPUs are free on either node: 8 in all, with which a count would start the job of 8. No node is
    # whole before 10 h.
    jobs = [
        asks("left", 0, 4, 10 * H),
        asks("small", 0, 4, 4 * H),
        asks("right", 0, 4, 20 * H),
        asks("filler", 0, 4, 4 * H),
        asks("eight", 1, 8, H),
        asks("short", 4 * H, 2, 6 * H),
        asks("long", 4 * H, 4, 7 * H),
        asks("other", 4 * H, 4, 7 * H),
    ]
    found = starts(SlurmBackfill(Backfill(kind)), jobs, TWO_OF_EIGHT)
    assert found["eight"] == 10 * H
    assert found["short"] == 4 * H  # it ends as the reservation begins
    # Of the two of 7 h one has the node that is not reserved, and the other would delay the job of 8.
    assert sorted((found["long"], found["other"])) == [4 * H, 11 * H]


def test_cores_are_planned_as_gpus_are() -> None:
    cluster = Cluster.of(NodeGroup(1, 8, "a100", 16_000, 1024))
    jobs = [
        asks("cores", 0, 0, 100, shape=NodeShape(1, Amount(0, cpu_milli=12_000))),
        asks("head", 1, 8, 50, shape=NodeShape(1, Amount(8, cpu_milli=8_000))),
        asks("fits", 2, 1, 98, shape=NodeShape(1, Amount(1, cpu_milli=4_000))),
        asks("delays", 3, 1, 98, shape=NodeShape(1, Amount(1, cpu_milli=4_000))),
    ]
    assert starts(SlurmBackfill(), jobs, cluster) == {"cores": 0, "head": 100, "fits": 2, "delays": 150}


def test_partitions_have_their_nodes_and_block_nobody_elsewhere() -> None:
    cluster = Cluster.of(NodeGroup(1, 8, "a100", partitions=("big",)), NodeGroup(1, 8, "a100", partitions=("small",)))
    jobs = [
        asks("first", 0, 8, 100, queue="big"),
        asks("second", 1, 8, 100, queue="big"),
        asks("third", 2, 8, 10, queue="small"),
    ]
    for kind in ("none", "easy", "conservative"):
        assert starts(SlurmBackfill(Backfill(kind)), jobs, cluster) == {"first": 0, "second": 100, "third": 2}


def test_every_tested_job_has_a_reservation_and_of_each_user_only_so_many_are_tested() -> None:
    # slurm.conf, bf_max_job_user. 2 GPUs are free until 100; "b" would end after the second reservation begins.
    jobs = [
        asks("runs", 0, 6, 100, user="u"),
        asks("a", 1, 8, 100, user="u"),
        asks("b", 2, 2, 200, user="v"),
        asks("c", 3, 2, 90, user="v"),
    ]
    assert starts(SlurmBackfill(Backfill("conservative")), jobs) == {"runs": 0, "a": 100, "b": 200, "c": 3}
    # At 30 backfill looks at "b" alone of its user; when "a" ends both start as the first of the queue.
    jobs[-1] = asks("c", 3, 2, 60, user="v")
    assert starts(SlurmBackfill(Backfill("conservative", interval_s=30)), jobs)["c"] == 30
    one = SlurmBackfill(Backfill("conservative", interval_s=30, max_jobs_per_user=1))
    assert starts(one, jobs) == {"runs": 0, "a": 100, "b": 200, "c": 200}


def test_a_pass_goes_on_after_others_had_their_turn_where_it_continues() -> None:
    # slurm.conf, bf_continue. At 30 the first two are looked at, at 32 two more, unless a job came at 31: then "fits"
    # is looked at only when a cycle is not disturbed, which is at 62.
    blocked = [asks(f"{i}", 1, 8, 500) for i in range(3)]
    jobs = [asks("runs", 0, 6, 900), *blocked, asks("fits", 2, 2, 100), asks("comes", 31, 8, 10)]

    def begins(jobs: list[JobSpec], *, continues: bool = False) -> float:
        options = Backfill("conservative", interval_s=30, jobs_per_yield=2, continues=continues)
        return starts(SlurmBackfill(options), jobs)["fits"]

    assert begins(jobs[:-1]) == 32
    assert begins(jobs) == 62
    assert begins(jobs, continues=True) == 32
    assert starts(SlurmBackfill(Backfill("conservative", interval_s=30)), jobs)["fits"] == 30


def test_times_are_planned_in_steps() -> None:
    # slurm.conf, bf_resolution. "head" could start at 90 and is planned for 120, so that "fits" may run until 119.
    jobs = [asks("runs", 0, 6, 90), asks("head", 1, 8, 60), asks("fits", 2, 2, 100)]
    assert starts(SlurmBackfill(Backfill("conservative")), jobs)["fits"] == 150
    coarse = starts(SlurmBackfill(Backfill("conservative", resolution_s=60)), jobs)
    assert (coarse["fits"], coarse["head"]) == (2, 102)


CAPPED = [
    ("a user", Limits(users={"lab/u": Caps(gpus=4)})),
    ("an account", Limits(accounts={"lab": Account(group=Caps(gpus=4))})),
    ("a parent", Limits(accounts={"lab": Account(parent="all"), "all": Account(group=Caps(gpus=4))})),
    ("a QOS", Limits(qos={"normal": Qos(group=Caps(gpus=4))})),
    ("a QOS per user", Limits(qos={"normal": Qos(per_user=Caps(gpus=4))})),
    ("a QOS per account", Limits(qos={"normal": Qos(per_account=Caps(gpus=4))})),
    ("a partition", Limits(partitions={"q": Partition(qos="p")}, qos={"p": Qos(per_user=Caps(gpus=4))})),
    ("jobs", Limits(users={"u": Caps(jobs=1)})),
    ("jobs of a QOS", Limits(qos={"normal": Qos(per_user=Caps(jobs=1))})),
    ("nodes", Limits(users={"u": Caps(nodes=1)})),
    ("cores", Limits(users={"u": Caps(cpus=4)})),
    ("memory", Limits(users={"u": Caps(memory_gb=4)})),
]


@pytest.mark.parametrize(("who", "limits"), CAPPED, ids=[who for who, _ in CAPPED])
def test_a_limit_holds_back_its_jobs_and_blocks_nobody(who, limits) -> None:
    # "Resource Limits": MaxTRES, MaxJobs, GrpTRES of an association and of those above it, and those of a QOS.
    shape = NodeShape(1, Amount(4, cpu_milli=4000, memory_mib=4096))
    mine = {"tenant": "lab", "user": "u", "qos": "normal", "queue": "q", "shape": shape}
    jobs = [
        asks("first", 0, 4, 100, **mine),
        asks("second", 1, 4, 100, **mine),
        asks("other", 2, 4, 10, tenant="else", user="v", shape=shape),
    ]
    cluster = Cluster.of(NodeGroup(1, 8, "a100", 64_000, 65_536))
    assert starts(SlurmBackfill(limits=limits), jobs, cluster) == {"first": 0, "second": 100, "other": 2}


@pytest.mark.parametrize("kind", ["none", "easy", "conservative"])
def test_who_comes_beyond_a_limit_by_a_start_of_the_same_pass_blocks_nobody(kind) -> None:
    # All three come at once; the first takes the user to the limit, and the node has room for two.
    jobs = [asks("first", 0, 4, 100, user="u"), asks("second", 0, 4, 100, user="u"), asks("other", 0, 4, 10, user="v")]
    limited = SlurmBackfill(Backfill(kind), limits=Limits(users={"u": Caps(gpus=4)}))
    assert starts(limited, jobs) == {"first": 0, "second": 100, "other": 0}


def test_a_job_that_held_nodes_when_the_replay_began_is_placed_on_them() -> None:
    # Packed anew the first two would share a node, and the last would have the other.
    jobs = [asks("a", 0, 4, 50), asks("b", 0, 4, 70), asks("eight", 1, 8, 10)]
    assert starts(SlurmBackfill(), jobs, TWO_OF_EIGHT)["eight"] == 1
    held = [replace(job, terms=Terms(held_nodes=(f"a100:{i}",))) for i, job in enumerate(jobs[:2])]
    assert starts(SlurmBackfill(), [*held, jobs[2]], TWO_OF_EIGHT) == {"a": 0, "b": 0, "eight": 50}
    # On fewer nodes, or where another job has the place, any node will do.
    gone = [replace(job, terms=Terms(held_nodes=("a100:2",))) for job in jobs[:2]]
    assert starts(SlurmBackfill(), [*gone, jobs[2]], TWO_OF_EIGHT)["eight"] == 1
    taken = replace(jobs[2], terms=Terms(held_nodes=("a100:0",)))
    assert starts(SlurmBackfill(), [jobs[0], taken], TWO_OF_EIGHT) == {"a": 0, "eight": 1}


def test_a_tenants_own_limit_counts_with_that_of_its_parent() -> None:
    jobs = [asks(name, i, 3, 100, tenant=name, user=name) for i, name in enumerate(("a", "b"))]
    tenants = {"a": Tenant(parent="all"), "b": Tenant(parent="all"), "all": Tenant(max_gpus=4)}
    assert starts(SlurmBackfill(tenants=tenants), jobs) == {"a": 0, "b": 100}


def test_the_qos_of_the_partition_goes_before_that_of_the_job_and_both_before_the_user() -> None:
    # "Resource Limits", the example: MaxJobs is 20 in the partition's QOS and 4 for the user, so 20 counts.
    limits = Limits(
        partitions={"q": Partition(qos="p")},
        qos={"p": Qos(per_user=Caps(jobs=2)), "normal": Qos(per_user=Caps(jobs=1, gpus=3))},
        users={"u": Caps(jobs=1, gpus=1)},
    )
    jobs = [asks(f"{i}", i, 1, 100, user="u", qos="normal", queue="q") for i in range(3)]
    assert list(starts(SlurmBackfill(limits=limits), jobs).values()) == [0, 1, 100]


def test_what_no_limit_will_ever_allow_is_refused() -> None:
    limits = Limits(
        partitions={"q": Partition(max_nodes=1)},
        qos={"normal": Qos(per_job=Caps(gpus=4))},
        users={"w": Caps(submitted=1)},
    )
    jobs = [
        asks("wide", 0, 1, 10, nodes=2, queue="q"),
        asks("large", 0, 5, 10, qos="normal"),
        asks("first", 0, 1, 10, user="w"),
        asks("second", 5, 1, 10, user="w"),
        asks("third", 20, 1, 10, user="w"),
    ]
    found = records_of(SlurmBackfill(limits=limits), jobs, TWO_OF_EIGHT)
    assert {name for name, one in found.items() if one.status == "Cancelled"} == {"wide", "large", "second"}


def test_the_shortest_of_the_times_that_bind_a_job_ends_it() -> None:
    limits = Limits(partitions={"q": Partition(max_time_h=2)}, qos={"brief": Qos(max_time_h=1)}, max_time_h=3)
    jobs = [
        asks("brief", 0, 1, 10 * H, queue="q", qos="brief"),
        asks("queue", 0, 1, 10 * H, queue="q"),
        asks("any", 0, 1, 10 * H),
    ]
    found = records_of(SlurmBackfill(limits=limits), jobs)
    assert {name: one.end_time_s / H for name, one in found.items()} == {"brief": 1, "queue": 2, "any": 3}


def test_a_partition_says_how_long_jobs_without_a_limit_count() -> None:
    limits = Limits(partitions={"q": Partition(default_time_h=1)})
    jobs = [
        asks("runs", 0, 6, 2 * H),
        asks("head", 1, 8, 10),
        JobSpec("none", 2, 2, duration_s=10, queue="q", shape=NodeShape(1, Amount(2))),
    ]
    assert starts(SlurmBackfill(limits=limits), jobs)["none"] == 2
    assert starts(SlurmBackfill(), jobs)["none"] > 2


def preempting(mode: Mode = "requeue", *, youngest_first: bool = False) -> SlurmBackfill:
    rules = PreemptionRules(mode, youngest_first=youngest_first)
    qos = {"low": Qos(1), "lower": Qos(0.5), "high": Qos(9, ("low", "lower"))}
    return SlurmBackfill(preemption=rules, limits=Limits(qos=qos))


def victims(policy: SlurmBackfill, jobs: list[JobSpec]) -> set[str]:
    return {name for name, one in records_of(policy, jobs, Cluster.uniform(3, 8)).items() if one.restarts}


def test_victims_go_by_priority_then_by_nodes_and_by_age_on_request_only() -> None:
    # "Preemption": the lowest priority first, then the fewest nodes; slurm.conf, preempt_youngest_first.
    wide, small = asks("wide", 5, 8, 100, nodes=2, qos="low"), asks("small", 1, 4, 100, qos="low")
    urgent = asks("urgent", 10, 4, 10, qos="high")
    full = asks("full", 0, 4, 100, qos="high")
    assert victims(preempting(), [full, small, wide, urgent]) == {"small"}
    assert victims(preempting(youngest_first=True), [full, small, wide, urgent]) == {"wide"}
    lower = asks("wide", 5, 8, 100, nodes=2, qos="lower")
    assert victims(preempting(), [full, small, lower, urgent]) == {"wide"}


def test_partitions_of_a_higher_tier_preempt_those_below() -> None:
    # slurm.conf, PreemptType=preempt/partition_prio.
    rules = PreemptionRules("requeue", by="partition_prio")
    limits = Limits(partitions={"day": Partition(tier=2), "night": Partition(tier=1)})
    jobs = [asks("night", 0, 8, 100, queue="night"), asks("day", 10, 8, 10, queue="day")]
    found = records_of(SlurmBackfill(preemption=rules, limits=limits), jobs)
    assert (found["day"].start_time_s, found["night"].end_time_s) == (10, 110)


def test_a_requeued_job_begins_again_where_it_saved_nothing() -> None:
    # sbatch, --requeue: the job is initiated again from its beginning.
    jobs = [asks("low", 0, 8, 100, qos="low"), asks("high", 60, 8, 10, qos="high")]
    lost = SlurmBackfill(preemption=PreemptionRules("requeue", requeue_loses=True), limits=preempting().limits)
    assert records_of(lost, jobs)["low"].end_time_s == 60 + 10 + 100
    assert records_of(preempting(), jobs)["low"].end_time_s == 60 + 10 + 40


def test_so_many_tasks_of_an_array_run_at_once() -> None:
    # "Job Array Support": --array=0-3%2.
    jobs = [asks(f"{i}", 0, 1, 10, user="u", group="7", terms=Terms(group_limit=2)) for i in range(4)]
    assert list(starts(SlurmBackfill(), jobs).values()) == [0, 0, 10, 10]
    full = [asks(f"{i}", i, 4, 100, user="u", group="7", terms=Terms(group_limit=1)) for i in range(2)]
    assert starts(SlurmBackfill(), [*full, asks("other", 2, 4, 10)])["other"] == 2  # they hold nothing back


def test_a_job_waits_for_those_that_it_depends_on() -> None:
    # sbatch, --dependency=afterany.
    jobs = [asks("a", 0, 1, 50), asks("b", 0, 1, 70), asks("c", 1, 1, 10, terms=Terms(after=("a", "b", "unknown")))]
    assert starts(SlurmBackfill(), jobs)["c"] == 70


def test_licences_run_out() -> None:
    # "Licenses Guide": Licenses=matlab:3.
    taking = Terms(licences=(("matlab", 2), ("other", 9)))
    jobs = [asks("a", 0, 1, 50, terms=taking), asks("b", 1, 1, 10, terms=taking), asks("c", 2, 1, 10)]
    assert starts(SlurmBackfill(limits=Limits(licences={"matlab": 3})), jobs) == {"a": 0, "b": 50, "c": 2}


def test_nodes_are_drained_for_maintenance() -> None:
    # "Advanced Resource Reservation Guide": a job that would run into a reservation waits until it is over.
    limits = Limits(reservations=(Reservation(100, 200, (0,)),))
    jobs = [asks("long", 0, 8, 150), asks("short", 1, 8, 99), asks("next", 2, 8, 5)]
    assert starts(SlurmBackfill(limits=limits), jobs) == {"long": 200, "short": 1, "next": 350}


@pytest.mark.parametrize("drains", [True, False])
def test_nodes_are_drained_for_an_outage_that_is_announced(drains) -> None:
    # Node 0 is maintained from 100 to 200: without warning a job that starts at 0 is lost at 100 and begins again.
    jobs = [asks("long", 0, 8, 150, limit=1000)]
    policy, recorder = SlurmBackfill(limits=Limits(drains=drains)), MemoryRecorder()
    failures = FailureOptions(
        checkpoint_interval_s=1000, outages=(Outage(0, 100, 200, "maintenance"), Outage(0, 900, 950))
    )
    simulate(ONE_OF_EIGHT, jobs, Applications(), policy, NO_DELAY, 1, recorder, failures=failures)
    found = {one.job_id: (one.start_time_s, one.end_time_s) for one in recorder.jobs}
    assert found["long"] == ((200, 350) if drains else (0, 350))


def test_a_reservation_is_for_those_who_name_it() -> None:
    limits = Limits(reservations=(Reservation(0, 200, (0,), "course"),))
    inside = Terms(reservation="course")
    jobs = [asks("other", 0, 8, 50), asks("member", 1, 8, 50, terms=inside)]
    assert starts(SlurmBackfill(limits=limits), jobs) == {"other": 200, "member": 1}


def test_a_reservation_that_repeats_is_for_its_own_each_time_and_for_all_between() -> None:
    limits = Limits(reservations=(Reservation(0, 100, (0,), "course"), Reservation(200, 300, (0,), "course")))
    jobs = [asks("between", 110, 8, 50), asks("other", 205, 8, 50), asks("member", 210, 8, 50, terms=Terms("course"))]
    assert starts(SlurmBackfill(limits=limits), jobs) == {"between": 110, "other": 300, "member": 210}


def exhaustive(
    free: list[list[int]], running: list[tuple[int, int, int]], jobs: list[tuple[int, int, int]]
) -> list[int]:
    """Plan jobs (nodes, GPUs of each, limit) in order, second by second, from what is free at each on each node."""
    horizon = 400
    table = [[free[node][0] for _ in range(horizon)] for node in range(len(free))]
    for end, node, gpus in running:
        for second in range(end, horizon):
            table[node][second] += gpus
    found = []
    for nodes, gpus, limit in jobs:
        for second in itertools.count():
            spans = {n: min(table[n][second : second + limit]) for n in range(len(free))}
            able = sorted((n for n in spans if spans[n] >= gpus), key=lambda n: (table[n][second], n))
            if len(able) >= nodes:
                break
        for node in able[:nodes]:
            for at in range(second, second + limit):
                table[node][at] -= gpus
        found.append(second)
    return found


@pytest.mark.parametrize("seed", range(30))
def test_a_pass_is_that_of_trying_every_second(seed) -> None:
    dice = random.Random(seed)
    free, running = [], []
    for node in range(3):
        taken = [dice.randint(0, 2) for _ in range(2)]
        running += [(dice.randint(1, 30), node, gpus) for gpus in taken if gpus]
        free.append([4 - sum(taken)])
    jobs = [(dice.randint(1, 3), dice.randint(1, 4), dice.randint(1, 20)) for _ in range(8)]
    running.sort()
    whole = np.array([[4, 9, 9, 0]] * 3)
    level = np.array([[one[0], 9, 9, 0] for one in free])
    wants = np.array([[nodes, gpus, 0, 0, 0, 0, 0] for nodes, gpus, _ in jobs])
    state = Pass(
        level,
        whole,
        np.array([end for end, _, _ in running], dtype=np.int64),
        np.array([[node, gpus, 0, 0] for _, node, gpus in running], dtype=np.int64).reshape(-1, 4),
        np.empty((0, 4), dtype=np.int64),
        wants,
        np.ones((1, 3), dtype=np.bool_),
        np.zeros(len(wants), dtype=np.bool_),
    )
    limits = np.array([limit for _, _, limit in jobs])
    starts_at, begun = state.plan(0, np.arange(len(jobs)), limits, 10_000, Manner(EVERYBODY))
    assert starts_at.tolist() == exhaustive(free, running, jobs)
    assert sorted(job for job, _ in begun) == np.flatnonzero(starts_at == 0).tolist()
    for job, at in begun:
        assert len(at) == jobs[job][0]
        assert all(gpus == jobs[job][1] for _, gpus in at)
    easy, _ = state.plan(0, np.arange(len(jobs)), limits, 10_000, Manner(EASY))
    first = next((i for i, start in enumerate(starts_at.tolist()) if start > 0), len(jobs))
    assert easy[: first + 1].tolist() == starts_at[: first + 1].tolist()
