"""What a job costs in calls, counted and not timed, and in garbage."""

from __future__ import annotations

import gc
import os

import pytest
from simsched_policies.queues.by_key import Fifo

from benchmarks.calls import BARS, calls_per_job, jobs_of
from simsched.engine.state import JobState
from simsched.model.job import JobSpec
from simsched.testing.builders import run
from simsched.threads import spared_by_the_collector
from tests.scripted import ONE_GPU

#: The calls of a job among 2,000; those of the benchmark are among 20,000.
MOST = {"FIFO": 105, "EASY": 137, "SRTF": 117, "Tiresias": 703, "LAS": 117}


@pytest.mark.parametrize("name", BARS)
def test_a_job_costs_at_most_so_many_calls(name, monkeypatch):
    monkeypatch.setitem(os.environ, "SIMSCHED_CHECK_INVARIANTS", "0")
    assert calls_per_job(BARS[name][0], jobs_of(2000)) <= MOST[name]


class CountingFifo(Fifo):
    """Counts the states of jobs that are in memory and not of active jobs."""

    def decide(self, view, rng):
        in_memory = sum(type(found) is JobState for found in gc.get_objects())
        self.most_left = max(getattr(self, "most_left", 0), in_memory - len(view.jobs))
        return super().decide(view, rng)


def test_jobs_that_have_ended_leave_nothing_to_the_collector():
    policy = CountingFifo()
    gc.collect()
    gc.freeze()  # what other tests have left is not looked through at each decision
    gc.disable()
    try:
        run(policy, [JobSpec(f"j{i:02}", 10 * i, 1, duration_s=25) for i in range(12)], cluster=ONE_GPU)
    finally:
        gc.enable()
        gc.unfreeze()
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
