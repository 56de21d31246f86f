"""Policies that know deadlines, the leases of Chronus, and deadlines that a workload is given, by hand."""

import numpy as np
import pytest
from simsched_policies.deadlines.chronus import Chronus
from simsched_policies.deadlines.edf import Edf
from simsched_policies.deadlines.elasticflow import ElasticFlow

from simsched.engine.options import EngineOptions
from simsched.errors import InputError
from simsched.experiment.inputs import with_deadlines, with_guarantees
from simsched.experiment.spec import WorkloadSpec
from simsched.model.cluster import Cluster
from simsched.model.job import JobSpec
from simsched.testing.builders import Applications, run, toy_application

AT_ONCE = EngineOptions(restart_delay_s=0)


def job(name: str, at_s: int, gpus: int, duration_s: int, deadline_s: float | None = None) -> JobSpec:
    return JobSpec(name, at_s, gpus, duration_s=duration_s, deadline_s=deadline_s)


def outcome(policy, jobs, nodes: int = 1, gpus: int = 2):
    records = run(policy, jobs, cluster=Cluster.uniform(nodes, gpus), options=AT_ONCE)
    return {record.job_id: (record.end_time_s, record.declined) for record in records.jobs}


def test_edf_runs_the_next_deadline_first_and_jobs_without_one_last():
    jobs = [job("none", 0, 2, 100), job("late", 10, 2, 100, 500), job("soon", 20, 2, 100, 120)]
    assert outcome(Edf(), jobs) == {"soon": (120, False), "late": (210, False), "none": (300, False)}
    ends = outcome(Edf(preempts=False), jobs)
    assert ends == {"none": (100, False), "soon": (200, False), "late": (300, False)}


def test_elastic_edf_gives_the_next_deadline_all_gpus_that_make_it_faster():
    # Of a batch of 64 a step takes 0.74, 0.47 and 0.31 s on 1, 2 and 4 GPUs, so `soon` gets all four and `late` waits;
    # one of 16 examples cannot use more than two, so that two such jobs run beside each other.
    def gpus(batch_size: int) -> list[tuple[str, int]]:
        jobs = [
            JobSpec("late", 0, 1, "toy", batch_size, deadline_s=900),
            JobSpec("soon", 0, 1, "toy", batch_size, deadline_s=9),
        ]
        records = run(Edf(elastic=True), jobs, cluster=Cluster.uniform(1, 4), options=AT_ONCE)
        return [(row.job_id, row.gpus) for row in sorted(records.allocations, key=lambda row: row.start_s)]

    assert list(dict.fromkeys(gpus(64))) == [("soon", 4), ("late", 4)]
    assert sorted(dict.fromkeys(gpus(16))) == [("late", 2), ("soon", 2)]
    with pytest.raises(InputError, match="step times"):
        outcome(Edf(elastic=True), [job("fixed", 0, 1, 100, 500)])


def test_chronus_admits_what_can_be_in_time_and_runs_the_rest_on_what_is_left():
    # Leases of 60 s: `a` needs two, the first from its judgement at 30 s on. `b` cannot be in time beside it and is
    # declined; it runs in slots after `a`, and `free` has the least left and goes before `b`.
    policy = Chronus(lease_s=60, slot_s=30)
    jobs = [job("a", 10, 2, 90, 130), job("b", 20, 2, 90, 125), job("free", 25, 2, 30)]
    assert outcome(policy, jobs) == {"a": (120, False), "free": (150, False), "b": (240, True)}


def test_chronus_admits_a_deadline_that_is_just_met_and_declines_one_just_missed():
    for deadline_s, declined in ((110, False), (109, True)):
        ends = outcome(Chronus(lease_s=60, slot_s=30), [job("a", 10, 1, 90, deadline_s)])
        assert ends == {"a": (120, declined)}


def test_chronus_keeps_a_lease_from_preemption_by_shorter_jobs():
    jobs = [job("a", 1, 2, 60, 100), job("short", 31, 2, 5)]
    assert outcome(Chronus(lease_s=120, slot_s=30), jobs)["a"] == (90, False)


def test_chronus_refuses_leases_that_no_slot_ends():
    with pytest.raises(ValueError, match="multiple of slot_s"):
        Chronus(lease_s=100, slot_s=30)


def test_elasticflow_knows_how_much_of_an_epoch_is_left():
    # One epoch of 100 iterations at 0.1 + 0.01 * 16 = 0.26 s each, on one GPU and slots of 10 s, the first from second
    # 10 on. Of the 25 s until the deadline two whole slots are left at second 20, enough for 16 s but not for 26.
    jobs = [JobSpec("a", 0, 1, "toy", 16, deadline_s=45)]
    app = toy_application(epochs=1, max_gpus=1)
    policy = ElasticFlow(slot_s=10)
    options = EngineOptions(restart_delay_s=0)
    records = run(policy, jobs, cluster=Cluster.uniform(1, 4), applications=Applications(app), options=options)
    assert (records.jobs[0].end_time_s, records.jobs[0].declined) == (36, False)


