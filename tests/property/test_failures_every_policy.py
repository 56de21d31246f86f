"""Random failures on random clusters, of one GPU type and of two, under every policy, with every invariant checked."""

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
from simsched.testing.builders import Applications, two_type_application
from tests.property.strategies import workloads

FEW = settings(max_examples=2, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
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
@FEW
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
