"""A run in which things happen for ever and no job comes nearer to its end is given up; a slow one is not."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
from simsched_policies.queues.by_key import Fifo

from simsched.engine import stalls
from simsched.engine.errors import StalledError, StuckError
from simsched.engine.options import EngineOptions, FailureOptions
from simsched.engine.records import MemoryRecorder, _Units
from simsched.engine.simulation import simulate
from simsched.engine.stalls import StallDetector
from simsched.model.cluster import Cluster
from simsched.policy import Decision, Policy, Stop, Triggers
from simsched.testing.builders import Applications, run, toy_application
from tests.scripted import ONE_GPU, fixed


@dataclass
class OnAndOff(Policy):
    """Gives the first job a GPU for `on_s` seconds, takes it for one second, and so on; `unsaved` loses what it did."""

    name: ClassVar[str] = "on-and-off"
    on_s: int = 1
    unsaved: bool = False

    def decide(self, view, rng):
        first = next(iter(view.jobs.values()))
        if not first.allocation:
            return Decision({first.id: ((0, 1),)}, wake_at_s=view.now_s + self.on_s)
        return Decision({first.id: Stop(saved=not self.unsaved)}, wake_at_s=view.now_s + 1)


@dataclass
class EverySecond(Policy):
    """Decides every second, and begins when `jobs` have arrived."""

    name: ClassVar[str] = "every-second"
    triggers: ClassVar[Triggers] = Triggers(interval_s=1)
    jobs: int = 2

    def decide(self, view, rng):
        if len(view.jobs) < self.jobs and not getattr(self, "begun", False):
            return Decision({})
        self.begun = True
        return Decision(dict.fromkeys(list(view.jobs)[:1], ((0, 1),)))


class Flips(Policy):
    """Wants all nodes at one second and none at the next."""

    name = "flips"

    def decide(self, view, rng):
        self.wanted = not getattr(self, "wanted", False)
        return Decision({}, nodes=(0, 1) if self.wanted else (), wake_at_s=view.now_s + 1)


@pytest.fixture
def after_100(monkeypatch):
    """Give up after 100 happenings, whatever the number of jobs; it is looked at every 50 decisions."""
    monkeypatch.setattr(stalls, "MOST_HAPPENINGS", 100)
    monkeypatch.setattr(stalls, "MOST_FOR_EACH_JOB", 0)


def test_a_job_that_never_gets_beyond_its_restart(after_100):
    # The n-th decision falls on second n - 1, every other one is a start. The first look with more than 100 starts
    # comes after 250 decisions; the one with more than 100 since comes after 500.
    with pytest.raises(StalledError) as caught:
        run(OnAndOff(), [fixed("a")], cluster=ONE_GPU)
    assert str(caught.value) == (
        "policy 'on-and-off' at t=499 s: since t=249 s jobs were started or nodes asked for 125 times, but none of 1 "
        "jobs has progressed, so that the run would not end: a"
    )


def test_a_job_that_progresses_a_second_between_two_restarts_ends(after_100):
    # 31 s with the GPU and one without, of which the last of the 31 s is progress: 300 rounds, but for the last pause.
    (job,) = run(OnAndOff(31), [fixed("a", duration_s=300)], cluster=ONE_GPU).jobs
    assert (job.jct_s, job.restarts) == (300 * 32 - 1, 299)


def test_a_job_that_is_begun_anew_each_time(after_100):
    with pytest.raises(StalledError, match="none of 1 jobs has progressed"):
        run(OnAndOff(50, unsaved=True), [fixed("a")], cluster=ONE_GPU)


def test_nodes_that_are_asked_for_and_let_go(after_100):
    options = EngineOptions(initial_nodes=0, node_start_s=60)
    with pytest.raises(StalledError, match=r"since t=[0-9]+ s jobs were started or nodes asked for"):
        run(Flips(), [fixed("a"), fixed("b")], cluster=Cluster.uniform(2, 1), options=options)


def test_waiting_is_no_happening(after_100):
    # Both are there at second 100,000; the first runs 130 s from then on, the second after it.
    jobs = run(EverySecond(), [fixed("a"), fixed("b", 100_000)], cluster=ONE_GPU).jobs
    assert [job.end_time_s for job in jobs] == [100_130, 100_260]


def under_failures(duration_s, **failures):
    recorder = MemoryRecorder()
    options = FailureOptions(node_mtbf_s=100, repair_median_s=36, **failures)
    simulate(
        Cluster.uniform(2, 4), [fixed("a", duration_s=duration_s), fixed("b", duration_s=duration_s)],
        Applications(toy_application()), Fifo(), EngineOptions(), 1, recorder, check_invariants=True, failures=options,
    )  # fmt: skip
    return recorder.jobs


def test_jobs_that_failures_throw_back_each_time(after_100):
    with pytest.raises(StalledError, match=r"and nodes failed [0-9]+ times, but none of 2 jobs has progressed"):
        under_failures(36_000)


def test_jobs_that_failures_throw_back_to_their_checkpoints_end(after_100):
    jobs = under_failures(14_400, checkpoint_interval_s=10)
    assert {job.job_id for job in jobs} == {"a", "b"}
    assert min(job.restarts for job in jobs) > 100


def job(name, **recovery):
    return SimpleNamespace(
        request=SimpleNamespace(id=name), live_progress=5.0, limit_from=0.0,
        recovery=SimpleNamespace(**recovery) if recovery else None,
    )  # fmt: skip


def detector(*jobs, most_idle=3, pause_s=0.0):
    clock, cluster = SimpleNamespace(now_s=0.0), SimpleNamespace(job_starts=0, node_starts=0, failures=0)
    active = {one.request.id: one for one in jobs}
    ledger = SimpleNamespace(clock=clock, cluster=cluster, active=active)
    return StallDetector("p", ledger, most_idle, pause_s), clock, cluster


def test_a_run_is_looked_at_after_ten_thousand_happenings_and_a_hundred_for_each_job():
    one = job("a")
    stalls, clock, cluster = detector(one, job("b"))
    cluster.job_starts, cluster.node_starts, clock.now_s = 10_000, 201, 7.0
    stalls.look(2, 0)  # the first look
    for more in (10_200, 1):
        cluster.job_starts += more - 1
        cluster.failures += 1
        stalls.look(2, 0)
        cluster.job_starts += 1
        if more > 1:
            stalls.look(2, 0)  # 10,200 since
    with pytest.raises(StalledError, match=r"since t=7.0 s jobs were started or nodes asked for 10201 times and nodes "
                                           r"failed 2 times, but none of 2 jobs has progressed.*: a, b"):  # fmt: skip
        stalls.look(2, 0)
    stalls.look(3, 0)  # another job has come
    cluster.job_starts += 10_201
    one.live_progress = 5.5
    stalls.look(3, 0)
    cluster.job_starts += 10_201
    with pytest.raises(StalledError, match="asked for 10201 times, but none"):
        stalls.look(3, 0)


@pytest.mark.parametrize(
    ("changes", "beyond"),
    [
        ({}, False),
        ({"live_progress": 6.0}, True),
        ({"live_progress": 4.0}, False),
        ({"live_progress": 6.0, "lost": 1.0}, False),  # thrown back since, with nothing more saved
        ({"live_progress": 4.0, "lost": 1.0, "saved": 2.5}, True),
        ({"live_progress": 6.0, "limit_from": 3.0}, False),
    ],
)
def test_a_job_thrown_back_is_beyond_with_more_saved_and_any_other_with_more_done(changes, beyond):
    one = job("a", saved=2.0, lost=0.0)
    stalls, _, cluster = detector(one)
    cluster.job_starts = 20_000
    stalls.look(1, 0)
    for name, value in changes.items():
        setattr(one.recovery if name in ("saved", "lost") else one, name, value)
    cluster.job_starts = 40_000
    if beyond:
        stalls.look(1, 0)
    else:
        with pytest.raises(StalledError, match="asked for 20000 times"):
            stalls.look(1, 0)


@pytest.mark.parametrize(
    ("names", "told"), [("a", "a"), ("abcde", "a, b, c, d, e"), ("abcdefg", "a, b, c, d, e and 2 more")]
)
def test_idle_rounds_are_counted_to_the_limit_and_through_the_pause(names, told):
    stalls, clock, _ = detector(*map(job, names), most_idle=3, pause_s=10.0)
    for second in (5.0, 6.0, 7.0, 14.9):
        clock.now_s = second
        stalls.idle()
    clock.now_s = 15.0
    with pytest.raises(StuckError) as caught:
        stalls.idle()
    assert str(caught.value).endswith(f"but {len(names)} jobs wait: {told}")
    stalls, _, _ = detector(job("a"), most_idle=2)
    stalls.idle()
    with pytest.raises(StuckError):
        stalls.idle()


def test_free_gpus_are_stranded_where_no_choice_of_as_few_units_as_a_job_needs_serves_it():
    rng = np.random.default_rng(8)
    for _ in range(300):
        sizes = rng.integers(1, 5, rng.integers(1, 5)).tolist()
        free = [int(rng.integers(0, size + 1)) for size in sizes]
        wanted = set(rng.integers(1, sum(sizes) + 3, rng.integers(0, 3)).tolist())
        useful = set()
        for gpus in wanted:
            fewest = next((k for k in range(1, len(sizes) + 1) if sum(sorted(sizes)[-k:]) >= gpus), 0)
            for chosen in combinations(range(len(sizes)), fewest) if fewest else ():
                if sum(free[unit] for unit in chosen) >= gpus:
                    useful |= set(chosen)
        units = _Units([(node,) for node in range(len(sizes))], sizes)
        expected = sum(gpus for unit, gpus in enumerate(free) if unit not in useful)
        assert units.stranded(free, wanted) == expected, (sizes, free, wanted)
