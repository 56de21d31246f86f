"""A job's way through engine and policy costs a bounded number of function calls, counted and not timed."""

import os

import pytest

from benchmarks.calls import BARS, calls_per_job, jobs_of

#: The calls of a job among 2,000; those of the benchmark are among 20,000.
MOST = {"FIFO": 105, "EASY": 137, "SRTF": 117, "Tiresias": 703, "LAS": 117}


@pytest.mark.parametrize("name", BARS)
def test_a_job_costs_at_most_so_many_calls(name, monkeypatch):
    monkeypatch.setitem(os.environ, "SIMSCHED_CHECK_INVARIANTS", "0")
    assert calls_per_job(BARS[name][0], jobs_of(2000)) <= MOST[name]
