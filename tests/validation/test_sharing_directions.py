"""What Gandiva, AntMan, Themis and ElasticFlow are published to gain must come out of reduced cases, too.

Pairs run at 0.685 each: half of the median sum of the pairs that were measured for Gavel.
"""

import numpy as np
import pytest
from simsched_policies.deadlines.edf import Edf
from simsched_policies.deadlines.elasticflow import ElasticFlow
from simsched_policies.production.yarn_cs import YarnCs
from simsched_policies.queues.by_key import Fifo, Srtf
from simsched_policies.queues.tiresias import Tiresias
from simsched_policies.rounds.themis import Themis
from simsched_policies.sharing.antman import AntMan
from simsched_policies.sharing.gandiva import Gandiva

from simsched.engine.options import EngineOptions
from simsched.engine.records import JobRecord, MemoryRecorder
from simsched.engine.simulation import simulate
from simsched.model.cluster import Cluster
from simsched.model.colocation.contract import ConstantSharing
from simsched.model.job import JobSpec
from simsched.policy import Policy
from simsched.testing.builders import Applications, run, toy_application


def drawn(seed: int, jobs: int = 30, **every: bool) -> list[JobSpec]:
    """Draw jobs of one or two GPUs, most of them short, that come a minute apart."""
    rng = np.random.default_rng(seed)
    lengths = rng.choice([300, 600, 3600], jobs, p=[0.5, 0.3, 0.2])
    return [
        JobSpec(f"j{n}", 60 * n, int(rng.integers(1, 3)), duration_s=int(length), **every)
        for n, length in enumerate(lengths)
    ]


def shared(policy: Policy, jobs: list[JobSpec], *, restart_delay_s: int) -> list[JobRecord]:
    recorder = MemoryRecorder()
    options = EngineOptions(restart_delay_s=restart_delay_s, max_jobs_per_gpu=2)
    model = ConstantSharing(0.685)
    simulate(Cluster.uniform(2, 4), jobs, Applications(), policy, options, 1, recorder, colocation=model)
    return recorder.jobs


def mean_jct_s(records: list[JobRecord]) -> float:
    return float(np.mean([record.jct_s for record in records]))


def test_gandiva_is_sooner_than_a_queue() -> None:
    # Published: a mean of 832 minutes in place of 656, and a makespan of 13,371 in place of 11,349.
    ratios = []
    for seed in range(3):
        queue = shared(Fifo(), drawn(seed), restart_delay_s=1)
        gandiva = shared(Gandiva(), drawn(seed), restart_delay_s=1)
        ratios.append(mean_jct_s(queue) / mean_jct_s(gandiva))
    assert min(ratios) > 1
    assert np.mean(ratios) > 1.1


def test_antman_is_sooner_than_queues_by_tenant_and_does_not_delay_the_guaranteed() -> None:
    # Published: the mean of YARN's capacity scheduler is 2.05 times as long.
    jobs = [JobSpec(**{**vars_of(job), "guaranteed": n % 2 == 0}) for n, job in enumerate(drawn(1))]
    antman = shared(AntMan(), jobs, restart_delay_s=30)
    queues = shared(YarnCs(), jobs, restart_delay_s=30)
    assert mean_jct_s(queues) > 1.1 * mean_jct_s(antman)
    guaranteed = [record for record in antman if record.job_id in {job.id for job in jobs if job.guaranteed}]
    assert all(record.held_s == length(record, jobs) + 30 for record in guaranteed)


def vars_of(job: JobSpec) -> dict[str, object]:
    return {name: getattr(job, name) for name in ("id", "submit_time_s", "num_gpus", "duration_s")}


def length(record: JobRecord, jobs: list[JobSpec]) -> int:
    return next(job.duration_s for job in jobs if job.id == record.job_id)


@pytest.mark.parametrize("seed", range(2))
def test_themis_treats_its_worst_job_better_than_the_shortest_first(seed: int) -> None:
    # Published: a largest rho of 1.3 in place of 2.0. Here rho is the time over that on one n-th of the cluster.
    jobs = [JobSpec(job.id, 10 * n, job.num_gpus, duration_s=job.duration_s) for n, job in enumerate(drawn(seed, 16))]

    def worst(policy: Policy) -> float:
        records = run(policy, jobs, cluster=Cluster.uniform(1, 4), options=EngineOptions(restart_delay_s=0)).jobs
        slowdown = len(jobs) / 4
        return max(one.jct_s / (length(one, jobs) * max(one.num_gpus * slowdown, 1)) for one in records)

    fair = worst(Themis(lease_s=300))
    assert fair < worst(Srtf())
    assert fair < 0.5 * worst(Tiresias())
    # Figure 19: offering GPUs to all, rather than to the least fair, lets the worst fall behind.
    assert fair < worst(Themis(lease_s=300, fairness=0))


def test_elasticflow_meets_more_deadlines_than_the_earliest_first() -> None:
    # Published: 1.46 to 7.65 times as many as other systems.
    rng = np.random.default_rng(1)
    app = toy_application(epochs=20)
    jobs = []
    for number in range(24):
        gpus = int(rng.choice([1, 2, 4]))
        alone_s = 2000 * (0.1 + 0.01 * 32 / gpus + (0.05 if gpus > 1 else 0)) / 1.33
        jobs.append(JobSpec(f"j{number}", 150 * number, gpus, "toy", 32, deadline_s=1.1 * alone_s))

    def met(policy: Policy) -> int:
        records = run(policy, jobs, cluster=Cluster.uniform(2, 4), applications=Applications(app)).jobs
        return sum(record.jct_s <= record.deadline_s for record in records)

    assert met(ElasticFlow()) > met(Edf())
