"""Time what Pollux's agents and scheduler do, beside what was published (Pollux, OSDI'21, section 5.2).

Usage: python benchmarks/overheads.py [--jobs N] [--repeat N]

A fit of a throughput model (published 0.2 s), a choice of the batch with the largest goodput (0.4 ms), and a round of
the scheduler with N jobs on 16 nodes of 4 GPUs (about 1 s). Median of the repetitions, on one core, after compilation.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "policies"))

from simsched_policies.adaptive.pollux.search import AllocationProblem, search

from simsched.agent import GoodputAgent, fit, offline_prior
from simsched.applications import ApplicationCatalogue
from simsched.model import CandidateBatches, GoodputModel, Site

APPLICATION = "imagenet"


def median_s(act: Callable[[], object], repeat: int) -> float:
    """Time an action several times, after once without a clock."""
    act()
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        act()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def fit_and_choice(repeat: int) -> tuple[int, float, float]:
    """Time a fit to everything that can be profiled of an application, and a choice of the best batch on 16 GPUs."""
    application = ApplicationCatalogue.load().applications[APPLICATION]
    prior, limits = offline_prior(application, "t4", 4), application.limits
    assert prior is not None
    assert limits is not None
    fitting = median_s(lambda: fit(prior.profile), repeat)

    def choose() -> None:
        GoodputModel(prior.params, prior.gradient, limits, candidates).optimise(4, 16)

    candidates = CandidateBatches(limits)
    assert GoodputAgent(limits, priors={"t4": prior}).choose(Site((4,) * 4, "t4"), 0).total(16) > limits.init_batch_size
    return len(prior.profile), fitting, median_s(choose, 50 * repeat)


def round_of(jobs: int, rng: np.random.Generator) -> AllocationProblem:
    """Draw a round of jobs that run on up to 16 GPUs each, with speedups that flatten at different rates."""
    caps = rng.integers(1, 17, jobs)
    gpus = np.arange(17)
    flatten = rng.uniform(0.02, 0.4, jobs)[:, None]
    one = gpus / (1 + flatten * np.maximum(gpus - 1, 0))
    speedup = np.stack([one, 0.8 * one], axis=1) * (caps >= 1)[:, None, None]
    speedup[:, 1, :2] = 0
    current = np.zeros((jobs, 16), dtype=np.int64)
    for job in range(min(jobs, 16)):
        current[job, job] = min(4, caps[job])
    return AllocationProblem(
        speedup=speedup,
        max_gpus=caps,
        node_gpus=np.full(16, 4),
        current=current,
        restart_factor=rng.uniform(0.5, 1, jobs),
        weight=0.25,
        fairness=-1.0,
    )


def main() -> int:
    """Print a line for each of the three."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=30)
    parser.add_argument("--repeat", type=int, default=20)
    args = parser.parse_args()
    with threadpool_limits(limits=1):
        profiled, fitting, choosing = fit_and_choice(args.repeat)
        problem = round_of(args.jobs, np.random.default_rng(1))
        deciding = median_s(lambda: search(problem, seed_or_rng=np.random.default_rng(1)), args.repeat)
    print("| what | simsched | published |")
    print("|---|---:|---:|")
    print(f"| fit of a throughput model ({profiled} configurations) | {1e3 * fitting:.1f} ms | 200 ms |")
    print(f"| choice of the batch with the largest goodput | {1e3 * choosing:.3f} ms | 0.4 ms |")
    print(f"| scheduling round, {args.jobs} jobs on 16 x 4 GPUs | {1e3 * deciding:.1f} ms | about 1000 ms |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
