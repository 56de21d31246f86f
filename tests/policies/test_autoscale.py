"""Policies that rent nodes: the utility by hand, the goodput rule, the throughput rule, and their limits."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from simsched_policies.adaptive.or_elastic import OrElastic, Speed, ThroughputAgent, scaling_efficiency
from simsched_policies.adaptive.pollux import Pollux, PolluxAutoscale
from simsched_policies.adaptive.pollux.autoscale import utility
from simsched_policies.adaptive.pollux.search import AllocationProblem

from simsched.engine.options import EngineOptions
from simsched.engine.records import MemoryRecorder
from simsched.errors import InputError
from simsched.model.application import BatchChoice, BatchLimits
from simsched.model.cluster import Cluster
from simsched.model.job import JobSpec
from simsched.model.placement import Site
from simsched.policy import Decision, Policy, View
from simsched.policy.signals import MEASURED_SPEEDS
from simsched.testing.builders import Applications, fresh_view, run, toy_application

CLOUD = Cluster.uniform(4, 4)
ONE_NODE = EngineOptions(restart_delay_s=30, initial_nodes=1, node_start_s=0)


def jobs(count: int = 1, batch: int = 16) -> list[JobSpec]:
    return [JobSpec(f"job-{i}", 0, 1, application="toy", batch_size=batch) for i in range(count)]


def long_run(policy: Policy, count: int = 1, options: EngineOptions = ONE_NODE, epochs: int = 40) -> MemoryRecorder:
    applications = Applications(toy_application(epochs=epochs, iterations_per_epoch=400))
    return run(policy, jobs(count), cluster=CLOUD, applications=applications, options=options)


def nodes(records: MemoryRecorder) -> list[int]:
    return [row.provisioned_nodes for row in records.decisions]


def test_utility_is_speedup_over_one_gpu_per_gpu() -> None:
    # Two jobs on two nodes of two GPUs. The first gains 1.9 on a node of its own, 1.2 spread over two.
    speedup = np.array([[[0, 0.5, 0.95, 0, 0], [0, 0, 0.6, 0, 0]], [[0, 2.0, 3.0, 0, 0], [0, 0, 3.0, 0, 0]]])
    problem = AllocationProblem(
        speedup=speedup,
        max_gpus=np.array([2, 2]),
        node_gpus=np.array([2, 2]),
        current=np.zeros((2, 2), dtype=np.int64),
        restart_factor=np.ones(2),
    )
    assert utility(problem, np.array([[2, 0], [0, 1]])) == pytest.approx((1.9 + 1.0) / 4)
    assert utility(problem, np.array([[1, 1], [0, 0]])) == pytest.approx(1.2 / 4)
    assert utility(problem, np.zeros((2, 2), dtype=np.int64)) == 0


def test_a_job_scales_out_while_goodput_per_gpu_stays_high_and_never_in() -> None:
    rented = nodes(long_run(PolluxAutoscale(low_utility=0, high_utility=0.3, target_utility=0.2, window=1)))
    assert rented[0] == 1
    assert rented == sorted(rented)
    assert rented[-1] > 1


def test_a_job_that_is_worth_little_beyond_one_node_stays_on_it() -> None:
    rule = PolluxAutoscale(low_utility=0, high_utility=0.95, target_utility=0.9, window=1)
    assert set(nodes(long_run(rule))) == {1}


def test_a_band_lets_nodes_go_that_nobody_needs() -> None:
    policy = PolluxAutoscale(low_utility=0.5, high_utility=0.9, window=3)
    options = EngineOptions(restart_delay_s=30)
    rented = nodes(long_run(policy, options=options))
    assert rented[0] == 4
    assert rented[-1] == 1


def test_a_band_rents_nodes_for_a_crowd_and_lets_them_go_after_it() -> None:
    applications = Applications(toy_application(epochs=30), toy_application("long", epochs=500))
    crowd = [*jobs(8), JobSpec("long", 0, 1, application="long", batch_size=16)]
    policy = PolluxAutoscale(low_utility=0.5, high_utility=0.7, window=3)
    rented = nodes(run(policy, crowd, cluster=CLOUD, applications=applications, options=ONE_NODE))
    assert rented[0] == 1
    assert max(rented) > 1
    assert rented[-1] < max(rented)


def test_no_more_nodes_are_asked_for_while_some_are_starting() -> None:
    options = EngineOptions(restart_delay_s=30, initial_nodes=1, node_start_s=150)
    records = long_run(PolluxAutoscale(low_utility=0, high_utility=0.3, target_utility=0.2, window=1), options=options)
    asked = next(i for i, row in enumerate(records.decisions) if row.provisioned_nodes > 1)
    came = next(i for i, row in enumerate(records.decisions) if row.available_gpus > 4)
    assert records.decisions[came].time_s - records.decisions[asked].time_s == 150
    assert len({row.provisioned_nodes for row in records.decisions[asked:came]}) == 1


def test_at_full_size_the_allocation_is_that_of_pollux() -> None:
    options = EngineOptions(restart_delay_s=30)
    scaled = long_run(PolluxAutoscale(low_utility=0, high_utility=1, target_utility=0.5), 3, options, epochs=4)
    assert scaled.jobs == long_run(Pollux(), 3, options, epochs=4).jobs


@pytest.mark.parametrize(
    "params",
    [
        {"low_utility": 0.7, "high_utility": 0.5},
        {"target_utility": 0.9},
        {"high_utility": 1.5, "target_utility": 0.5},
        {"window": 0},
        {"min_nodes": 0},
    ],
)
def test_a_band_that_nothing_could_stay_in_is_refused(params: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        PolluxAutoscale(**params)


def test_scaling_efficiency_of_a_step() -> None:
    speeds = {4: Speed(100, 1), 8: Speed(150, 1)}
    assert scaling_efficiency(speeds, 4, 8) == pytest.approx((50 / 4) / (100 / 4))


def test_the_batch_grows_with_the_workers_to_the_largest() -> None:
    agent = ThroughputAgent(BatchLimits(16, 256, 8, 64), None)
    assert [agent.choose(Site((gpus,), "t4"), 0).total(gpus) for gpus in (1, 2, 4, 8)] == [64, 128, 256, 256]
    assert agent.choose(Site((1,), "t4"), 0) == BatchChoice(32, 1)  # one GPU accumulates


def test_the_speed_on_a_site_is_as_the_job_measured_it() -> None:
    seen: list[dict[Site, Speed]] = []

    class Watching(OrElastic):
        def decide(self, view: View, rng: np.random.Generator) -> Decision:
            seen.extend(dict(job[MEASURED_SPEEDS]) for job in view.jobs.values())
            return super().decide(view, rng)

    long_run(Watching(min_batches=10, threshold=1.0))
    assert seen[0] == {}  # no step taken yet
    assert seen[-1][Site((4,), "t4")][:2] == pytest.approx((256 / 0.79, 0.79))


def test_throughput_alone_scales_out_step_by_step_while_each_adds_enough() -> None:
    records = long_run(OrElastic(min_batches=10, threshold=0.1))
    assert sorted(set(nodes(records))) == [1, 2, 3, 4]
    # 256 examples take 0.1 + 0.64 + 0.05 s on 4 GPUs, and 0.1 + 0.32 + 0.2 s on 8: s = (413 - 324) / 324.
    held = {row.nodes: row.throughput for row in records.allocations if not row.restarting}
    assert held[1] == pytest.approx(256 / 0.79)
    assert held[2] == pytest.approx(256 / 0.62)


def test_a_step_that_adds_too_little_is_taken_back_for_good() -> None:
    rented = nodes(long_run(OrElastic(min_batches=10, threshold=0.3)))  # s = 0.27 for the first step
    assert [rented[0], max(rented), rented[-1]] == [1, 2, 1]
    assert sum(before != after for before, after in pairwise(rented)) == 2


def test_workers_that_nobody_needs_any_more_are_let_go() -> None:
    records = run(
        OrElastic(min_batches=10),
        [*jobs(), JobSpec("later", 100_000, 1, application="toy", batch_size=16)],
        cluster=CLOUD,
        applications=Applications(toy_application(epochs=4)),
        options=ONE_NODE,
    )
    assert records.decisions[-1].provisioned_nodes <= 4
    assert next(row for row in records.decisions if row.time_s >= 100_000).provisioned_nodes == 1


@pytest.mark.parametrize("params", [{"start_nodes": 0}, {"step_nodes": 0}, {"threshold": 2.0}, {"min_batches": -1}])
def test_steps_of_nothing_are_refused(params: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        OrElastic(**params)


def test_or_elastic_refuses_jobs_that_know_only_a_duration() -> None:
    with pytest.raises(InputError, match="carries only a duration"):
        fresh_view(OrElastic(), [JobSpec("a", 0, 1, duration_s=5)], CLOUD, Applications())
