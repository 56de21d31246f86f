"""Tiresias and its relatives, on cases worked by hand."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from simsched_policies.production.yarn_cs import YarnCs
from simsched_policies.queues.best_effort import BestEffort
from simsched_policies.queues.by_key import Fifo, Las, Sjf, SmallestFirst, Srsf, Srtf
from simsched_policies.queues.gittins import Gittins
from simsched_policies.queues.time_slicing import TimeSlicing
from simsched_policies.queues.tiresias import Tiresias
from simsched_policies.queues.tiresias_g import TiresiasG

from simsched.applications.catalogue import ApplicationCatalogue
from simsched.applications.published import shipped_models
from simsched.engine.options import EngineOptions
from simsched.errors import InputError
from simsched.model.cluster import Cluster
from simsched.model.job import JobSpec
from simsched.policy import Policy
from simsched.testing import check_policy
from simsched.testing.builders import application_of, random_jobs, run
from simsched.workload.recipes import tiresias_testbed as testbed
from simsched.workload.recipes.tiresias_testbed import JOBS_BY_GPUS, MODELS
from simsched.workload.source import WorkloadOptions, make_workload

FREE = EngineOptions(restart_delay_s=0)
ONE_GPU, TWO_GPUS, FOUR_GPUS = (Cluster.uniform(1, gpus) for gpus in (1, 2, 4))


def fixed(job_id: str, submit_s: int, gpus: int, duration_s: int, tenant: str = "") -> JobSpec:
    return JobSpec(job_id, submit_s, gpus, duration_s=duration_s, tenant=tenant)


def ends(policy: Policy, jobs: list[JobSpec], cluster: Cluster) -> dict[str, int]:
    return {job.job_id: job.end_time_s for job in run(policy, jobs, cluster=cluster, options=FREE).jobs}


def event_driven(*limits_gpu_s: int, **params) -> Tiresias:
    return Tiresias(queue_thresholds_gpu_s=limits_gpu_s, interval_s=None, **params)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Srsf(), [2, 10, 16]),  # mean 9.3
        (TiresiasG(queue_thresholds_gpu_s=[4], history_gpu_s=[4, 8, 12]), [2, 12, 16]),  # mean 10
        (event_driven(4), [2, 12, 16]),
        (Las(quantum_s=1), [5, 14, 16]),  # mean 11.7
        (event_driven(*range(1, 12)), [5, 14, 16]),  # a threshold at every quantum
        (Gittins(quantum_s=1, history_gpu_s=[4, 8, 12]), [2, 10, 16]),  # the best quantum preempts nobody
    ],
)
def test_the_worked_example_of_the_paper(policy: Policy, expected: list[int]) -> None:
    found = ends(policy, make_workload(WorkloadOptions(recipe="tiresias-example"), 1), TWO_GPUS)
    assert [found[f"J{i}"] for i in (1, 2, 3)] == expected


def test_demotion_comes_at_the_very_second_of_the_crossing() -> None:
    # a has had 4 x 25 = 100 GPU-seconds at 25, and b has waited in the first queue.
    jobs = [fixed("a", 0, 4, 60), fixed("b", 3, 4, 10)]
    assert ends(event_driven(100), jobs, FOUR_GPUS) == {"b": 35, "a": 70}


def test_jobs_of_one_queue_do_not_preempt_each_other_and_small_ones_fill_the_gaps() -> None:
    jobs = [fixed("a", 0, 3, 50), fixed("b", 1, 4, 10), fixed("c", 2, 1, 20)]
    assert ends(event_driven(10_000), jobs, FOUR_GPUS) == {"c": 22, "a": 50, "b": 60}


def test_within_a_queue_those_that_have_run_come_first_in_the_order_of_their_start() -> None:
    # a and b are demoted at 20 and 40 in favour of the first queue; the second is in the order of their starts.
    jobs = [fixed("a", 0, 1, 50), fixed("b", 1, 1, 50), fixed("c", 2, 1, 15)]
    assert ends(event_driven(20), jobs, ONE_GPU) == {"c": 55, "a": 85, "b": 115}


@pytest.mark.parametrize("seed", range(5))
def test_one_queue_is_first_in_first_out_with_skipping(seed: int) -> None:
    jobs = random_jobs(np.random.default_rng(seed), 60, most_gpus=4, application="fixed-duration")
    cluster = Cluster.uniform(2, 4)
    assert ends(event_driven(), jobs, cluster) == ends(Fifo(backfill=True), jobs, cluster)


@pytest.mark.parametrize("seed", range(3))
def test_thresholds_at_every_quantum_tend_to_plain_least_attained_service(seed: int) -> None:
    jobs = random_jobs(np.random.default_rng(seed), 40, most_gpus=1, application="fixed-duration")
    plain = list(ends(Las(quantum_s=5), jobs, TWO_GPUS).values())
    queues = list(ends(event_driven(*range(5, 600, 5)), jobs, TWO_GPUS).values())
    assert np.mean(queues) == pytest.approx(np.mean(plain), rel=0.01)


def adversary() -> list[JobSpec]:
    """A long job, and short ones that want the only GPU all the time."""
    return [fixed("long", 0, 1, 400), *(fixed(f"s{i}", 50 + 25 * i, 1, 25) for i in range(100))]


def waits_once_run(policy: Policy) -> list[tuple[int, int]]:
    """List, for each wait of the long job after its first start, how long it was and how long it had run before."""
    records = run(policy, adversary(), cluster=ONE_GPU, options=FREE)
    spans = [(one.start_s, one.end_s) for one in records.allocations if one.job_id == "long"]
    return [(after[0] - before[1], before[1] - before[0]) for before, after in pairwise(spans)]


def test_without_promotion_the_long_job_starves() -> None:
    assert max(wait for wait, _ in waits_once_run(event_driven(30))) == 100 * 25


@pytest.mark.parametrize("knob", [0.5, 1, 4])
def test_with_promotion_nobody_waits_longer_than_the_knob_allows_once_it_has_run(knob: float) -> None:
    waits = waits_once_run(event_driven(30, promote_knob=knob))
    assert len(waits) > 2
    for wait, ran in waits:
        assert wait <= np.ceil(knob * ran)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Tiresias(queue_thresholds_gpu_s=[5, 5]),
        lambda: Tiresias(queue_thresholds_gpu_s=[0]),
        lambda: Tiresias(promote_knob=0),
        lambda: Tiresias(skew_limit=1.5),
        lambda: Las(quantum_s=0),
        lambda: YarnCs(capacities={"a": 0.7, "b": 0.4}),
        lambda: TiresiasG(history_gpu_s=[1], history_file="x"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(make) -> None:
    with pytest.raises(ValueError, match=r"must be|not both"):
        make()


def test_tiresias_g_prefers_what_the_distribution_says_is_nearly_done() -> None:
    # Jobs of 10 or 100 GPU-seconds. Once a has had 10, it is a long one, and b goes first.
    jobs = [fixed("a", 0, 1, 100), fixed("b", 5, 1, 10), fixed("c", 11, 1, 10)]
    limits = {"queue_thresholds_gpu_s": [10, 1000], "history_gpu_s": [10] * 9 + [100]}
    assert ends(TiresiasG(**limits), jobs, ONE_GPU) == {"b": 20, "c": 30, "a": 120}


def test_yarn_blocks_behind_the_head_of_a_queue() -> None:
    jobs = [fixed("a", 0, 3, 100), fixed("b", 1, 2, 10), fixed("c", 2, 1, 10)]
    assert ends(YarnCs(), jobs, FOUR_GPUS) == {"a": 100, "b": 110, "c": 110}
    assert ends(Fifo(backfill=True), jobs, FOUR_GPUS)["c"] == 12


def test_yarn_blocks_only_the_queue_of_the_tenant() -> None:
    jobs = [fixed("a", 0, 3, 100, "x"), fixed("b", 1, 2, 10, "x"), fixed("c", 2, 1, 10, "y")]
    shares = {"x": 0.5, "y": 0.5}
    assert ends(YarnCs(capacities=shares), jobs, FOUR_GPUS) == {"c": 12, "a": 100, "b": 110}
    strict = [fixed("a", 0, 2, 100, "x"), fixed("b", 1, 1, 10, "x"), fixed("c", 2, 1, 10, "y")]
    assert ends(YarnCs(capacities=shares, elastic=False), strict, FOUR_GPUS) == {"c": 12, "a": 100, "b": 110}
    assert ends(YarnCs(capacities=shares), strict, FOUR_GPUS)["b"] == 11


@pytest.mark.parametrize("shares", [{"x": 0.9}, {"x": 0.9, "y": 0.1}, {"x": 0.7, "z": 0.2}])
def test_a_rigid_share_is_not_a_gpu_short_by_rounding(shares: dict[str, float]) -> None:
    # 1 - 0.9 is less than 0.1, and less still of 160 GPUs than 16.
    jobs = [JobSpec("a", 0, 144 if shares["x"] == 0.9 else 112, duration_s=20, tenant="x")]
    jobs.append(JobSpec("b", 1, 16, duration_s=10, tenant="y"))
    found = ends(YarnCs(capacities=shares, elastic=False), jobs, Cluster.uniform(40, 4))
    assert found == {"b": 11, "a": 20}


def test_a_job_larger_than_its_rigid_share_is_refused_rather_than_kept_waiting() -> None:
    policy = YarnCs(capacities={"x": 0.25}, elastic=False)
    with pytest.raises(InputError, match="asks for 2 GPUs, but the share of tenant 'x' is 1"):
        ends(policy, [JobSpec("a", 0, 2, duration_s=5, tenant="x")], FOUR_GPUS)


def test_yarn_starts_the_queue_that_is_furthest_below_its_share() -> None:
    # From 10 on two GPUs are free; x uses 1 of its quarter, y 1 of its three quarters.
    running = [fixed("a", 0, 1, 100, "x"), fixed("e", 0, 1, 100, "y"), fixed("f", 0, 2, 10, "x")]
    jobs = [*running, fixed("b", 1, 2, 10, "x"), fixed("c", 2, 2, 10, "y")]
    found = ends(YarnCs(capacities={"x": 0.25, "y": 0.75}), jobs, FOUR_GPUS)
    assert (found["c"], found["b"]) == (20, 30)


def test_yarn_refuses_tenants_without_a_share() -> None:
    with pytest.raises(InputError, match="tenant 'z' has no share"):
        run(YarnCs(capacities={"x": 1.0}), [fixed("a", 0, 1, 1, "z")])


def test_yarn_waits_for_a_whole_node_and_best_effort_does_not() -> None:
    jobs = [fixed("a", 0, 3, 100), fixed("b", 0, 3, 50), fixed("c", 1, 2, 10)]
    cluster = Cluster.uniform(2, 4)
    assert ends(YarnCs(), jobs, cluster)["c"] == 60
    assert ends(BestEffort(), jobs, cluster)["c"] == 11


def test_oracles_and_sizes_order_as_their_names_say() -> None:
    jobs = [fixed("a", 0, 1, 30), fixed("b", 1, 1, 20), fixed("c", 2, 1, 5)]
    assert ends(Sjf(), jobs, ONE_GPU) == {"a": 30, "c": 35, "b": 55}
    assert ends(Srtf(), jobs, ONE_GPU) == {"c": 7, "b": 26, "a": 55}
    wide = [fixed("a", 0, 4, 10), fixed("b", 1, 1, 20)]
    assert ends(Srtf(), wide, FOUR_GPUS) == {"a": 10, "b": 30}
    assert ends(Srsf(), wide, FOUR_GPUS) == {"b": 21, "a": 30}  # 36 GPU-seconds left against 20
    assert ends(SmallestFirst(), wide, FOUR_GPUS) == {"b": 21, "a": 30}
    assert ends(SmallestFirst(preempt=False), wide, FOUR_GPUS) == {"a": 10, "b": 30}


def test_time_slices_go_round() -> None:
    jobs = [fixed("a", 0, 1, 20), fixed("b", 0, 1, 20), fixed("c", 0, 1, 5)]
    # a 0-10, b 10-20, c 20-25, a 25-30 (the slice ends at 30), b 30-40, a 40-45.
    assert ends(TimeSlicing(quantum_s=10), jobs, ONE_GPU) == {"c": 25, "b": 40, "a": 45}


@pytest.mark.parametrize("policy", [TimeSlicing(quantum_s=30), Las(quantum_s=30), Gittins(quantum_s=30)])
def test_a_quantum_no_longer_than_a_restart_is_refused(policy: Policy) -> None:
    with pytest.raises(InputError, match="no job would make progress; give a quantum_s above"):
        run(policy, [fixed("a", 0, 1, 100), fixed("b", 0, 1, 100)], cluster=ONE_GPU)


CATALOGUE = ApplicationCatalogue.load()


def model_job(job_id: str, submit_s: int, gpus: int, duration_s: int, model: str) -> JobSpec:
    return JobSpec(job_id, submit_s, gpus, model, duration_s=duration_s)


def test_the_models_of_table_6_and_their_skew() -> None:
    models = shipped_models()
    assert tuple(models) == MODELS
    percent = {"vgg19": 71.5, "vgg16": 74.3, "vgg11": 77.3, "alexnet": 61.0, "resnet152": 3.9, "googlenet": 14.6}
    for name, expected in percent.items():
        assert 100 * models[name].skew == pytest.approx(expected, abs=0.06)
    assert {name for name, model in models.items() if model.skew > 0.4} == {"vgg19", "vgg16", "vgg11", "alexnet"}


def test_spreading_slows_down_models_that_love_consolidation() -> None:
    vgg, resnet = shipped_models()["vgg19"], shipped_models()["resnet50"]
    assert vgg.slow_down((4,)) == vgg.slow_down((4, 4)) == 1
    assert vgg.slow_down((1, 1, 1, 1)) == pytest.approx(1.67)
    assert vgg.slow_down((2, 2)) == pytest.approx(1 + 0.67 / 3)  # one node too many of three possible
    assert resnet.slow_down((1, 1, 1, 1)) == 1


def test_a_spread_job_takes_longer_and_the_first_start_costs_nothing() -> None:
    jobs = [fixed("a", 0, 3, 500), fixed("b", 0, 3, 500), model_job("c", 0, 2, 100, "vgg19")]
    records = run(Fifo(), jobs, cluster=Cluster.uniform(2, 4), applications=CATALOGUE, options=FREE)
    assert {job.job_id: job.end_time_s for job in records.jobs}["c"] == 167


def test_each_preemption_costs_checkpoint_and_resumption_of_the_model() -> None:
    jobs = [model_job("a", 0, 1, 100, "resnet152"), fixed("b", 10, 1, 20)]
    job = run(Srtf(), jobs, cluster=ONE_GPU, applications=CATALOGUE).jobs[1]
    # b has a delay of 30 s itself. a: 10 s of work, then 26.3 + 65 s to come back, then 90 s of work.
    assert (job.job_id, job.restarts, job.restart_s) == ("a", 1, 91)
    assert job.end_time_s == 10 + 50 + 91 + 90


def test_skewed_models_wait_for_a_whole_node_and_the_others_fill_fragments() -> None:
    cluster = Cluster.uniform(3, 4)
    base = [model_job(job_id, 0, 3, seconds, "vgg19") for job_id, seconds in (("a", 100), ("b", 100), ("c", 50))]
    tiresias = {"queue_thresholds_gpu_s": [100_000], "interval_s": None}
    for model, start_s in (("vgg16", 50), ("resnet50", 1)):
        jobs = [*base, model_job("d", 1, 2, 10, model)]
        policy = Tiresias(placement="skew", **tiresias)
        records = run(policy, jobs, cluster=cluster, applications=CATALOGUE, options=FREE)
        found = {job.job_id: job for job in records.jobs}
        assert found["d"].start_time_s == start_s
        assert all(found[job_id].restarts == 0 for job_id in "abc")


def test_a_consolidated_job_preempts_just_the_jobs_on_the_nodes_that_it_takes() -> None:
    # All run in the second queue when d comes; the last started is on node 2, but only a whole node will do.
    cluster = Cluster.uniform(2, 4)
    jobs = [fixed("a", 0, 2, 300), fixed("b", 1, 3, 300), fixed("c", 2, 1, 300), model_job("d", 200, 4, 10, "vgg16")]
    policy = Tiresias(queue_thresholds_gpu_s=[50], interval_s=None, placement="skew")
    records = run(policy, jobs, cluster=cluster, applications=CATALOGUE, options=FREE)
    found = {job.job_id: job for job in records.jobs}
    assert found["d"].start_time_s == 200
    (interval,) = [one for one in records.allocations if one.job_id == "d"]
    assert interval.nodes == 1
    assert sum(found[job_id].restarts for job_id in "abc") <= 2


def test_the_testbed_mix_is_the_published_one() -> None:
    jobs = testbed.testbed_jobs(1.0, np.random.default_rng(5))
    count = {gpus: sum(job.num_gpus == gpus for job in jobs) for gpus, _ in JOBS_BY_GPUS}
    assert count == {1: 240, 2: 40, 4: 80, 8: 90, 16: 25, 32: 5}
    assert all(sum(job.application == model for job in jobs) == 48 for model in MODELS)
    assert all(120 <= job.duration_s <= 7200 for job in jobs)
    share = {name: sum(job.tenant.startswith(name) for job in jobs) / 4.8 for name in "1234"}
    assert share == pytest.approx({"1": 63.5, "2": 12.5, "3": 16.5, "4": 7.5}, abs=1.0)
    assert all((job.num_gpus > 4) == (job.tenant[0] in "34") for job in jobs)
    assert all((job.duration_s >= 800) == (job.tenant[0] in "24") for job in jobs)
    means = [testbed.testbed_jobs(1.0, np.random.default_rng(seed))[-1].submit_time_s / 479 for seed in range(40)]
    assert np.mean(means) == pytest.approx(30, rel=0.03)


def test_trace_jobs_can_be_given_models_that_a_catalogue_knows() -> None:
    options = WorkloadOptions(recipe="replay", jobs=200, models="tiresias")
    jobs = make_workload(options, 3)
    assert jobs == make_workload(options, 3)
    assert jobs != make_workload(options, 4)
    assert {job.application for job in jobs} == set(MODELS)
    plain = make_workload(WorkloadOptions(recipe="replay", jobs=200), 3)
    assert [job.duration_s for job in jobs] == [job.duration_s for job in plain]
    assert application_of(CATALOGUE, "vgg19", 10).tensor_skew == pytest.approx(0.715, abs=0.001)
    with pytest.raises(InputError, match="cannot be combined with 'assign'"):
        make_workload(WorkloadOptions(recipe="replay", models="tiresias", assign=True), 1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: event_driven(400, 2000, placement="consolidated", promote_knob=1),
        lambda: event_driven(500, placement="fragments"),
        lambda: TiresiasG(queue_thresholds_gpu_s=[400, 2000], placement="consolidated", promote_knob=2),
        lambda: Tiresias(queue_thresholds_gpu_s=[600], promote_knob=0.5, placement="consolidated"),
        lambda: Srtf(placement="consolidated"),
        lambda: YarnCs(capacities={"": 0.6, "b": 0.4}, elastic=True, placement="any"),
        lambda: Fifo(backfill=True, placement="consolidated"),
    ],
)
def test_variants_conform_too(make: Callable[[], Policy]) -> None:
    assert check_policy(make, seeds=1) == []