@pytest.mark.parametrize("seed", range(3))
def test_elasticflow_keeps_every_promise_although_restarts_cost_half_a_slot(seed):
    rng = np.random.default_rng(seed)
    app = toy_application(epochs=20)
    jobs = []
    for number in range(30):
        gpus = int(rng.choice([1, 2, 4]))
        deadline_s = float(rng.uniform(1, 4)) * 800 / gpus + 100
        jobs.append(JobSpec(f"j{number}", 30 * number, gpus, "toy", 32, deadline_s=deadline_s))
    records = run(ElasticFlow(), jobs, cluster=Cluster.uniform(2, 4), applications=Applications(app)).jobs
    admitted = [record for record in records if not record.declined]
    assert 5 < len(admitted) < len(jobs)
    assert all(record.end_time_s - record.submit_time_s <= record.deadline_s for record in admitted)
    assert sum(record.restarts for record in admitted) > 5, "it did scale"


def test_elasticflow_declines_what_cannot_be_in_time():
    jobs = [JobSpec(name, 0, 1, "toy", 32, deadline_s=d) for name, d in (("hopeless", 1.0), ("easy", 1e5))]
    records = run(ElasticFlow(), jobs, cluster=Cluster.uniform(1, 4), applications=Applications(toy_application()))
    assert {record.job_id: record.declined for record in records.jobs} == {"hopeless": True, "easy": False}


@pytest.mark.parametrize(("together", "declined"), [(False, {"hopeless"}), (True, {"hopeless", "beside"})])
def test_elasticflow_may_decline_all_that_arrive_in_a_slot_for_one_of_them(together, declined):
    made = (("hopeless", 0, 1.0), ("beside", 0, 1e5), ("later", 300, 1e5))
    jobs = [JobSpec(name, at_s, 1, "toy", 32, deadline_s=deadline_s) for name, at_s, deadline_s in made]
    policy = ElasticFlow(admit_together=together)
    records = run(policy, jobs, cluster=Cluster.uniform(1, 4), applications=Applications(toy_application()))
    assert {record.job_id for record in records.jobs if record.declined} == declined


def test_elasticflow_may_give_gpus_to_who_uses_them_least():
    # On two GPUs a batch of 16 takes 0.1 + 0.08 s and one of 64 0.1 + 0.32 s, on one 0.26 s and 0.74 s: the larger
    # gains more from the third GPU, so it gets it, unless it is to go to whose GPU time grows most.
    def gpus(spare_to) -> dict[str, int]:
        jobs = [JobSpec(name, 0, 1, "toy", batch, deadline_s=1e5) for name, batch in (("small", 16), ("large", 64))]
        policy = ElasticFlow(spare_to=spare_to)
        records = run(policy, jobs, cluster=Cluster.uniform(1, 3), applications=Applications(toy_application()))
        return {row.job_id: row.gpus for row in reversed(records.allocations)}

    assert gpus("most-saved") == {"small": 1, "large": 2}
    assert gpus("most-growth") == {"small": 2, "large": 1}


@pytest.mark.parametrize(("deadline_s", "gpus"), [(1.0, [4]), (None, [2])])
def test_elasticflow_scales_who_is_admitted_before_it_serves_who_was_declined(deadline_s, gpus):
    # `easy` would be in time on one GPU and grows into all four, which `other` takes over if it was declined; if it has
    # no deadline at all it has one GPU from the start, so that `easy` grows to two.
    jobs = [JobSpec("easy", 0, 1, "toy", 64, deadline_s=1e5), JobSpec("other", 0, 1, "toy", 64, deadline_s=deadline_s)]
    records = run(ElasticFlow(), jobs, cluster=Cluster.uniform(1, 4), applications=Applications(toy_application()))
    end_s = {record.job_id: record.end_time_s for record in records.jobs}
    first = {row.job_id: row for row in reversed(records.allocations)}
    assert [row.gpus for row in records.allocations if row.job_id == "easy"][:1] == gpus
    assert (first["other"].start_s >= end_s["easy"]) is (deadline_s is not None)


def test_workloads_get_deadlines_by_the_time_that_jobs_take_alone():
    jobs = [job(str(number), 0, 1, 100 * (number + 1)) for number in range(40)]
    made = with_deadlines(jobs, Applications(), Cluster.uniform(), (0.5, 1.5), 1.0, 7)
    factors = [one.deadline_s / one.duration_s for one in made]
    assert 0.5 <= min(factors) < 0.7 < 1.3 < max(factors) <= 1.5
    half = with_deadlines(jobs, Applications(), Cluster.uniform(), 2.0, 0.5, 7)
    chosen = [one.deadline_s for one in half if one.deadline_s is not None]
    assert 10 < len(chosen) < 30
    assert all(one.deadline_s in (None, 2 * one.duration_s) for one in half)


@pytest.mark.parametrize("factor", [0, -1, (2, 1)])
def test_deadlines_that_are_none_are_refused(factor):
    with pytest.raises(ValueError, match="deadline_factor"):
        WorkloadSpec(deadline_factor=factor)


def test_a_share_of_the_jobs_is_guaranteed():
    jobs = [job(str(number), 0, 1, 100) for number in range(100)]
    few, many = ({one.id for one in with_guarantees(jobs, share, 3) if one.guaranteed} for share in (0.2, 0.6))
    assert few < many
    assert 10 < len(few) < 30 < 50 < len(many) < 70
