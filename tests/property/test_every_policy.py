"""Random workloads under every policy, with every invariant checked as the run goes."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from simsched.engine.options import EngineOptions, FailureOptions
from simsched.engine.records import MemoryRecorder
from simsched.engine.simulation import simulate
from simsched.errors import InputError
from simsched.model.cluster import Cluster, NodeGroup
from simsched.model.job import JobSpec
from simsched.policy import registry
from simsched.testing.builders import Applications, run, toy_application, two_type_application
from tests.property.strategies import clusters, workloads

FEW = settings(max_examples=4, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
RIGID = [name for name in registry.names() if registry.load(name).traits.rigid]
#: Who starts jobs at its own rounds, follows a recording, lets jobs share GPUs that it could spare, profiles them, or
#: wakes nodes.
IN_ROUNDS = ("gavel-", "recorded", "gandiva", "lucid", "ces")
TOY = Applications(toy_application(epochs=2, iterations_per_epoch=200))


def options() -> st.SearchStrategy[EngineOptions]:
    return st.builds(EngineOptions, restart_delay_s=st.sampled_from([0, 1, 30]), interference=st.sampled_from([0, 0.5]))


@pytest.mark.parametrize("name", RIGID)
@FEW
@given(cluster=clusters(), jobs=workloads(), options=options())
def test_jobs_of_fixed_duration_get_their_service(
    name: str, cluster: Cluster, jobs: list[JobSpec], options: EngineOptions
) -> None:
    records = run(registry.load(name)(), jobs, cluster=cluster, options=options)
    assert {job.job_id for job in records.jobs} == {job.id for job in jobs}
    duration = {job.id: job.duration_s for job in jobs}
    for job in records.jobs:
        assert job.held_s - job.restart_s >= duration[job.job_id] - 1
        if not options.interference:
            assert job.held_s - job.restart_s == duration[job.job_id]


@pytest.mark.parametrize("name", registry.names())
@FEW
@given(cluster=clusters(), jobs=workloads(application="toy", most_jobs=6), options=options())
def test_training_jobs_finish_all_their_epochs(
    name: str, cluster: Cluster, jobs: list[JobSpec], options: EngineOptions
) -> None:
    records = run(registry.load(name)(), jobs, cluster=cluster, applications=TOY, options=options)
    assert {job.job_id for job in records.jobs} == {job.id for job in jobs}
    last = {interval.job_id: interval for interval in records.allocations}
    assert {interval.epoch for interval in last.values()} <= {1}
    for interval in records.allocations:
        assert 0 <= interval.efficiency <= 1 + 1e-12
        assert interval.end_s > interval.start_s


@pytest.mark.parametrize("name", [name for name in RIGID if not name.startswith(IN_ROUNDS)])
@FEW
@given(jobs=workloads())
def test_with_unlimited_gpus_nobody_waits(name: str, jobs: list[JobSpec]) -> None:
    policy = registry.load(name)()
    interval_s = 1 if policy.triggers.arrival else policy.triggers.interval_s or 1
    for job in run(policy, jobs, cluster=Cluster.uniform(60, 4)).jobs:
        wait_s = -job.submit_time_s % interval_s or (interval_s if job.submit_time_s == 0 and interval_s > 1 else 0)
        assert job.start_time_s - job.submit_time_s == wait_s
        assert job.restarts == 0


TWICE = settings(max_examples=2, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
CLUSTERS = (
    Cluster.uniform(3, 4),
    Cluster.of(NodeGroup(2, 4, "t4"), NodeGroup(1, 4, "v100")),
)


def failures() -> st.SearchStrategy[FailureOptions]:
    return st.builds(
        FailureOptions,
        node_mtbf_s=st.sampled_from([300, 2000]),
        weibull_shape=st.sampled_from([0.7, 1.0]),
        repair_median_s=st.sampled_from([0, 40]),
        repair_sigma=st.sampled_from([0.0, 1.0]),
        racks=st.sampled_from([(), ((0, 1),)]),
        rack_mtbf_s=st.just(1500),
        checkpoint_interval_s=st.sampled_from([20, 100]),
        checkpoint_cost_s=st.sampled_from([0, 5]),
    )


@pytest.mark.parametrize("name", registry.names())
@TWICE
@given(
    cluster=st.sampled_from(CLUSTERS),
    jobs=workloads(application="toy", most_jobs=3),
    options=failures(),
    sharing=st.sampled_from([1, 2]),
    tick_s=st.sampled_from([1, 0.1, 0.001, 0]),
)
def test_every_job_finishes_whatever_fails(
    name: str, cluster: Cluster, jobs: list[JobSpec], options: FailureOptions, sharing: int, tick_s: float
) -> None:
    recorder = MemoryRecorder()
    engine = EngineOptions(restart_delay_s=10, max_jobs_per_gpu=sharing, tick_s=tick_s)
    applications = Applications(two_type_application())
    try:
        policy = registry.load(name)()
        simulate(
            cluster, jobs, applications, policy, engine, 3, recorder, check_invariants=True, failures=options
        )  # fmt: skip
    except InputError as error:
        pytest.skip(f"not for such jobs: {error}")
    assert {job.job_id for job in recorder.jobs} == {job.id for job in jobs}
    for job in recorder.jobs:
        assert job.lost_s + job.checkpoint_s + job.restart_s <= job.held_s + 1e-6
        assert (job.lost_s > 0) <= (job.failures > 0)
