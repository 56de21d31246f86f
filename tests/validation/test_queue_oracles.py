"""Overloaded random workloads under each queue policy, job by job against plain loops over seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings, strategies as st
from simsched_policies.production.yarn_cs import YarnCs
from simsched_policies.queues.by_key import Fifo, Las, Sjf, SmallestFirst, Srsf, Srtf
from simsched_policies.queues.gittins import Gittins
from simsched_policies.queues.isolated import Isolated
from simsched_policies.queues.time_slicing import TimeSlicing
from simsched_policies.queues.tiresias import Tiresias
from simsched_policies.queues.tiresias_g import TiresiasG

from simsched.engine.options import EngineOptions
from simsched.model.application import Application
from simsched.model.cluster import Cluster
from simsched.model.job import JobRequest, JobSpec, JobTruth
from simsched.model.tabulated import FixedDuration
from simsched.policy import Policy
from simsched.testing.builders import run
from tests.validation.oracles.queues.loop import Job, Rule, replay
from tests.validation.oracles.queues.rules import (
    BySlices,
    CapacityQueues,
    InRounds,
    InTurn,
    gittins,
    keeping,
    preempting,
)
from tests.validation.oracles.queues.tiresias import BySkew, EveryInterval, OnEvents

NODES, SIZE = 2, 4
GPUS = NODES * SIZE
SAMPLES = (3, 9, 9, 20, 41, 41, 90, 200, 333)
RESTART_S = 3


class Skewed(FixedDuration):
    """A job of fixed duration whose model is skewed if its tenant says so."""

    def __init__(self, duration_s: float, tenant: str) -> None:
        super().__init__(duration_s)
        self.name = f"fixed {tenant}"
        self.tensor_skew = 0.9 if tenant == "x" else 0.1


class Models:
    """Jobs of fixed duration; those of tenant x have skewed models."""

    def for_job(self, request: JobRequest, truth: JobTruth) -> Application:
        return Skewed(truth.duration_s, request.tenant)


JOBS = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 1, 2, 5, 17]),  # gaps
        st.sampled_from([1, 1, 2, 3, 4, 6, 8]),  # GPUs
        st.integers(1, 60),
        st.sampled_from("xyz"),
    ),
    min_size=2,
    max_size=16,
)

CASES: dict[str, tuple[Callable[[], Policy], Callable[[], Rule]]] = {
    "fifo": (Fifo, lambda: keeping(GPUS, lambda job: 0, blocking=True)),
    "backfill": (lambda: Fifo(backfill=True), lambda: keeping(GPUS, lambda job: 0)),
    "sjf": (Sjf, lambda: keeping(GPUS, lambda job: job.work)),
    "srtf": (Srtf, lambda: preempting(GPUS, lambda job: job.work)),
    "srsf": (Srsf, lambda: preempting(GPUS, lambda job: job.work * job.gpus)),
    "smallest-first": (SmallestFirst, lambda: preempting(GPUS, lambda job: job.gpus)),
    "las": (lambda: Las(quantum_s=7), lambda: BySlices(GPUS, 7, lambda attained: attained)),
    "gittins": (
        lambda: Gittins(quantum_s=7, history_gpu_s=SAMPLES),
        lambda: BySlices(GPUS, 7, lambda attained: -gittins(SAMPLES, attained)),
    ),
    "time-slicing": (lambda: TimeSlicing(quantum_s=7), lambda: InTurn(GPUS, 7)),
    "tiresias-interval": (
        lambda: Tiresias(queue_thresholds_gpu_s=[40, 120], interval_s=6),
        lambda: EveryInterval(GPUS, [40, 120], 6),
    ),
    "tiresias-l": (
        lambda: Tiresias(queue_thresholds_gpu_s=[40, 120], interval_s=None),
        lambda: OnEvents(GPUS, [40, 120]),
    ),
    "tiresias-g": (
        lambda: TiresiasG(queue_thresholds_gpu_s=[40, 120], history_gpu_s=SAMPLES, placement="most-free"),
        lambda: OnEvents(GPUS, [40, 120], SAMPLES, ranks=4),
    ),
    "skew": (
        lambda: Tiresias(queue_thresholds_gpu_s=[40], interval_s=None, placement="skew"),
        lambda: BySkew(NODES, SIZE, [40]),
    ),
    "yarn-cs": (
        lambda: YarnCs(capacities={"x": 0.25, "y": 0.5}, placement="any"),
        lambda: CapacityQueues(GPUS, {"x": 25, "y": 50}, elastic=True),
    ),
    "isolated": (lambda: Isolated(round_s=9), lambda: InRounds(GPUS, 9)),
}


def specs_of(drawn: Sequence[tuple[int, int, int, str]], most_gpus: int = GPUS) -> list[JobSpec]:
    submit_s, specs = 0, []
    for i, (gap_s, gpus, seconds, tenant) in enumerate(drawn):
        submit_s += gap_s
        specs.append(JobSpec(f"j{i}", submit_s, min(gpus, most_gpus), duration_s=seconds, tenant=tenant))
    return specs


def ends_of(policy: Policy, specs: Sequence[JobSpec], restart_s: int) -> dict[str, float]:
    options = EngineOptions(restart_delay_s=restart_s)
    found = run(policy, specs, cluster=Cluster.uniform(NODES, SIZE), applications=Models(), options=options)
    return {job.job_id: job.end_time_s for job in found.jobs}


def expected_of(rule: Rule, specs: Sequence[JobSpec], restart_s: int) -> dict[str, int]:
    jobs = [
        Job(one.id, int(one.submit_time_s), one.num_gpus, int(one.duration_s), one.tenant, one.tenant == "x")
        for one in specs
    ]
    return replay(jobs, rule, restart_s)


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=12, deadline=None, derandomize=True)
@given(drawn=JOBS, restart_s=st.sampled_from([0, RESTART_S]))
def test_every_job_ends_when_the_oracle_says(name: str, drawn, restart_s: int) -> None:
    policy, rule = CASES[name]
    specs = specs_of(drawn)
    assert ends_of(policy(), specs, restart_s) == expected_of(rule(), specs, restart_s)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(drawn=JOBS)
def test_rigid_shares_of_yarn_are_those_of_the_oracle(drawn) -> None:
    specs = specs_of(drawn, most_gpus=2)
    policy = YarnCs(capacities={"x": 0.25, "y": 0.5}, elastic=False, placement="any")
    rule = CapacityQueues(GPUS, {"x": 25, "y": 50}, elastic=False)
    assert ends_of(policy, specs, 0) == expected_of(rule, specs, 0)
