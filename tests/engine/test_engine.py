"""The engine's rules of time, progress and order, on cases worked by hand."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import pytest
from simsched_policies.queues.by_key import Fifo
from simsched_policies.queues.tiresias import Tiresias

from simsched.agent.fixed_agent import FixedBatch
from simsched.engine.options import EngineOptions
from simsched.engine.records import MemoryRecorder
from simsched.engine.simulation import simulate
from simsched.model.cluster import Cluster
from simsched.model.job import JobSpec
from simsched.policy import CANCEL, Decision, Policy, View
from simsched.testing.builders import Applications, run, toy_application
from tests.scripted import ONE_GPU, Script, fixed, toy


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


def test_a_policy_is_told_the_age_of_a_job_from_its_submission() -> None:
    ages: dict[float, float] = {}

    class Watching(Fifo):
        name: ClassVar[str] = "watching"

        def decide(self, view: View, rng) -> Decision:
            ages.update({view.now_s: view.jobs["a"].age_s} if "a" in view.jobs else {})
            return super().decide(view, rng)

    run(Watching(), [fixed("b", 0), fixed("a", 7), fixed("c", 40)], cluster=ONE_GPU)
    assert {now: age for now, age in ages.items() if now in (7, 40)} == {7: 0, 40: 33}


@pytest.mark.parametrize("apart", [False, True])
def test_policy_and_agents_from_elsewhere_are_told_the_cluster_once(apart: bool) -> None:
    told: list[tuple[str, Cluster]] = []

    class Agents(FixedBatch):
        def begin(self, cluster: Cluster) -> None:
            told.append(("agents", cluster))

    class Told(Fifo):
        name = "told"

        def begin(self, cluster: Cluster) -> None:
            told.append(("policy", cluster))

    agents = Agents() if apart else None
    simulate(ONE_GPU, [fixed("a")], Applications(), Told(), EngineOptions(), 0, MemoryRecorder(), agents=agents)
    assert sorted(told) == [("agents", ONE_GPU)] * apart + [("policy", ONE_GPU)]


class Late(Policy):
    """Starts jobs once a sum of seconds has come."""

    name = "late"
    begin_s = 0.1 + 0.2  # just above 0.3

    def decide(self, view, rng):
        if view.now_s >= self.begin_s:
            return Decision(dict.fromkeys(view.jobs, ((0, 1),)))
        return Decision({}, wake_at_s=self.begin_s)


@pytest.mark.parametrize(("tick_s", "start_s"), [(0.001, 0.301), (0.1, 0.3), (1, 1), (0, 0.1 + 0.2)])
def test_a_policy_that_asks_for_a_second_between_two_ticks_is_woken_at_a_later_one(tick_s, start_s):
    options = EngineOptions(restart_delay_s=0, tick_s=tick_s)
    recorder = run(Late(), [fixed("a", duration_s=5)], cluster=ONE_GPU, options=options)
    assert recorder.jobs[0].start_time_s == pytest.approx(start_s, abs=1e-9)


JOBS = [JobSpec(name, at, 8, duration_s=100) for name, at in (("a", 0), ("b", 5), ("c", 10))]


class Impatient(Policy):
    """Runs the last that came; the others are cancelled for it."""

    name: ClassVar[str] = "impatient"

    def __init__(self, rest: Literal["stops", "stays"] = "stays") -> None:
        self.rest = rest

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        if not view.arrived:
            return Decision({job.id: job.allocation for job in view.jobs.values()})
        new = view.arrived[-1].id
        return Decision({**dict.fromkeys(view.jobs, CANCEL), new: ((0, 4), (1, 4))}, self.rest)


@pytest.mark.parametrize("rest", ["stays", "stops"])
def test_cancelled_jobs_make_room_at_once(rest) -> None:
    found = run(Impatient(rest), JOBS, options=EngineOptions(restart_delay_s=0))
    ended = {one.job_id: (one.end_time_s, one.held_s, one.status) for one in found.jobs}
    assert ended == {"a": (5, 5, "Cancelled"), "b": (10, 5, "Cancelled"), "c": (110, 100, "")}
    assert {one.running_jobs for one in found.decisions} == {1}


def test_a_run_ends_when_its_last_job_is_cancelled() -> None:
    class Never(Impatient):
        def decide(self, view: View, rng: np.random.Generator) -> Decision:
            return Decision.change(dict.fromkeys(view.jobs, CANCEL))

    found = run(Never(), JOBS)
    assert [(one.job_id, one.end_time_s, one.held_s) for one in found.jobs] == [("a", 0, 0), ("b", 5, 0), ("c", 10, 0)]
