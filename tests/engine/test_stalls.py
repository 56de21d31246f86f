"""A run in which things happen for ever and no job comes nearer to its end is given up; a slow one is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
from simsched_policies.queues.by_key import Fifo

from simsched.engine import stalls
from simsched.engine.errors import StalledError
from simsched.engine.options import EngineOptions, FailureOptions
from simsched.engine.records import MemoryRecorder
from simsched.engine.simulation import simulate
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
