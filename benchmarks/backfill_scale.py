"""Measure how the time of a replay under EASY backfill grows with the length of the log, and draw it.

Run as `python benchmarks/backfill_scale.py [JOBS ...] [--nodes N] [--load SHARE] [--jobs-per-day N] [--conservative]
[--figure FILE]`. So many jobs come a day, more on busy days, and ask for that share of the cluster's GPUs on average;
durations are log-normal, limits users' estimates. Without `--jobs-per-day` the span follows from the durations instead.
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from simsched_policies.production.slurm.options import Backfill
from simsched_policies.production.slurm.policy import SlurmBackfill

from simsched.applications import ApplicationsOptions, catalogue
from simsched.engine import EngineOptions, JobRecord, Recorder, simulate
from simsched.model import Cluster, JobSpec
from simsched.workload import with_estimates

PER_NODE = 8
SIZES, SHARES = (1, 2, 4, 8, 16, 64), (0.6, 0.12, 0.1, 0.13, 0.04, 0.01)


class Waits(Recorder):
    """Keeps nothing but the waits."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def job(self, record: JobRecord) -> None:
        """Keep the wait of a job."""
        self.waits.append(record.queueing_s)


def log_of(jobs: int, gpus_in_all: float, days: float | None, rng: np.random.Generator) -> list[JobSpec]:
    """Draw a log that asks for `gpus_in_all` GPUs on average, over `days` or over the span that this takes."""
    gpus = rng.choice(SIZES, size=jobs, p=SHARES)
    durations = np.clip(rng.lognormal(7.5, 1.6, size=jobs), 10, 5 * 86400)
    span = float((gpus * durations).sum()) / gpus_in_all if days is None else days * 86400
    for _ in range(20 if days is not None else 0):
        durations = np.clip(durations * span * gpus_in_all / float((gpus * durations).sum()), 10, 14 * 86400)
    busy = rng.dirichlet(np.full(max(1, round(span / 86400)), 8.0))
    day = rng.choice(len(busy), jobs, p=busy)
    submits = np.sort(((day + rng.random(jobs)) * span / len(busy)).astype(int))
    rows = zip(submits.tolist(), gpus.tolist(), durations.astype(int).tolist(), strict=True)
    specs = [JobSpec(f"j{i}", at, count, duration_s=lasts) for i, (at, count, lasts) in enumerate(rows)]
    return with_estimates(specs, "rounded", 3.0, rng)


def measure(jobs: int, given: argparse.Namespace) -> tuple[float, float]:
    """Replay a log of so many jobs, print a line, and return CPU seconds and the process's largest memory in GiB."""
    days = jobs / given.jobs_per_day if given.jobs_per_day else None
    specs = log_of(jobs, given.nodes * PER_NODE * given.load, days, np.random.default_rng(1))
    recorder = Waits()
    options = EngineOptions(restart_delay_s=0, kill_at_time_limit=True)
    cluster = Cluster.uniform(given.nodes, PER_NODE, "gpu")
    policy = SlurmBackfill(backfill=Backfill(kind="conservative" if given.conservative else "easy"))
    began = time.process_time()
    simulate(cluster, specs, catalogue(ApplicationsOptions()), policy, options, 1, recorder)
    spent = time.process_time() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    wait = np.percentile(recorder.waits, 90) / 3600
    figures = f"{spent:8.1f} s CPU  {1e6 * spent / jobs:6.0f} us a job  {memory:.2f} GiB"
    print(
        f"{jobs:>9} jobs over {specs[-1].submit_time_s / 86400:.0f} days  {figures}  p90 of waits {wait:.2f} h",
        flush=True,
    )
    return spent, memory


def draw(sizes: list[int], spent: list[float], memory: list[float], given: argparse.Namespace, file: Path) -> None:
    """Draw CPU time and memory against the number of jobs."""
    matplotlib.use("Agg")
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    left.loglog(sizes, spent, "o-", label="measured")
    linear = [spent[-1] * jobs / sizes[-1] for jobs in sizes]
    left.loglog(sizes, linear, ":", color="0.4", label="in proportion to the last")
    left.axhline(900, color="C3", linestyle="--", linewidth=1, label="15 minutes")
    left.set(xlabel="jobs", ylabel="CPU time of one core (s)")
    left.legend(frameon=False)
    right.semilogx(sizes, memory, "o-")
    right.axhline(1.5, color="C3", linestyle="--", linewidth=1, label="1.5 GiB")
    right.set(xlabel="jobs", ylabel="largest memory (GiB)", ylim=(0, None))
    right.legend(frameon=False)
    kind = "Conservative" if given.conservative else "EASY"
    figure.suptitle(f"{kind} backfill, {given.nodes} nodes of {PER_NODE} GPUs at load {given.load}")
    figure.savefig(file, dpi=150)


def main() -> None:
    """Print a line for each number of jobs, and draw them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs", nargs="*", type=int, default=[3_000, 10_000, 30_000, 100_000])
    parser.add_argument("--nodes", type=int, default=250)
    parser.add_argument("--load", type=float, default=0.95)
    parser.add_argument("--jobs-per-day", type=float)
    parser.add_argument("--conservative", action="store_true", help="reserve for every job, not for the first alone")
    parser.add_argument("--figure", type=Path)
    given = parser.parse_args()
    measure(300, given)  # compiles
    sizes = sorted(given.jobs)
    figures = [measure(jobs, given) for jobs in sizes]
    if given.figure:
        draw(sizes, [one for one, _ in figures], [one for _, one in figures], given, given.figure)


if __name__ == "__main__":
    main()
