"""Measure how the time of a replay under EASY backfill grows with the length of the log.

Run as `python benchmarks/backfill_scale.py [JOBS ...]`. Jobs come so that a cluster of 2,000 GPUs in nodes of 8 is
asked for about 95 % of its GPUs; durations are log-normal, limits are users' estimates.
"""

from __future__ import annotations

import resource
import sys
import time

import numpy as np
from simsched_policies.slurm.policy import SlurmBackfill

from simsched.applications.catalogue import ApplicationsOptions, catalogue
from simsched.engine.options import EngineOptions
from simsched.engine.records import AllocationRecord, DecisionRecord, JobRecord
from simsched.engine.simulation import simulate
from simsched.model.cluster import Cluster
from simsched.model.job import JobSpec
from simsched.workload.estimates import with_estimates

NODES, PER_NODE, LOAD = 250, 8, 0.95
SIZES, SHARES = (1, 2, 4, 8, 16, 64), (0.6, 0.12, 0.1, 0.13, 0.04, 0.01)


class Waits:
    """Keeps nothing but the waits."""

    def __init__(self) -> None:
        """Start empty."""
        self.waits: list[float] = []

    def job(self, record: JobRecord) -> None:
        """Keep the wait of a job."""
        self.waits.append(record.queueing_s)

    def allocation(self, record: AllocationRecord) -> None:
        """Forget an interval."""

    def decision(self, record: DecisionRecord) -> None:
        """Forget a decision."""


def log_of(jobs: int, rng: np.random.Generator) -> list[JobSpec]:
    """Draw a log."""
    gpus = rng.choice(SIZES, size=jobs, p=SHARES)
    durations = np.clip(rng.lognormal(7.5, 1.6, size=jobs), 10, 5 * 86400).astype(int)
    span = float((gpus * durations).sum()) / (NODES * PER_NODE * LOAD)
    submits = np.sort(rng.integers(0, int(span) + 1, size=jobs))
    rows = zip(submits.tolist(), gpus.tolist(), durations.tolist(), strict=True)
    specs = [JobSpec(f"j{i}", at, count, duration_s=lasts) for i, (at, count, lasts) in enumerate(rows)]
    return with_estimates(specs, "rounded", 3.0, rng)


def main() -> None:
    """Print a line for each number of jobs."""
    for jobs in [int(text) for text in sys.argv[1:]] or [3_000, 10_000, 30_000, 100_000]:
        specs = log_of(jobs, np.random.default_rng(1))
        recorder = Waits()
        options = EngineOptions(restart_delay_s=0, kill_at_time_limit=True)
        began = time.process_time()
        cluster = Cluster.uniform(NODES, PER_NODE, "gpu")
        simulate(cluster, specs, catalogue(ApplicationsOptions()), SlurmBackfill(), options, 1, recorder)
        spent = time.process_time() - began
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        p90 = np.percentile(recorder.waits, 90) / 3600
        print(
            f"{jobs:>9} jobs  {spent:8.1f} s CPU  {1e6 * spent / jobs:7.0f} us a job  {memory:.2f} GiB  p90 {p90:.2f} h"
        )


if __name__ == "__main__":
    main()
