"""The engine against closed forms of queueing theory."""

from __future__ import annotations

from math import factorial

import numpy as np
import pytest
from simsched_policies.queues.by_key import Fifo, Srtf

from simsched.engine.options import EngineOptions
from simsched.engine.records import MemoryRecorder
from simsched.model.cluster import Cluster
from simsched.model.job import JobSpec
from simsched.policy import Policy
from simsched.testing.builders import run

MEAN_SERVICE_S = 10_000  # so long that whole seconds do not matter
FREE = EngineOptions(restart_delay_s=0)


def poisson_jobs(rng: np.random.Generator, count: int, load_per_server: float, servers: int) -> list[JobSpec]:
    gaps = rng.exponential(MEAN_SERVICE_S / (load_per_server * servers), count)
    services = np.maximum(rng.exponential(MEAN_SERVICE_S, count), 1)
    arrivals = np.cumsum(gaps)
    return [
        JobSpec(f"j{i}", round(at), 1, duration_s=round(service))
        for i, (at, service) in enumerate(zip(arrivals, services, strict=True))
    ]


def simulate(policy: Policy, servers: int, load: float, count: int, seed: int) -> MemoryRecorder:
    jobs = poisson_jobs(np.random.default_rng(seed), count, load, servers)
    return run(policy, jobs, cluster=Cluster.uniform(servers, 1), options=FREE)


def erlang_c(servers: int, load: float) -> float:
    """Probability of having to wait in M/M/c at a load per server."""
    offered = servers * load
    busy = offered**servers / factorial(servers) / (1 - load)
    return busy / (sum(offered**k / factorial(k) for k in range(servers)) + busy)


@pytest.mark.parametrize(("servers", "load"), [(1, 0.5), (4, 0.7)])
def test_fifo_waits_as_erlang_c_says(servers: int, load: float) -> None:
    means = []
    for seed in range(6):
        records = simulate(Fifo(), servers, load, 1500, seed)
        means.append(np.mean([job.queueing_s for job in records.jobs[150:]]) / MEAN_SERVICE_S)
    expected = erlang_c(servers, load) / (servers * (1 - load))
    standard_error = np.std(means, ddof=1) / np.sqrt(len(means))
    assert abs(np.mean(means) - expected) < 4 * standard_error
    assert standard_error < 0.15 * expected


def test_shortest_remaining_time_first_beats_fifo_by_what_theory_says() -> None:
    # M/M/1 at load 1/2: FIFO 2 mean services; SRPT 1.425 (Schrage and Miller's formula, integrated numerically).
    fifo, srtf = [], []
    for seed in range(8):
        fifo.append(np.mean([job.jct_s for job in simulate(Fifo(), 1, 0.5, 1200, seed).jobs]) / MEAN_SERVICE_S)
        srtf.append(np.mean([job.jct_s for job in simulate(Srtf(), 1, 0.5, 1200, seed).jobs]) / MEAN_SERVICE_S)
    assert all(short < first for short, first in zip(srtf, fifo, strict=True))
    assert abs(np.mean(srtf) - srpt_mean_response(0.5)) < 4 * np.std(srtf, ddof=1) / np.sqrt(len(srtf))


def srpt_mean_response(load: float) -> float:
    """Mean response time of M/M/1-SRPT with unit mean service (Schrage and Miller, 1966)."""
    x = np.linspace(0, 40, 400_001)
    step = x[1]
    density = np.exp(-x)
    rho = load * np.cumsum(x * density) * step
    second = load * (np.cumsum(x**2 * density) * step + x**2 * np.exp(-x))
    waiting = second / (2 * (1 - rho) ** 2)
    residence = np.cumsum(1 / (1 - rho)) * step
    return float(np.sum((waiting + residence) * density) * step)


def test_littles_law_links_the_table_of_rounds_to_the_table_of_jobs() -> None:
    records = simulate(Fifo(), 3, 1.5, 1500, 7)  # overloaded, so that the queue is never empty before the end
    ends = [*(r.time_s for r in records.decisions[1:]), max(job.end_time_s for job in records.jobs)]
    jobs_seconds = sum(r.active_jobs * (end - r.time_s) for r, end in zip(records.decisions, ends, strict=True))
    assert jobs_seconds == sum(job.jct_s for job in records.jobs)
