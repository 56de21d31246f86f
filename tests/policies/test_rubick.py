"""Rubick's rounds by hand: who takes how many GPUs, from whom, and with which plan."""

from types import SimpleNamespace

import pytest

from simsched.engine.options import EngineOptions
from simsched.model import Cluster, JobSpec
from simsched.model.application import Application, Running
from simsched.model.plans import Plan
from simsched.policy import registry
from simsched.testing.builders import run


class Table:
    """Plans of a job whose rate is known for each number of GPUs: always data-parallel."""

    replan_s, global_batch = 10.0, 0

    def __init__(self, name, *rates):
        self.name, self.rates = name, rates

    def rate(self, gpus):
        if gpus > len(self.rates):
            return self.rates[-1]
        if not self.rates[gpus - 1]:
            raise ValueError("too few")
        return self.rates[gpus - 1]

    def best(self, site, batch=0):
        plan = Plan(data=site.gpus, micro_batch=1)
        return SimpleNamespace(plan=plan, parts=SimpleNamespace(total=1 / self.rate(site.gpus)))

    def parts(self, plan, site, batch=0):
        return SimpleNamespace(total=1 / self.rate(plan.gpus))

    def refusal(self, plan, kind, gpus, batch=0):
        return None if plan.gpus <= gpus else "too many"


class Tabled(Application):
    """A job with a table; one unit of progress a second at rate 1."""

    restart_delay_s = 10.0

    def __init__(self, plans):
        self.name, self.plans = plans.name, plans

    def epoch_end(self, epoch):
        return 10_000.0

    def run(self, site, batch, epoch):
        return Running(self.plans.rate(batch.plan.gpus), 1.0, 1.0, None, None)

    def step_time(self, site, local_bsz):
        raise AssertionError("nobody asks a table of plans")

    iterations = step_time


TABLES = {
    one.name: one
    for one in (
        Table("linear", 1, 2, 3, 4, 5, 6, 7, 8),
        Table("flat", 1, 1.005, 1.005, 1.006),
        Table("slow", 1, 1.1, 1.15, 1.17),
        Table("large", 0, 0, 0, 4, 5, 6, 7, 8),
        Table("wide", 0, 0, 0, 0, 0, 0, 1, 2, *[2] * 7, 4, *[4] * 7, 6),
    )
}


class Source:
    """Finds the table of a job."""

    def for_job(self, request, truth):
        return Tabled(TABLES[request.application])


def first_round(cluster, *jobs, at_s=60, **params):
    """Return who holds what right after a round, as GPUs by node."""
    policy = registry.load("rubick")(**params)
    options = EngineOptions(restart_delay_s=0)
    recorder = run(policy, jobs, cluster=cluster, applications=Source(), options=options)
    found = {one.job_id: one.placement for one in recorder.allocations if one.start_s <= at_s < one.end_s}
    return dict(sorted(found.items()))


def job(name, application, gpus, at=0, **more):
    return JobSpec(name, at, gpus, application, **more)


def test_a_job_takes_what_it_can_use_of_a_node():
    assert first_round(Cluster.uniform(1, 8), job("a", "linear", 2)) == {"a": "0:8"}
    assert first_round(Cluster.uniform(1, 8), job("a", "flat", 4)) == {"a": "0:1"}
    assert first_round(Cluster.uniform(1, 8), job("a", "slow", 1)) == {"a": "0:4"}


def test_it_takes_gpus_of_the_job_that_loses_least():
    """Served first (slope 1/2), the linear job has all four; the flat one gains 1 for one that is worth 1/2."""
    jobs = (job("a", "linear", 2), job("b", "flat", 2))
    assert first_round(Cluster.uniform(1, 4), *jobs) == {"a": "0:3", "b": "0:1"}


def test_the_slip_of_the_artifact_leaves_it_waiting():
    jobs = (job("a", "linear", 2), job("b", "flat", 2))
    assert first_round(Cluster.uniform(1, 4), *jobs, shrinks=False) == {"a": "0:4"}


