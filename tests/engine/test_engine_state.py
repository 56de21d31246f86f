"""Counts, records and clock of the engine, each by itself: what goes in and what has to come out."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from simsched.engine.clock import Clock, Phase
from simsched.engine.ledger import _speed
from simsched.engine.options import EngineOptions, FailureOptions
from simsched.engine.records import features_of, interval_record, job_record
from simsched.engine.sharing import _examples, memory_mb
from simsched.engine.state import ClusterState, JobState, Recovery, gpu_type_of, nodes_shared_by_distributed
from simsched.engine.validate import leaving_faults, plain_changes
from simsched.model import FIXED_DURATION, BatchChoice, Cluster, JobSpec, Node, NodeGroup
from simsched.model.application import NO_BATCH, Running, facts_of
from simsched.model.cluster import Level, Uplink
from simsched.model.outages import AttemptPlan
from simsched.model.tabulated import FixedDuration
from simsched.policy import REMAINING_WORK, Decision, Place
from simsched.policy.signals import SERVICE_HISTORY, known_by
from simsched.results.rows import Feature
from tests.scripted import fixed

TWO_KINDS = Cluster.of(NodeGroup(2, 4, "v100"), NodeGroup(1, 2, "t4"))
RACKS = replace(Cluster.uniform(4, 1), levels=(Level("rack", ((0, 1), (2, 3))),))
TIERS = replace(Cluster.uniform(4, 1), levels=(Level("rack", ((0, 1), (2, 3)), uplink=Uplink(1e9)),))
ONE = Cluster.uniform(1, 4)


@pytest.mark.parametrize(
    ("feature", "there", "absent"),
    [
        (Feature.SHARING, {"options": EngineOptions(max_jobs_per_gpu=2)}, {}),
        (Feature.FINE_TIME, {"options": EngineOptions(tick_s=0.5)}, {}),
        (Feature.FINE_TIME, {"options": EngineOptions(tick_s=0)}, {}),
        (Feature.FAILURES, {"failures": FailureOptions()}, {}),
        (Feature.DEADLINES, {"jobs": [fixed("a"), replace(fixed("b"), deadline_s=5)]}, {"jobs": [fixed("a")]}),
        (Feature.QUEUES, {"jobs": [fixed("a"), replace(fixed("b"), queue="q")]}, {"jobs": [fixed("a")]}),
        (Feature.TOPOLOGY, {"cluster": RACKS}, {}),
        (Feature.FRAGMENTATION, {"options": EngineOptions(fragmentation=True)}, {"cluster": TIERS}),
        (Feature.PLANS, {"plans": True}, {}),
        (Feature.CONTENTION, {"options": EngineOptions(contention=True)}, {}),
        (Feature.TIERS, {"options": EngineOptions(fragmentation=True), "cluster": TIERS}, {"cluster": TIERS}),
        (Feature.TIERS, {"options": EngineOptions(fragmentation=True), "cluster": TIERS},
         {"options": EngineOptions(fragmentation=True), "cluster": RACKS}),
        (Feature.MAKES, {"cluster": TWO_KINDS}, {"cluster": Cluster.uniform(2, 4)}),
        (Feature.MAKES, {"cluster": Cluster.of(NodeGroup(1, 4, "t4"), NodeGroup(1, 2, "t4"))}, {}),
    ],
)  # fmt: skip
def test_a_feature_brings_its_columns_only_where_it_is_used(feature, there, absent):
    plain = {"cluster": ONE, "jobs": [], "options": EngineOptions()}
    assert feature in features_of(**plain | there)
    assert feature not in features_of(**plain | absent)


def test_a_cluster_counts_starts_and_what_is_provisioned():
    state = ClusterState(TWO_KINDS, initial_nodes=1)
    assert (state.available_gpus, state.up.count(True), state.provisioned_nodes) == (4, 1, 1)
    assert dict(state.provisioned_gpus) == {"v100": 4, "t4": 0}
    state.start(2, SimpleNamespace(cancel=lambda: None))
    assert (state.provisioned_nodes, dict(state.provisioned_gpus)) == (2, {"v100": 4, "t4": 2})
    state.take_down(2)
    assert (state.provisioned_nodes, dict(state.provisioned_gpus), state.node_starts) == (1, {"v100": 4, "t4": 0}, 1)
    state.take("a", ((0, 3),))
    state.take("b", ((0, 1),))
    assert (state.job_starts, state.running_jobs, state.allocated_gpus, state.free) == (2, 2, 4, [0, 0, 0])
    state.give_back("a", ((0, 3),))
    assert (state.job_starts, state.running_jobs, state.allocated_gpus, state.free) == (2, 1, 1, [3, 0, 0])
    assert dict(ClusterState(Cluster.uniform(2, 4)).provisioned_gpus) == {}


def test_a_node_comes_back_once_every_cause_is_repaired():
    state = ClusterState(Cluster.uniform(2, 4))
    state.break_down(1)
    state.break_down(1)
    assert (state.failures, state.broken, state.returning, state.up, state.free) == (
        2,
        {1: 2},
        {1},
        [True, False],
        [4, 0],
    )
    state.repair(1)
    assert (state.broken, state.up, state.available_gpus) == ({1: 1}, [True, False], 4)
    state.repair(1)
    assert (state.broken, state.returning, state.up, state.available_gpus) == ({}, set(), [True, True], 8)


@pytest.mark.parametrize(("declared", "counted"), [({"cpu_milli": 1}, True), ({"memory_mib": 1}, True), ({}, False)])
def test_cores_and_memory_are_counted_where_either_is_declared(declared, counted):
    assert (ClusterState(Cluster((Node(0, 4, "t4", **declared),))).beside is not None) is counted


def test_types_and_shared_nodes_of_allocations():
    assert gpu_type_of(TWO_KINDS, ((0, 1), (1, 2))) == "v100"
    assert gpu_type_of(TWO_KINDS, ((2, 1),)) == "t4"
    assert gpu_type_of(TWO_KINDS, ((0, 1), (2, 1))) is None
    held = [((0, 1), (1, 1)), ((1, 1), (2, 1)), ((0, 4),), ((3, 1), (4, 1))]
    assert nodes_shared_by_distributed([SimpleNamespace(allocation=one) for one in held]) == {1}


def state_of(spec=None, *, tick_s=1, at=((0, 2),), since=10, now=30, **attributes):
    """Return a job that has held GPUs since a tick, on a clock that stands at another."""
    spec, clock = spec or JobSpec("a", 5, 2, duration_s=100), Clock(tick_s)
    clock.now = now
    app = FixedDuration(100)
    job = JobState(spec.request, spec.truth, app, facts_of(app), clock, ONE)
    job.allocation, job.gpus, job.nodes, job.since = at, sum(gpus for _, gpus in at), len(at), since
    for name, value in attributes.items():
        setattr(job, name, value)
    return job


def test_an_interval_tells_all_of_its_job():
    running = Running(2.0, 0.5, 64.0, None, None)
    batch = BatchChoice(8, 3)
    site = SimpleNamespace(levels_crossed=2)
    job = state_of(tick_s=0.5, at=((0, 2), (1, 2)), running=running, batch=batch, rate=1.5, epoch=4, site=site,
                   neighbours=("x", "y"), gpu_share=0.25, speed=0.75, congestion=0.5)  # fmt: skip
    found = interval_record(job, 7.0, job.clock)
    # 4 GPUs train 8 examples in 1 + 3 steps; of 64 examples a second neighbours leave 3/4 and the uplinks 1/2 of that.
    assert tuple(found) == ("a", 5.0, 15.0, 4, 2, "0:2 1:2", False, 8, 3, 128, 4, 7.0, 1.5, 0.5, 24.0,
                            "x y", 0.25, 0.75, 2, "", 0.5)  # fmt: skip


def test_an_interval_of_a_restart_trains_nothing():
    found = interval_record(state_of(batch=BatchChoice(8, 0), rate=1.5), 0.0, Clock())
    assert (found.restarting, found.local_bsz, found.batch_size, found.rate, found.throughput) == (True, 0, 0, 0, 0)
    assert (found.neighbours, found.gpu_share, found.relative_speed, found.levels_crossed) == ("", 1, 1, 0)
    assert NO_BATCH.total(4) == 0


def test_a_job_is_recorded_with_what_it_was_asked_and_what_it_cost():
    spec = JobSpec("a", 5, 2, duration_s=100, batch_size=0, tenant="t", user="u", queue="q", deadline_s=60)
    job = state_of(spec, tick_s=0.5, first_start=16, settled_held=30, settled_gpu=60, restart=4, starts=3, now=70,
                   declined=True)  # fmt: skip
    job.recovery = Recovery(10, 1, AttemptPlan((), keeps=False), [], lost=8, lost_gpu=16, failures=2, checkpointing=6)
    job.recovery.attempt += 1
    found = job_record(job, "Pass")
    # Submitted at 5 s, which is tick 10; 60 ticks to the end, of which it held GPUs for 30.
    assert tuple(found) == ("a", FIXED_DURATION, "t", "u", "Pass", 2, 0, 5.0, 8.0, 35.0, 30.0, 15.0, 15.0, 2.0, 30.0, 2,
                            2, 2, 4.0, 8.0, 3.0, 60, True, "q")  # fmt: skip
    never = job_record(state_of(now=30), "Cancelled")
    assert (never.start_time_s, never.restarts, never.attempts, never.deadline_s, never.declined) == (
        30,
        0,
        1,
        math.inf,
        False,
    )


def test_what_a_job_holds_counts_while_it_does():
    job = state_of(tick_s=0.5, settled_held=6, settled_gpu=12)
    assert (job.held_s, job.attained_gpu, job.attained_gpu_s, job.age_s) == (13, 52, 26, 10)
    job.allocation, job.gpus = (), 0
    assert (job.held_s, job.attained_gpu, job.first_start_s) == (3, 12, None)
    job.first_start = 12
    assert job.first_start_s == 6
    job.running, job.rate, job.progress = object(), 3.0, 1.0
    assert job.live_progress == 1 + 3 * 10


def test_a_job_measures_what_its_neighbours_leave_it():
    """Two GPUs train 8 examples in 1 + 1 steps; a neighbour leaves half of the speed, a slow node 4/5 of that."""
    job = state_of(batch=BatchChoice(8, 1), speed=0.5, slow=0.8)
    assert _speed(job, Running(3.0, 0.5, 80.0, None, None)) == pytest.approx((32.0, 1.0, 1.2))
    assert _speed(job, Running(3.0, 1.0, 0.0, None, None)) == pytest.approx((0.0, 0.0, 1.2))


@pytest.mark.parametrize(
    ("leasing", "writing", "paused"),
    [(None, None, False), (True, None, True), (False, True, True), (False, False, False), (None, True, True)],
)
def test_a_job_pauses_after_its_lease_and_while_it_writes(leasing, writing, paused):
    job = state_of()
    job.leasing = None if leasing is None else SimpleNamespace(paused=leasing)
    job.recovery = None if writing is None else SimpleNamespace(writing=writing)
    assert job.paused is paused


def test_examples_and_memory_of_a_job():
    job = state_of(JobSpec("a", 0, 2, "toy", batch_size=16), batch=BatchChoice(8, 1))
    assert (_examples(job), memory_mb(job)) == (16, 0.0)
    job.batch = BatchChoice(8, 0)
    assert _examples(job) == 8
    job.batch = NO_BATCH
    assert _examples(job) == 16


def test_a_clock_asks_once_for_an_instant_and_again_for_another():
    asked = []
    clock = Clock(decide=lambda due: asked.append(clock.now))
    for second in (5, 5, 3):
        clock.ask_at(second)
    assert not clock.advance()
    assert asked == [3, 5]
    clock.ask_at(5)
    clock.advance()
    assert asked == [3, 5, 5]


def test_a_clock_is_quiet_where_nothing_more_is_due_now():
    clock = Clock()
    assert clock.quiet
    clock.at(1, Phase.RESUME, lambda due: None)
    assert clock.quiet
    clock.at(0, Phase.RESUME, lambda due: None)
    assert not clock.quiet
    other = Clock()
    other.ask()
    assert not other.quiet


@pytest.mark.parametrize(
    ("tick_s", "seconds", "tick"), [(1, 7.4, 11), (1, 11.6, 12), (1, 10, 11), (0.5, 7, 14), (0, 10.2, 10.2)]
)
def test_who_wakes_up_does_so_later(tick_s, seconds, tick):
    clock = Clock(tick_s)
    clock.now = 10
    assert clock.wake(seconds) == tick


@pytest.mark.parametrize(
    ("decision", "plain"),
    [
        (Decision.change({"a": ((0, 2),)}), True),
        (Decision.change({"a": ((0, 1), (1, 1))}), True),
        (Decision.change({"b": ((0, 4),)}), True),
        (Decision.change({}, ["b"]), True),
        (Decision.change({"a": ((1, 2),)}, ["b"]), True),
        (Decision.change({"a": ((1, 2),)}), False),  # b holds three of the four
        (Decision.change({"a": ((0, 1),)}), False),  # not what it asked for
        (Decision.change({"a": ((0, 0), (1, 2))}, ["b"]), False),
        (Decision.change({"a": ((2, 2),)}), False),  # that node is down
        (Decision.change({"a": ((3, 2),)}), False),
        (Decision.change({"a": ((-1, 2),)}), False),
        (Decision.change({"a": ((0, 1), (0, 1))}), False),
        (Decision.change({"a": ((0, 2.0),)}), False),
        (Decision.change({"gone": ((0, 2),)}), False),
        (Decision.change({"b": ((1, 3),)}), False),  # as it is
        (Decision.change({"a": Place(((0, 2),))}), False),
        (Decision.change({"a": ((0, 2),)}, nodes=(0, 1)), False),
        (Decision({"a": ((0, 2),)}), False),  # the rest stops
    ],
)
def test_decisions_that_evidently_can_be_carried_out_skip_the_checks(decision, plain):
    cluster = ClusterState(Cluster.uniform(3, 4), initial_nodes=2)
    cluster.take("b", ((1, 3),))
    jobs = {"a": state_of(fixed("a", gpus=2), at=()), "b": state_of(fixed("b", gpus=4), at=((1, 3),))}
    changes = plain_changes(decision, jobs, cluster)
    assert (changes is not None) is plain
    if changes is not None:
        assert changes.gpus == dict(decision.jobs)


def test_a_node_that_holds_jobs_is_named_with_them():
    active = {name: state_of(at=at) for name, at in {"a": ((0, 1),), "b": ((0, 1), (1, 1)), "c": ()}.items()}
    assert leaving_faults([0, 1], {}, active) == leaving_faults([1], {"a": (), "b": ((1, 2),)}, active) == []
    assert leaving_faults([], {"a": ()}, active) == [
        "node 0 is to go but holds jobs b", "node 1 is to go but holds jobs b",
    ]  # fmt: skip


def test_signals_are_known_by_name():
    assert known_by([SERVICE_HISTORY, REMAINING_WORK]) == {
        "remaining_work": str(REMAINING_WORK.known), "service_history": str(SERVICE_HISTORY.known),
    }  # fmt: skip
    assert list(known_by([SERVICE_HISTORY, REMAINING_WORK])) == ["remaining_work", "service_history"]


def test_failures_at_the_edge_of_what_a_cluster_can_have():
    edge = FailureOptions(checkpoint_interval_s=10.0, checkpoint_cost_s=9.5, slow_nodes=1.0, slow_speed=1.0)
    assert (edge.fails, edge.mtbf_s(4), edge.interval_s(4, 4), edge.cost_s) == (False, None, 10.0, 9.5)
    by_size = FailureOptions(checkpoint_interval_s="optimal", checkpoint_cost_s="by-size", node_mtbf_s=1e6)
    assert by_size.fails
    # Young (1974): sqrt(2 w M / nodes), of the 3 nodes of 4 that 9 GPUs take; no less than a checkpoint takes.
    young = FailureOptions(node_mtbf_s=600.0, checkpoint_interval_s="optimal", checkpoint_cost_s=4.0)
    assert (young.mtbf_s(4), young.interval_s(9, 4), young.interval_s(4000, 4)) == (600, 40, 4)
    by_gpu = FailureOptions(gpu_mtbf_s=800.0, checkpoint_interval_s="optimal", checkpoint_cost_s=1.0)
    assert (by_gpu.mtbf_s(4), by_gpu.interval_s(2, 4), by_gpu.fails) == (200, pytest.approx(math.sqrt(800)), True)
