"""The engine's rules of time, progress and order, on cases worked by hand."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
from simsched_policies.fifo import Fifo
from simsched_policies.tiresias import Tiresias

from simsched.agent.fixed_agent import FixedBatch
from simsched.engine.errors import InfeasibleDecisionError, StuckError
from simsched.engine.failure_options import FailureOptions
from simsched.engine.garbage import spared_by_the_collector
from simsched.engine.options import LEAST_TICK_S, EngineOptions
from simsched.engine.records import JobRecord, MemoryRecorder
from simsched.engine.simulation import simulate
from simsched.engine.state import JobState
from simsched.errors import InputError
from simsched.model.cluster import Cluster, NodeGroup
from simsched.model.job import JobSpec
from simsched.model.outages import Outage
from simsched.model.placement import Allocation
from simsched.policy import Decision, Policy, Triggers, View
from simsched.testing.builders import Applications, run, toy_application

ONE_GPU = Cluster.uniform(1, 1)


@dataclass
class Script(Policy):
    """Decides at given seconds as told; in between everything stays."""

    name: ClassVar[str] = "script"
    rigid: ClassVar[bool] = False

    steps: Mapping[int, Mapping[str, Allocation]]
    interval_s: int = 10
    seen: dict[int, tuple[list[str], list[str], list[str]]] = field(default_factory=dict)
    watch: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    rent: Mapping[int, set[int]] = field(default_factory=dict)

    @property
    def triggers(self) -> Triggers:
        return Triggers(interval_s=self.interval_s)

    def decide(self, view: View, rng) -> Decision:
        names = [job.id for job in view.arrived], list(view.finished), [job.id for job in view.reached_threshold]
        self.seen[view.now_s] = names
        here = self.steps.get(view.now_s, {})
        stop = [job_id for job_id, new in here.items() if not new]
        start = {job_id: new for job_id, new in here.items() if new}
        watch, target_nodes = self.watch.get(view.now_s, {}), self.rent.get(view.now_s)
        return Decision.change(start, stop, watch=watch, target_nodes=target_nodes)


def fixed(job_id: str, submit_s: int = 0, gpus: int = 1, duration_s: int = 100) -> JobSpec:
    return JobSpec(job_id, submit_s, gpus, duration_s=duration_s)


def toy(job_id: str, submit_s: int = 0, gpus: int = 1, batch: int = 16) -> JobSpec:
    return JobSpec(job_id, submit_s, gpus, application="toy", batch_size=batch)


def test_a_single_job_waits_restarts_and_runs() -> None:
    (job,) = run(Fifo(), [fixed("a", 5)], cluster=ONE_GPU).jobs
    assert (job.start_time_s, job.end_time_s, job.jct_s) == (5, 135, 130)
    assert (job.queueing_s, job.restart_s, job.held_s, job.attained_gpu_s, job.restarts) == (0, 30, 130, 130, 0)


@pytest.mark.parametrize(("submit_s", "start_s"), [(0, 60), (1, 60), (60, 60), (61, 120)])
def test_periodic_decisions_fall_on_multiples_of_the_interval_but_not_on_zero(submit_s: int, start_s: int) -> None:
    (job,) = run(Tiresias(), [fixed("a", submit_s)], cluster=ONE_GPU).jobs
    assert job.start_time_s == start_s


def test_gpus_of_a_job_that_finishes_between_decisions_stay_idle_until_the_next() -> None:
    jobs = run(Tiresias(), [fixed("a", 0, duration_s=15), fixed("b", 0, duration_s=15)], cluster=ONE_GPU).jobs
    assert [(job.start_time_s, job.end_time_s) for job in jobs] == [(60, 105), (120, 165)]


def test_events_trigger_decisions_at_the_very_second() -> None:
    jobs = run(Fifo(), [fixed("a", 3, duration_s=15), fixed("b", 4, duration_s=15)], cluster=ONE_GPU).jobs
    assert [(job.start_time_s, job.end_time_s) for job in jobs] == [(3, 48), (48, 93)]


def test_a_training_job_in_closed_form() -> None:
    # 16 examples on one GPU: 0.26 s an iteration, 100 iterations an epoch, 4 epochs: 4 x 26 s after the restart.
    (job,) = run(Fifo(), [toy("a")], cluster=ONE_GPU).jobs
    assert job.jct_s == 30 + 4 * 26


def test_distribution_slows_the_step_and_a_larger_batch_gains_less_than_it_costs() -> None:
    # 64 examples on (2, 2): 0.1 + 0.16 + 0.2 s a step; gain 2 / (1/4 + 1) = 1.6 of a scale of 4.
    records = run(Script({10: {"a": ((0, 2), (1, 2))}}), [toy("a", 0, 4, 64)])
    (job,) = records.jobs
    assert job.jct_s == 10 + 30 + 4 * round(100 * 0.46 / 1.6)
    interval = records.allocations[1]
    assert interval.efficiency == pytest.approx(0.4)
    assert interval.throughput == pytest.approx(64 / 0.46)
    assert (interval.batch_size, interval.local_bsz, interval.accum_steps) == (64, 16, 0)


def test_accumulation_repeats_the_step_without_synchronisation() -> None:
    # 256 examples on one GPU: 4 micro-batches of 64, each 0.74 s; gain 2 / (1/16 + 1).
    records = run(Script({10: {"a": ((0, 1),)}}), [toy("a", 0, 1, 256)])
    gain = 2 / (1 / 16 + 1)
    assert records.allocations[1].rate == pytest.approx(gain / (0.74 * 4))
    assert records.jobs[0].jct_s == 10 + 30 + 4 * round(100 * 0.74 * 4 / gain)


def test_a_change_of_placement_is_a_restart_and_progress_is_kept() -> None:
    # At 40 it runs, 26 s an epoch; moved at 50, so 10 s of progress are made, and 30 s are lost.
    records = run(Script({10: {"a": ((0, 1),)}, 50: {"a": ((1, 1),)}}), [toy("a")])
    (job,) = records.jobs
    assert job.jct_s == 10 + 30 + 10 + 30 + (4 * 26 - 10)
    assert (job.restarts, job.restart_s) == (1, 60)


def test_the_same_gpus_in_another_order_are_another_placement() -> None:
    steps = {10: {"a": ((0, 1), (1, 2))}, 50: {"a": ((1, 2), (0, 1))}, 60: {"a": ((1, 2), (0, 1))}}
    (job,) = run(Script(steps), [toy("a", 0, 3, 64)]).jobs
    assert job.restarts == 1


def test_a_new_delay_replaces_an_unfinished_one() -> None:
    steps = {10: {"a": ((0, 1),)}, 20: {"a": ((1, 1),)}}
    (job,) = run(Script(steps), [fixed("a", duration_s=7)]).jobs
    assert (job.end_time_s, job.restart_s) == (20 + 30 + 7, 40)


def test_a_preempted_job_keeps_its_progress_and_waits() -> None:
    steps = {10: {"a": ((0, 1),)}, 70: {"a": ()}, 100: {"a": ((0, 1),)}}
    (job,) = run(Script(steps), [fixed("a", duration_s=50)]).jobs
    assert job.end_time_s == 100 + 30 + 20
    assert (job.queueing_s, job.held_s, job.attained_gpu_s) == (10 + 30, 110, 110)


def _work_of(seconds: float) -> Applications:
    """Make an application of one epoch that takes so many seconds with 16 examples on one GPU."""
    return Applications(toy_application(epochs=1, iterations_per_epoch=seconds / 0.26))


@pytest.mark.parametrize(("work_s", "end_s", "seen_at_50"), [(9.3, 49, True), (9.7, 50, True), (10.3, 50, False)])
def test_an_end_just_after_the_decision_is_seen_by_it_as_running(work_s: float, end_s: int, seen_at_50: bool) -> None:
    # The job runs from 40 on. 9.7 s and 10.3 s of work both end at second 50, but only the first before the decision.
    script = Script({10: {"a": ((0, 1),)}, 60: {"b": ((1, 1),)}})
    records = run(script, [toy("a"), toy("b", 45)], applications=_work_of(work_s))
    assert records.jobs[0].end_time_s == end_s
    assert script.seen[50][1] == (["a"] if seen_at_50 else [])
    assert script.seen[60][1] == ([] if seen_at_50 else ["a"])


def test_a_job_moved_at_the_tick_before_its_late_end_pays_the_restart_first() -> None:
    steps = {10: {"a": ((0, 1),)}, 50: {"a": ((1, 1),)}}
    (job,) = run(Script(steps), [toy("a")], applications=_work_of(10.3)).jobs
    assert job.end_time_s == 80  # 0.3 s of work are left after the second restart


def test_interference_slows_distributed_jobs_that_share_a_node() -> None:
    spread = {10: {"a": ((0, 1), (1, 1)), "b": ((0, 1), (1, 1)), "c": ((0, 1),)}}
    jobs = [fixed("a", 0, 2), fixed("b", 0, 2), fixed("c", 0, 1)]
    ends = {
        job.job_id: job.end_time_s for job in run(Script(spread), jobs, options=EngineOptions(interference=0.5)).jobs
    }
    assert ends == {"a": 10 + 30 + 200, "b": 10 + 30 + 200, "c": 10 + 30 + 100}


def test_interference_ends_with_the_decision_after_the_neighbour_is_gone() -> None:
    spread = {10: {"a": ((0, 1), (1, 1)), "b": ((0, 1), (1, 1))}}
    jobs = [fixed("a", 0, 2, duration_s=25), fixed("b", 0, 2, duration_s=100)]
    ends = {
        job.job_id: job.end_time_s for job in run(Script(spread), jobs, options=EngineOptions(interference=0.5)).jobs
    }
    # a: 25 / 0.5 = 50 s from 40 to 90. b: 25 s of work by 90, then 75 s at full speed.
    assert ends == {"a": 90, "b": 90 + 75}


def test_a_watched_threshold_is_met_at_the_very_second() -> None:
    script = Script({10: {"a": ((0, 3),)}}, watch={10: {"a": 100}})
    run(script, [fixed("a", 0, 3, duration_s=50)])
    crossings = [now for now, (_, _, crossed) in script.seen.items() if crossed]
    assert crossings == [10 + 34]  # 33 s give 99 GPU-seconds


def test_the_view_lists_what_changed_since_the_last_decision() -> None:
    script = Script({10: {"a": ((0, 1),)}, 20: {"b": ((0, 1),)}})
    run(script, [fixed("a", 3, duration_s=5), fixed("b", 12, duration_s=5)])
    assert script.seen[10] == (["a"], [], [])
    assert script.seen[20] == (["b"], [], [])
    assert script.seen[50] == ([], ["a"], [])


def test_a_quiet_time_is_skipped() -> None:
    script = Script({10: {"a": ((0, 1),)}, 1_000_010: {"b": ((0, 1),)}})
    records = run(script, [fixed("a", 0, duration_s=5), fixed("b", 1_000_001, duration_s=5)])
    assert len(records.decisions) < 15


@pytest.mark.parametrize(
    ("allocation", "reason"),
    [
        (((0, 5),), "node 0 (4 GPUs) is 1 GPUs short for jobs a"),
        (((7, 1),), "there is no node 7"),
        (((0, 0),), "0 GPUs on node 0"),
        (((0, 1), (0, 1)), "a node is named twice"),
    ],
)
def test_an_infeasible_decision_names_policy_time_node_and_jobs(allocation: Allocation, reason: str) -> None:
    with pytest.raises(InfeasibleDecisionError) as caught:
        run(Script({10: {"a": allocation}}), [fixed("a")])
    assert "policy 'script' at t=10 s" in str(caught.value)
    assert reason in str(caught.value)


def test_two_jobs_cannot_share_a_gpu() -> None:
    with pytest.raises(InfeasibleDecisionError, match=r"node 1 .4 GPUs. is 2 GPUs short for jobs a, b"):
        run(Script({10: {"a": ((1, 3),), "b": ((1, 3),)}}), [fixed("a"), fixed("b")])


def test_a_decision_about_a_job_that_is_gone_is_refused() -> None:
    with pytest.raises(InfeasibleDecisionError, match="job 'ghost' is not active"):
        run(Script({10: {"ghost": ((0, 1),)}}), [fixed("a")])


def test_mixed_gpu_types_are_refused() -> None:
    cluster = Cluster.of(NodeGroup(1, 2, "t4"), NodeGroup(1, 2, "a100"))
    with pytest.raises(InfeasibleDecisionError, match="GPU types are mixed"):
        run(Script({10: {"a": ((0, 1), (1, 1))}}), [fixed("a")], cluster=cluster)


def test_a_policy_that_never_places_a_job_is_stopped() -> None:
    with pytest.raises(StuckError, match="2 jobs wait: a, b"):
        run(Script({}), [fixed("a"), fixed("b")], options=EngineOptions(idle_rounds=20))


@pytest.mark.parametrize(
    ("jobs", "reason"),
    [
        ([], "there are no jobs"),
        ([fixed("a", gpus=9)], "it asks for 9 GPUs and can never fit a cluster of 8"),
        ([fixed("a", gpus=0)], "it asks for 0 GPUs"),
        ([fixed("a", duration_s=0)], "its duration is 0 s"),
        ([fixed("a", -1)], "it is submitted at -1 s"),
        ([fixed("a"), fixed("a")], "its id is used twice"),
        ([fixed("a", 5), fixed("b", 4)], "not sorted by submit time"),
        ([toy("a", batch=8)], "its batch size 8 is out of range for toy (16 to 256)"),
        ([toy("a", gpus=4, batch=16)], "its batch size 16 on 4 GPUs is below toy's least of 8 per GPU"),
    ],
)
def test_jobs_that_could_never_run_are_refused_before_anything_runs(jobs: list[JobSpec], reason: str) -> None:
    with pytest.raises(InputError) as caught:
        run(Fifo(), jobs)
    assert reason in str(caught.value)


def test_a_rented_node_is_paid_for_at_once_and_up_after_its_start() -> None:
    cloud = EngineOptions(initial_nodes=1, node_start_s=25)
    script = Script({40: {"a": ((1, 1),)}, 70: {"a": ((0, 1),)}}, rent={10: {0, 1}, 70: {0}})
    records = run(script, [fixed("a", duration_s=20)], options=cloud)
    seen = {row.time_s: (row.available_gpus, row.provisioned_nodes) for row in records.decisions}
    assert [seen[now] for now in (10, 30, 40, 70)] == [(4, 2), (4, 2), (8, 2), (4, 1)]
    assert records.jobs[0].end_time_s == 70 + 30 + 20


def test_a_node_that_is_let_go_while_it_starts_never_comes_up() -> None:
    cloud = EngineOptions(initial_nodes=1, node_start_s=25)
    script = Script({40: {"a": ((0, 1),)}}, rent={10: {0, 1}, 20: {0}})
    records = run(script, [fixed("a", duration_s=20)], options=cloud)
    seen = {row.time_s: (row.available_gpus, row.provisioned_nodes) for row in records.decisions}
    assert [seen[now] for now in (10, 20, 40)] == [(4, 2), (4, 1), (4, 1)]


def test_a_broken_node_that_is_let_go_meanwhile_does_not_come_back() -> None:
    failures = FailureOptions(outages=(Outage(1, 5, 35),))
    script = Script({40: {"a": ((0, 1),)}}, rent={10: {0}})
    records, options = MemoryRecorder(), EngineOptions(restart_delay_s=30)
    jobs = [fixed("a", duration_s=20)]
    simulate(Cluster.uniform(2, 4), jobs, Applications(), script, options, 0, records, failures=failures)
    assert {row.available_gpus for row in records.decisions if row.time_s > 5} == {4}


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"restart_delay_s": -1}, "restart_delay_s"),
        ({"node_start_s": -1}, "node_start_s and initial_nodes"),
        ({"initial_nodes": -1}, "node_start_s and initial_nodes"),
        ({"tick_s": LEAST_TICK_S / 2}, "tick_s"),
        ({"tick_s": 1.5}, "tick_s"),
        ({"max_jobs_per_gpu": 0}, "max_jobs_per_gpu"),
        ({"interference": 1.0}, "interference"),
        ({"interference": -0.1}, "interference"),
    ],
)
def test_options_that_no_cluster_can_have_are_refused(wrong: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        EngineOptions(**wrong)


def test_options_at_the_edge_of_what_a_cluster_can_have() -> None:
    for tick_s in (0, LEAST_TICK_S, 1):
        assert EngineOptions(restart_delay_s=0, node_start_s=0, initial_nodes=0, tick_s=tick_s).tick_s == tick_s


def test_a_node_that_is_not_up_holds_no_job() -> None:
    cloud = EngineOptions(initial_nodes=1, node_start_s=25)
    with pytest.raises(InfeasibleDecisionError, match="node 1 is down"):
        run(Script({20: {"a": ((1, 1),)}}, rent={10: {0, 1}}), [fixed("a")], options=cloud)


def test_a_node_that_holds_a_job_cannot_go() -> None:
    with pytest.raises(InfeasibleDecisionError, match="node 1 is to go but holds jobs a"):
        run(Script({10: {"a": ((1, 1),)}}, rent={20: {0}}), [fixed("a")])


def test_jobs_that_reply_to_a_completion_arrive_at_their_second_and_the_run_waits_for_them() -> None:
    def reply(record: JobRecord) -> list[JobSpec]:
        if record.job_id != "a":
            return []
        return [fixed("later", record.end_time_s + 100, duration_s=20), fixed("now", record.end_time_s, duration_s=10)]

    records = MemoryRecorder()
    options = EngineOptions(restart_delay_s=30)
    simulate(ONE_GPU, [fixed("a", 5, duration_s=15)], Applications(), Fifo(), options, 0, records, on_finish=reply)
    assert [(job.job_id, job.submit_time_s, job.end_time_s) for job in records.jobs] == [
        ("a", 5, 50),
        ("now", 50, 90),
        ("later", 150, 200),
    ]


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (fixed("a", 100), "its id is used twice"),
        (fixed("b", 34), "it is submitted at 34 s, in reply to something that happens at 35 s"),
        (fixed("b", 35, gpus=2), "can never fit"),
    ],
)
def test_a_reply_that_could_never_run_is_refused(job: JobSpec, reason: str) -> None:
    options = EngineOptions(restart_delay_s=30)
    with pytest.raises(InputError, match=reason):
        simulate(
            ONE_GPU,
            [fixed("a", 0, duration_s=5)],
            Applications(),
            Fifo(),
            options,
            0,
            MemoryRecorder(),
            on_finish=lambda _: [job],
        )


def test_a_policy_is_told_the_age_of_a_job_from_its_submission() -> None:
    ages: dict[float, float] = {}

    class Watching(Fifo):
        name: ClassVar[str] = "watching"

        def decide(self, view: View, rng) -> Decision:
            ages.update({view.now_s: view.jobs["a"].age_s} if "a" in view.jobs else {})
            return super().decide(view, rng)

    run(Watching(), [fixed("b", 0), fixed("a", 7), fixed("c", 40)], cluster=ONE_GPU)
    assert {now: age for now, age in ages.items() if now in (7, 40)} == {7: 0, 40: 33}


def test_target_nodes_that_do_not_exist_are_named() -> None:
    for wanted in ({0, 2}, {-1}):
        with pytest.raises(InfeasibleDecisionError, match="target_nodes names nodes outside 0 to 1"):
            run(Script({}, rent={10: wanted}), [fixed("a")])


def test_agents_that_come_from_elsewhere_are_told_the_cluster_too() -> None:
    told: list[Cluster] = []

    class Agents(FixedBatch):
        def begin(self, cluster: Cluster) -> None:
            told.append(cluster)

    simulate(
        ONE_GPU, [fixed("a")], Applications(), Fifo(), EngineOptions(restart_delay_s=0), 0, MemoryRecorder(),
        agents=Agents(),
    )  # fmt: skip
    assert told == [ONE_GPU]


class CountingFifo(Fifo):
    """Counts the states of jobs that are in memory and not of active jobs."""

    def decide(self, view, rng):
        in_memory = sum(type(found) is JobState for found in gc.get_objects())
        self.most_left = max(getattr(self, "most_left", 0), in_memory - len(view.jobs))
        return super().decide(view, rng)


def test_jobs_that_have_ended_leave_nothing_to_the_collector():
    policy = CountingFifo()
    gc.collect()
    gc.disable()
    try:
        run(policy, [JobSpec(f"j{i:02}", 10 * i, 1, duration_s=25) for i in range(40)], cluster=ONE_GPU)
    finally:
        gc.enable()
    assert policy.most_left <= 1  # the one that has just ended


@pytest.mark.parametrize(("set_to", "within"), [((700, 9, 8), 20_000), ((30_000, 9, 8), 30_000), ((0, 9, 8), 0)])
def test_the_collector_looks_seldom_during_a_run_and_as_before_after_it(set_to, within):
    before = gc.get_threshold()
    gc.set_threshold(*set_to)
    try:
        with spared_by_the_collector(), spared_by_the_collector():
            assert gc.get_threshold() == (within, 9, 8)
        assert (gc.get_threshold(), gc.get_freeze_count()) == (set_to, 0)
    finally:
        gc.set_threshold(*before)
