"""Preemptive policies on one server against the closed forms of M/G/1, and against each other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from simsched_policies.queues.by_key import Fifo, Las, Srsf
from simsched_policies.queues.tiresias import Tiresias

from simsched.engine.options import EngineOptions
from simsched.model.cluster import Cluster
from simsched.model.job import JobSpec
from simsched.policy import Policy, registry
from simsched.testing.builders import run
from simsched.toolkit.rounds import SharesPolicy

MEAN_SERVICE_S = 2000
LOAD = 0.6
ONE_GPU = Cluster.uniform(1, 1)
FREE = EngineOptions(restart_delay_s=0)

# Service is hyperexponential with mean 1: four of five jobs have a mean of 0.4, the others of 3.4.
SHARES, MEANS = np.array([0.8, 0.2]), np.array([0.4, 3.4])
X = np.linspace(0, 90, 900_001)
STEP = X[1]
TAIL = (SHARES * np.exp(-X[:, None] / MEANS)).sum(axis=1)
DENSITY = (SHARES / MEANS * np.exp(-X[:, None] / MEANS)).sum(axis=1)


def upto(values: np.ndarray) -> np.ndarray:
    """Integrate from 0 to each x, by trapezoids."""
    return np.concatenate([[0], np.cumsum((values[1:] + values[:-1]) / 2) * STEP])


def fifo_mean() -> float:
    """Mean response time in mean services (Pollaczek and Khinchine)."""
    return 1 + LOAD * float((2 * SHARES * MEANS**2).sum()) / (2 * (1 - LOAD))


def las_mean() -> float:
    """Mean response time of foreground-background: jobs of size x see the others cut off at x (Kleinrock, 1976)."""
    load = LOAD * upto(TAIL)
    response = LOAD * upto(X * TAIL) / (1 - load) ** 2 + X / (1 - load)
    return float(upto(response * DENSITY)[-1])


def srpt_mean() -> float:
    """Mean response time of shortest remaining processing time (Schrage and Miller, 1966)."""
    load = LOAD * upto(X * DENSITY)
    waiting = LOAD * (upto(X**2 * DENSITY) + X**2 * TAIL) / (2 * (1 - load) ** 2)
    return float(upto((waiting + upto(1 / (1 - load))) * DENSITY)[-1])


def jobs_of(seed: int, count: int) -> list[JobSpec]:
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(MEAN_SERVICE_S / LOAD, count))
    services = rng.exponential(MEANS[(rng.random(count) < SHARES[1]).astype(int)]) * MEAN_SERVICE_S
    return [
        JobSpec(f"j{i}", round(at), 1, duration_s=max(1, round(s)))
        for i, (at, s) in enumerate(zip(arrivals, services, strict=True))
    ]


def means_of(make: Callable[[], Policy], seeds: int, count: int) -> np.ndarray:
    return (
        np.array(
            [
                np.mean([job.jct_s for job in run(make(), jobs_of(seed, count), cluster=ONE_GPU, options=FREE).jobs])
                for seed in range(seeds)
            ]
        )
        / MEAN_SERVICE_S
    )


def test_the_closed_forms_themselves_on_exponential_service_agree_with_what_is_known() -> None:
    assert fifo_mean() == pytest.approx(1 + 0.6 * 4.88 / 0.8)
    assert srpt_mean() < las_mean() < fifo_mean()
    assert float(upto(DENSITY)[-1]) == pytest.approx(1, abs=1e-6)
    assert float(upto(TAIL)[-1]) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (Fifo, fifo_mean),
        (lambda: Las(quantum_s=200), las_mean),
        (lambda: Tiresias(queue_thresholds_gpu_s=range(200, 10_000, 200), interval_s=None), las_mean),
        (Srsf, srpt_mean),
    ],
    ids=["fifo", "las", "tiresias-with-many-queues", "srsf"],
)
def test_mean_response_in_m_g_1_is_that_of_the_closed_form(make: Callable[[], Policy], expected) -> None:
    means = means_of(make, 6, 400)
    error = np.std(means, ddof=1) / np.sqrt(len(means))
    assert abs(np.mean(means) - expected()) < 4 * error
    assert error < 0.2 * expected()


def all_rigid() -> list[str]:
    """List the policies for rigid jobs that act on events at once, rather than in rounds."""
    rigid = [name for name in registry.names() if registry.load(name).traits.rigid]
    at_once = [name for name in rigid if not issubclass(registry.load(name), SharesPolicy)]
    return [name for name in at_once if registry.load(name)().triggers.interval_s is None]


WORKLOADS = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 40)), min_size=1, max_size=12)


@pytest.mark.parametrize("name", [name for name in all_rigid() if name != "srsf"])
@settings(max_examples=10, deadline=None, derandomize=True)
@given(arrivals=WORKLOADS)
def test_srsf_is_never_beaten_on_one_server(name: str, arrivals: list[tuple[int, int]]) -> None:
    submit_s = np.cumsum([gap for gap, _ in arrivals]).tolist()
    jobs = [
        JobSpec(f"j{i}", at, 1, duration_s=s) for i, (at, (_, s)) in enumerate(zip(submit_s, arrivals, strict=True))
    ]

    def total_s(policy: Policy) -> int:
        return sum(job.jct_s for job in run(policy, jobs, cluster=ONE_GPU, options=FREE).jobs)

    assert total_s(Srsf()) <= total_s(registry.load(name)())


@pytest.mark.parametrize("name", sorted(set(all_rigid()) - {"lucid"}))  # which profiles each job first
def test_with_unlimited_gpus_completion_time_is_duration(name: str) -> None:
    rng = np.random.default_rng(4)
    jobs = [
        JobSpec(
            f"j{i}",
            int(rng.integers(0, 50)) + 50 * i,
            int(rng.choice([1, 2, 4, 8])),
            duration_s=int(rng.integers(1, 900)),
        )
        for i in range(60)
    ]
    for job in run(registry.load(name)(), jobs, cluster=Cluster.uniform(500, 4), options=FREE).jobs:
        assert job.jct_s == jobs[int(job.job_id[1:])].duration_s
