"""FIFO and EASY against the textbook, job by job."""

from __future__ import annotations

import numpy as np
import pytest
from simsched_policies.production.slurm.options import Backfill
from simsched_policies.production.slurm.policy import SlurmBackfill
from simsched_policies.queues.by_key import Fifo

from simsched.engine import EngineOptions
from simsched.model import Cluster, JobSpec
from simsched.policy import Policy
from simsched.testing.builders import run
from tests.validation.oracles.easy import Job, textbook_easy


def test_the_textbook_keeps_one_reservation() -> None:
    """On 4 GPUs: a (3 GPUs until 10), b wants 4 from 1 s, so the shadow time is 10 s and no GPU is extra.

    c (1 GPU for 5 s) ends by then and goes first; d (1 GPU for 20 s) would delay b and waits until b has ended at 15.
    """
    jobs = [Job(0, 3, 10, 10), Job(1, 4, 5, 5), Job(2, 1, 5, 5), Job(3, 1, 20, 20)]
    assert textbook_easy(jobs, 4) == [10, 15, 7, 35]
    assert textbook_easy(jobs, 4, backfill=False) == [10, 15, 20, 35]


def test_the_textbook_uses_what_is_extra() -> None:
    """b wants 3 of 4 GPUs at 10 s: one is extra, which d (20 s) takes at 3 s; e (1 GPU for 20 s) finds none left."""
    jobs = [Job(0, 2, 10, 10), Job(1, 3, 5, 5), Job(3, 1, 20, 20), Job(4, 1, 20, 20)]
    assert textbook_easy(jobs, 4) == [10, 15, 23, 35]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("policy", "backfill"), [(Fifo, False), (SlurmBackfill, True)])
def test_every_job_ends_as_in_the_textbook(policy: type[Policy], backfill: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    gpus = rng.choice([1, 2, 4, 8, 16], 1500, p=[0.4, 0.2, 0.2, 0.15, 0.05]).tolist()
    runs_s = np.maximum(rng.lognormal(6, 1.5, 1500), 1).astype(int).tolist()
    estimates_s = [int(np.ceil(lasts * (1 + 2 * more))) for lasts, more in zip(runs_s, rng.random(1500), strict=True)]
    span_s = sum(a * b for a, b in zip(gpus, runs_s, strict=True)) / (0.9 * 64)
    submits_s = np.sort((rng.random(1500) * span_s).astype(int)).tolist()
    jobs = list(map(Job, submits_s, gpus, runs_s, estimates_s))
    specs = [
        JobSpec(str(n), one.submit_s, one.gpus, duration_s=one.runs_s, time_limit_s=one.estimate_s)
        for n, one in enumerate(jobs)
    ]
    made = SlurmBackfill(Backfill(max_jobs=10**6, window_s=10**9)) if backfill else policy()
    records = run(made, specs, cluster=Cluster.uniform(8, 8), options=EngineOptions(restart_delay_s=0))
    ends = {int(record.job_id): int(record.end_time_s) for record in records.jobs}
    assert [ends[n] for n in range(len(jobs))] == textbook_easy(jobs, 64, backfill=backfill)
