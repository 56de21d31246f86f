"""Leases, watched thresholds and time limits: when they end a job's run, and who is told."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
from simsched_policies.queues.by_key import Fifo

from simsched.agent.agent import Lease, LeasingAgent
from simsched.agent.fixed_agent import NoBatchAgent
from simsched.engine.clock import Clock, Phase
from simsched.engine.lifecycles import Watches
from simsched.engine.options import EngineOptions
from simsched.model.batch import BatchChoice
from simsched.model.cluster import Cluster
from simsched.model.job import JobSpec
from simsched.model.placement import Site
from simsched.policy import Decision, Policy, Triggers, View
from simsched.testing.builders import run
from simsched.workload.estimates import popular, with_estimates

ONE_GPU = Cluster.uniform(1, 1)


def ends(tick_s: float, *jobs: JobSpec, delay_s: float = 0.25) -> list[float]:
    options = EngineOptions(restart_delay_s=delay_s, tick_s=tick_s)
    return [job.end_time_s for job in run(Fifo(), jobs, cluster=ONE_GPU, options=options).jobs]


def test_a_tick_of_a_quarter_of_a_second_keeps_quarters() -> None:
    jobs = JobSpec("a", 0.25, 1, duration_s=1.5), JobSpec("b", 0.5, 1, duration_s=0.75)
    assert ends(0.25, *jobs) == [0.25 + 0.25 + 1.5, 2.0 + 0.25 + 0.75]


def test_continuous_time_rounds_nothing() -> None:
    jobs = JobSpec("a", 0.1, 1, duration_s=0.2), JobSpec("b", 0.1, 1, duration_s=1 / 3)
    first = 0.1 + 0.2 / 1.0
    assert ends(0, *jobs, delay_s=0) == [first, first + (1 / 3) / 1.0]


def test_a_second_stays_whole() -> None:
    assert ends(1, JobSpec("a", 3, 1, duration_s=7), delay_s=30) == [40]


@pytest.mark.parametrize(
    ("tick_s", "seconds", "ticks"), [(1, 7, 7), (1, 2.5, 2), (1, 3.5, 4), (0, 2.5, 2.5), (0, 7, 7), (0.25, 1.6, 6)]
)
def test_seconds_become_the_nearest_tick_unless_time_is_continuous(tick_s: float, seconds: float, ticks: float) -> None:
    assert Clock(tick_s).ticks(seconds) == ticks


@pytest.mark.parametrize(("tick_s", "now_s"), [(1, 6), (0, 6), (0.25, 1.5)])
def test_a_clock_begins_at_zero_and_shows_seconds_whatever_the_tick(tick_s: float, now_s: float) -> None:
    clock = Clock(tick_s)
    assert (clock.now, clock.now_s) == (0, 0)
    clock.at(6, Phase.ARRIVAL, lambda due: setattr(clock, "stopped", True))
    assert clock.advance()
    assert clock.now_s == now_s


class TenSteps(NoBatchAgent, LeasingAgent):
    """Grants three of ten steps of a second at a time; a lease that is cut short keeps whole ones."""

    def lease(self, site: Site, progress: float, now_s: float) -> Lease:
        steps = min(3.0, 10.0 - progress)
        return Lease(now_s + steps, lambda then_s: progress + float(int(then_s - now_s)), progress + steps >= 10)


@dataclass
class Keeps(Policy):
    """Gives the first job the GPU, decides when all leases are over, and pauses it once."""

    name: ClassVar[str] = "keeps"

    pause_at_s: float = -1

    renew: bool = False

    def agent(self, request, facts):
        return TenSteps()

    @property
    def triggers(self) -> Triggers:
        return Triggers(arrival=True, leases_over=True)

    def decide(self, view: View, rng) -> Decision:
        first = next(iter(view.jobs))
        if view.now_s == self.pause_at_s:
            return Decision({}, wake_at_s=view.now_s + 5)
        wake = self.pause_at_s if view.now_s < self.pause_at_s else None
        return Decision({first: ((0, 1),)}, wake_at_s=wake, renew_leases=self.renew)


def test_leases_follow_each_other_at_decisions() -> None:
    options = EngineOptions(restart_delay_s=0)
    records = run(Keeps(), [JobSpec("a", 0, 1, duration_s=10)], cluster=ONE_GPU, options=options)
    assert [decision.time_s for decision in records.decisions] == [0, 3, 6, 9]
    assert records.jobs[0].end_time_s == 10
    assert [(one.start_s, one.end_s, one.progress) for one in records.allocations] == [
        (0, 3, 0.0), (3, 6, 3.0), (6, 9, 6.0), (9, 10, 9.0)
    ]  # fmt: skip


class EveryFour(Keeps):
    """Decides every four seconds, whatever ends between them."""

    triggers = Triggers(interval_s=4)


def test_a_lease_that_is_over_waits_for_the_next_decision() -> None:
    options = EngineOptions(restart_delay_s=0)
    records = run(EveryFour(), [JobSpec("a", 0, 1, duration_s=10)], cluster=ONE_GPU, options=options)
    assert [decision.time_s for decision in records.decisions] == [4, 8, 12, 16]
    assert records.jobs[0].end_time_s == 17


def test_a_lease_that_is_cut_short_keeps_whole_steps() -> None:
    options = EngineOptions(restart_delay_s=0, tick_s=0)
    records = run(Keeps(4.5), [JobSpec("a", 0, 1, duration_s=10)], cluster=ONE_GPU, options=options)
    assert records.jobs[0].end_time_s == 4.5 + 5 + 6  # four steps were kept


def test_leases_are_renewed_on_request() -> None:
    options = EngineOptions(restart_delay_s=0, tick_s=0)
    jobs = [JobSpec("a", 0, 1, duration_s=10), JobSpec("b", 1.5, 1, duration_s=10)]
    records = run(Keeps(renew=True), jobs, cluster=ONE_GPU, options=options)
    assert [one.progress for one in records.allocations if one.job_id == "a"] == [0.0, 1.0, 4.0, 7.0]
    assert records.jobs[0].end_time_s == 1.5 + 9


class Grows(TenSteps):
    """Chooses another batch whenever it is asked, and always may."""

    stale = True

    def __init__(self):
        self.asked = 0

    def choose(self, site, epoch):
        self.asked += 1
        return BatchChoice(self.asked, 0)


class Both(Keeps):
    """Lets each of two jobs have a GPU, of which the second knows no leases."""

    def agent(self, request, facts):
        return Grows() if request.id == "a" else NoBatchAgent()

    def decide(self, view: View, rng) -> Decision:
        return Decision(dict.fromkeys(view.jobs, ((0, 1),)))


def test_an_agent_may_choose_another_batch_for_each_lease() -> None:
    options = EngineOptions(restart_delay_s=0)
    jobs = [JobSpec("a", 0, 1, duration_s=10), JobSpec("b", 0, 1, duration_s=5)]
    records = run(Both(), jobs, cluster=Cluster.uniform(1, 2), options=options)
    assert {job.job_id: job.end_time_s for job in records.jobs} == {"a": 10, "b": 5}
    assert [(one.start_s, one.local_bsz) for one in records.allocations if one.job_id == "a"] == [
        (0, 1), (3, 2), (6, 3), (9, 4),
    ]  # fmt: skip
    assert [decision.time_s for decision in records.decisions] == [0, 3, 6, 9]


def reached(steps, *, tick_s=1, until_s=1000):
    """Return the seconds at which the threshold is reached, given what happens to a job at some seconds.

    A number is a threshold that is set, ("gets", n) gives GPUs to the job, "stops" takes them and "ends" completes it.
    """
    clock, found = Clock(tick_s), []
    watches = Watches(SimpleNamespace(clock=clock), lambda job: found.append(clock.now_s))
    job = SimpleNamespace(request=SimpleNamespace(id="a"), allocation=(), gpus=0, attained_gpu=0.0, since=0.0)

    def settle():
        job.attained_gpu += job.gpus * (clock.now - job.since)
        job.since = clock.now

    def happen(what):
        settle()
        if isinstance(what, int | float):
            watches.watch(job, what)
        elif isinstance(what, tuple):
            job.gpus, job.allocation = what[1], ((0, what[1]),)
            watches.placed(job)
        else:
            job.gpus, job.allocation = 0, ()
            watches.released(job)
            if what == "ends":
                watches.completed(job)

    for second, what in steps:
        clock.at(clock.ticks(second), Phase.PROGRESS, lambda due, what=what: happen(what))
    clock.at(clock.ticks(until_s), Phase.PROGRESS, lambda due: setattr(clock, "stopped", True))
    clock.advance()
    return found


@pytest.mark.parametrize(
    ("steps", "seconds"),
    [
        ([(0, 12), (5, ("gets", 2))], [11]),
        ([(5, ("gets", 2)), (7, 12)], [11]),  # 4 GPU-s by then
        ([(0, 12), (5, ("gets", 2)), (8, "stops"), (20, ("gets", 3))], [22]),
        ([(0, 12), (5, ("gets", 5))], [8]),  # the first whole second at which it has them
        ([(0, 12), (5, ("gets", 2)), (6, 4)], [7]),  # another threshold in its place
        ([(0, 12), (5, ("gets", 2)), (6, 40)], [25]),
        ([(0, 12), (5, ("gets", 2)), (12, "stops"), (20, ("gets", 2))], [11]),  # once
        ([(0, 12), (5, ("gets", 2)), (12, 20), (13, "stops"), (20, ("gets", 2))], [11, 22]),
        ([(0, 12), (5, ("gets", 2)), (8, "ends"), (20, ("gets", 2))], []),
        ([(0, 12), (5, ("gets", 0))], []),  # a job that takes cores alone attains none
        ([(5, ("gets", 2))], []),
    ],
)
def test_a_threshold_is_reached_when_that_much_service_is_attained(steps, seconds):
    assert reached(steps) == seconds


@pytest.mark.parametrize(("tick_s", "second"), [(1, 8), (0.5, 7.5), (0, 5 + 12 / 5)])
def test_a_threshold_is_reached_at_the_next_tick_or_just_then(tick_s, second):
    assert reached([(0, 12), (5, ("gets", 5))], tick_s=tick_s) == [second]


def limited_ends(jobs: list[JobSpec], *, kill: bool, restart_delay_s: float = 0) -> dict[str, tuple[float, str]]:
    options = EngineOptions(restart_delay_s=restart_delay_s, kill_at_time_limit=kill)
    records = run(Fifo(), jobs, cluster=Cluster.uniform(1, 4), options=options)
    return {record.job_id: (record.end_time_s, record.status) for record in records.jobs}


JOBS = [
    JobSpec("over", 0, 4, duration_s=100, status="Pass", time_limit_s=60),
    JobSpec("exact", 0, 4, duration_s=50, status="Pass", time_limit_s=50),
    JobSpec("free", 0, 4, duration_s=70, status="Pass"),
]


def test_a_job_over_its_limit_ends_there_and_the_next_starts() -> None:
    found = limited_ends(JOBS, kill=True)
    assert found == {"over": (60, "TimeLimit"), "exact": (110, "Pass"), "free": (180, "Pass")}


def test_nobody_is_killed_unless_asked_for() -> None:
    assert limited_ends(JOBS, kill=False) == {"over": (100, "Pass"), "exact": (150, "Pass"), "free": (220, "Pass")}


@pytest.mark.parametrize(("limit", "status"), [(80, "Pass"), (79, "TimeLimit")])
def test_starting_counts_against_the_limit(limit: int, status: str) -> None:
    job = JobSpec("job", 0, 4, duration_s=50, status="Pass", time_limit_s=limit)
    assert limited_ends([job], kill=True, restart_delay_s=30) == {"job": (limit, status)}


def test_estimates_are_spread_as_asked_for_and_never_too_short() -> None:
    jobs = [JobSpec(f"j{i}", 0, 1, duration_s=1000) for i in range(2000)]
    uniform = [job.time_limit_s or 0 for job in with_estimates(jobs, "uniform", 3.0, np.random.default_rng(1))]
    assert min(uniform) >= 1000
    assert max(uniform) <= 4000
    assert np.mean(uniform) == pytest.approx(2500, rel=0.03)
    rounded = {job.time_limit_s for job in with_estimates(jobs, "rounded", 3.0, np.random.default_rng(1))}
    assert rounded == {1200, 1800, 3600, 7200}
    assert {job.time_limit_s for job in with_estimates(jobs, "exact", 3.0, np.random.default_rng(1))} == {1000}


def test_a_limit_in_the_log_stays() -> None:
    given = JobSpec("given", 0, 1, duration_s=1000, time_limit_s=500)
    assert with_estimates([given], "rounded", 3.0, np.random.default_rng(1)) == [given]
    assert popular(8 * 86400) == 2 * 7 * 86400
