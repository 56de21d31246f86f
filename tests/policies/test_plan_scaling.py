"""Policies that choose numbers of GPUs, on jobs as fast as their best plan on each: by hand."""

import pytest
from simsched_policies.adaptive.sia import Sia
from simsched_policies.deadlines.elasticflow import ElasticFlow

from simsched.engine.options import EngineOptions
from simsched.errors import InputError
from simsched.model import Cluster, JobSpec
from simsched.model.plans import Plan, PlannedJob, TabledModel
from simsched.policy import registry
from simsched.testing.builders import run
from simsched.toolkit.deadlines import DeadlineJob, satisfactory_share, share_out


def measured(name, seconds, tensor=1):
    """A model whose step takes so many seconds on each number of GPUs, and fits no fewer."""
    plans = {gpus: Plan(tensor, data=gpus // tensor) for gpus in seconds}
    return TabledModel(name, "t4", {(plans[gpus], (gpus,)): found for gpus, found in seconds.items()})


#: Two stages at 3 s on two GPUs and half of that on four; one stage is faster on both.
STAGED = {(Plan(pipeline=2, data=d), (2 * d,)): 3.0 / d for d in (1, 2)}
ONE_STAGE = {(Plan(data=gpus), (gpus,)): 2.0 / gpus for gpus in (2, 4)}
#: Of `pairs` 100 steps take 400, 200 and 160 s; a replica of `threes` takes three GPUs.
MODELS = {
    "pairs": measured("pairs", {2: 4.0, 4: 2.0, 8: 1.6}),
    "threes": measured("threes", {3: 4.0, 6: 2.0}, 3),
    "staged": TabledModel("staged", "t4", STAGED | ONE_STAGE),
}


class Source:
    def for_job(self, request, truth):
        return PlannedJob(MODELS[request.application], 100)


def job(name, application="pairs", at=0, gpus=2, **more):
    return JobSpec(name, at, gpus, application, **more)


def outcome(policy, jobs, gpus):
    return run(
        policy, jobs, cluster=Cluster.uniform(1, gpus), applications=Source(), options=EngineOptions(restart_delay_s=0)
    )


def held(recorder, at_s=61):
    """Return the GPUs of each job after the first round, which is at 60 s."""
    return {one.job_id: one.gpus for one in recorder.allocations if one.start_s <= at_s < one.end_s}


def test_elasticflow_admits_by_the_best_plan_on_each_share():
    """In the four slots left two GPUs do 60 steps, four 120: eight have two jobs in time, and the third is declined.

    At 240 s two GPUs do the last 10 steps of each in time, until 280 s. The other four are the third's, for 30 steps,
    and from 300 s on all eight, on which 70 take 112 s.
    """
    recorder = outcome(ElasticFlow(rounding_s=0), [job(name, deadline_s=300.0) for name in "abc"], 8)
    assert held(recorder) == {"a": 4, "b": 4}
    assert {one.job_id: (one.end_time_s, one.declined) for one in recorder.jobs} == {
        "a": (280, False),
        "b": (280, False),
        "c": (412, True),
    }


def test_elasticflow_gives_no_job_fewer_gpus_than_a_plan_fits():
    """Five GPUs: two jobs of two each, and the odd one stays free, as no plan takes one or three of them."""
    recorder = outcome(ElasticFlow(), [job(name) for name in "abc"], 5)
    assert held(recorder) == {"a": 2, "b": 2}
    assert len(recorder.jobs) == 3


def deadline_job(name, work, slots, least):
    return DeadlineJob(name, work, slots, 8, lambda gpus: float(gpus), least=least)


def test_shares_begin_at_the_least_that_a_job_runs_on():
    """Two GPUs do not do 7 without the slot in which only one is free; four do in two slots."""
    free = [1, 4, 4, 4]
    assert satisfactory_share(deadline_job("", 7, 4, 1), free).tolist() == [1, 2, 2, 2]
    assert satisfactory_share(deadline_job("", 7, 4, 2), free).tolist() == [0, 0, 4, 4]
    large, small = deadline_job("large", 99, 0, 4), deadline_job("small", 99, 0, 1)
    assert share_out([large, small], 6) == {"large": 4, "small": 2}
    assert share_out([large, small], 3) == {"large": 0, "small": 2}


def test_sia_scales_by_whole_replicas():
    """Rates 0.25, 0.5 and 0.625 on two, four and eight GPUs: alone all eight, two jobs four each, three 4 + 2 + 2."""
    assert held(outcome(Sia(), [job("a")], 8)) == {"a": 8}
    assert held(outcome(Sia(), [job("a"), job("b")], 8)) == {"a": 4, "b": 4}
    assert sorted(held(outcome(Sia(), [job("a"), job("b"), job("c")], 8)).values()) == [2, 2, 4]


def test_a_replica_of_three_gpus_is_never_given_four():
    assert held(outcome(Sia(), [job("a", "threes"), job("b", "threes")], 7)) == {"a": 3, "b": 3}
    assert held(outcome(Sia(), [job("a", "threes")], 7)) == {"a": 6}


def test_sia_keeps_the_stages_asked_for():
    recorder = outcome(Sia(), [job("a", "staged", plan=Plan(pipeline=2))], 4)
    assert [one.plan for one in recorder.allocations] == ["t1 p2 d2"]
    assert [one.plan for one in outcome(Sia(), [job("a", "staged")], 4).allocations] == ["t1 p1 d4"]


@pytest.mark.parametrize("name", ["optimus", "or-elastic"])
def test_policies_that_need_batch_sizes_say_that_jobs_have_plans(name):
    with pytest.raises(InputError, match="trains by plans at a fixed batch"):
        outcome(registry.load(name)(), [job("a")], 8)
