"""Shockwave's planner and policy on small cases."""

import pytest
from simsched_policies.rounds.shockwave import Outlook, Planner, Shockwave

from simsched.model.cluster import Cluster
from simsched.model.job import JobSpec
from simsched.testing.builders import run
from simsched.toolkit.programs.shockwave import PlanOptions


def outlook(name, *, gpus=1, epochs=10, epoch_s=120.0, done=0.0, batch=0):
    left_s = (epochs - done) * epoch_s
    return Outlook(name, gpus, (epoch_s,) * epochs, done, 0.0, left_s, batch)


def test_idle_gpus_go_to_whoever_fits():
    planner = Planner(PlanOptions())
    assert planner.choose([outlook("a"), outlook("b"), outlook("c", gpus=4)], 2) == ["a", "b"]
    assert planner.choose([], 2) == []
    assert planner.choose([outlook("a")], 0) == []


def test_every_job_gets_rounds_within_a_window():
    planner = Planner(PlanOptions(rounds=6, replan_rounds=6))
    jobs = [outlook(name) for name in "abc"]
    turns = [planner.choose(jobs, 1) for _ in range(6)]
    assert sorted(job for turn in turns for job in turn) == [*"aabbcc"]


def test_the_long_job_is_not_left_for_last():
    """With much weight on the longest remaining time, the job that decides it runs in every round."""
    planner = Planner(PlanOptions(rounds=4, makespan_weight=10.0, most_unfair=100.0))
    jobs = [outlook("short", epochs=2), outlook("long", epochs=40)]
    assert all("long" in planner.choose(jobs, 1) for _ in range(4))


def test_jobs_of_fixed_duration_all_finish():
    jobs = [JobSpec(f"j{i}", 0, 1 + i % 2, duration_s=200 + 50 * i) for i in range(5)]
    records = run(Shockwave(), jobs, cluster=Cluster.uniform(1, 2))
    assert len(records.jobs) == 5


def test_wrong_parameters_are_refused():
    with pytest.raises(ValueError, match="at least 1"):
        Shockwave(rounds=0)