def test_the_falling_order_serves_the_steepest_first():
    jobs = (job("a", "linear", 2), job("b", "flat", 2))
    assert first_round(Cluster.uniform(1, 4), *jobs, shrinks=False, order="falling") == {"a": "0:3", "b": "0:1"}


def test_a_guaranteed_job_gives_nothing_that_it_was_promised():
    jobs = (job("a", "linear", 4, guaranteed=True), job("b", "flat", 1))
    assert first_round(Cluster.uniform(1, 4), *jobs) == {"a": "0:4"}
    jobs = (job("a", "linear", 3, guaranteed=True), job("b", "flat", 1))
    assert first_round(Cluster.uniform(1, 4), *jobs) == {"a": "0:3", "b": "0:1"}


def test_a_guaranteed_job_below_its_promise_takes_whatever_others_lose():
    """On two GPUs the guaranteed job gains 0.1 where the other loses 1/2 of what it asked for, and is owed them."""
    jobs = (job("a", "linear", 2), job("g", "slow", 2, at=61, guaranteed=True))
    assert first_round(Cluster.uniform(1, 4), *jobs, at_s=121) == {"a": "0:2", "g": "0:2"}
    jobs = (job("a", "linear", 2), job("g", "slow", 2, at=61))
    assert first_round(Cluster.uniform(1, 4), *jobs, at_s=121) == {"a": "0:4"}


def test_a_promise_is_the_speed_of_the_plan_asked_for():
    """The plan asked for runs at the rate of two GPUs; the best plan on them is what the job could have had."""
    asked = job("g", "linear", 4, guaranteed=True, plan=Plan(data=2))
    jobs = (asked, job("b", "flat", 1), job("c", "flat", 1))
    assert first_round(Cluster.uniform(1, 4), *jobs) == {"b": "0:1", "c": "0:1", "g": "0:2"}


def test_jobs_below_the_least_gpus_of_their_plans_wait():
    """The large job needs four; the flat one keeps its promise."""
    jobs = (job("a", "flat", 1, guaranteed=True), job("b", "large", 4))
    assert first_round(Cluster.uniform(1, 4), *jobs) == {"a": "0:1"}


def test_jobs_of_several_nodes_get_whole_ones_or_fewer_and_grow():
    assert first_round(Cluster.uniform(2, 8), job("w", "wide", 16)) == {"w": "0:8 1:8"}
    assert first_round(Cluster.uniform(3, 8), job("w", "wide", 16)) == {"w": "0:8 1:8 2:8"}
    jobs = (job("a", "linear", 8, guaranteed=True), job("w", "wide", 16))
    assert first_round(Cluster.uniform(2, 8), *jobs) == {"a": "0:8", "w": "1:8"}


def test_what_is_left_goes_to_the_job_that_gains_most():
    """Two nodes of four: each job has its own, and both grow there."""
    jobs = (job("a", "linear", 2), job("b", "slow", 2))
    assert first_round(Cluster.uniform(2, 4), *jobs) == {"a": "0:4", "b": "1:4"}


def test_a_job_moves_only_where_that_is_worth_its_cost():
    """The slow job leaves the second GPU at once for one that is new, and takes it back when restarts are cheap."""
    jobs = (job("a", "linear", 2), job("b", "flat", 2, at=61))
    early = first_round(Cluster.uniform(1, 4), *jobs, at_s=121)
    late = first_round(Cluster.uniform(1, 4), *jobs, at_s=421)
    assert early == {"a": "0:4"}
    assert late == {"a": "0:3", "b": "0:1"}


@pytest.mark.parametrize("params", [{}, {"shrinks": False}, {"order": "falling"}])
def test_every_job_is_done_whatever_the_mix(params):
    names = ["linear", "flat", "slow", "large", "wide"]
    jobs = [job(f"{i}", names[i % 5], (2, 4, 1, 4, 16)[i % 5], 50 * i, guaranteed=i % 3 == 0) for i in range(20)]
    recorder = run(
        registry.load("rubick")(**params), jobs, cluster=Cluster.uniform(3, 8), applications=Source(),
        options=EngineOptions(restart_delay_s=0),
    )  # fmt: skip
    assert len(recorder.jobs) == 20
    assert max(one.restarts for one in recorder.jobs) <= 8
