"""Time the Pollux search from 64 to 20,000 GPUs and from 20 to 10,000 jobs, on synthetic rounds.

Usage: python benchmarks/pollux_scale.py [--method hybrid|genetic] [--largest GPUS] [--repeat N] [--gap]

A round is a busy cluster of nodes with 4 GPUs: nine jobs in ten run, some have just ended, and speedups come from a
throughput model with a cost of synchronisation that is larger between nodes than within one, times an efficiency that
falls with the number of GPUs. CPU time of one core, after compilation; the gap is that to an upper bound.
"""

import argparse
import resource
import sys
import time

import numpy as np
from simsched_policies.adaptive.pollux.search import AllocationProblem, fitness, search, upper_bound, violations

NODE_GPUS, MOST_GPUS = 4, 64
SIZES = [(64, 20), (64, 160), (128, 50), (256, 100), (512, 250), (1024, 500), (2048, 1000), (4096, 2000)]
SIZES += [(16_384, 10_000), (20_000, 2000)]


def synthetic_round(gpus: int, jobs: int, rng: np.random.Generator) -> AllocationProblem:
    """Draw a round; GPUs on nodes of 4."""
    nodes = gpus // NODE_GPUS
    fair = -(-gpus // jobs)
    caps = np.minimum(2 ** rng.integers(0, 7, jobs), min(MOST_GPUS, gpus))
    counts = np.arange(min(MOST_GPUS, gpus) + 1)
    step = rng.uniform(0.02, 0.1, jobs)[:, None] * np.maximum(counts - 1, 0)
    between = rng.uniform(0.05, 0.4, jobs)[:, None]
    efficiency = 1 / (1 + rng.uniform(0.01, 0.1, jobs)[:, None] * np.maximum(counts - 1, 0))
    goodput = np.stack([counts / (1 + step), counts / (1 + step + between)], axis=1) * efficiency[:, None]
    speedup = goodput / goodput[:, :1, [fair]]
    ages = rng.uniform(60, 20_000, jobs)
    return AllocationProblem(
        speedup=speedup,
        max_gpus=caps,
        node_gpus=np.full(nodes, NODE_GPUS),
        current=running_jobs(caps, nodes, fair, rng),
        restart_factor=np.maximum(ages - 30 * (ages // 400), 0) / (ages + 30),
        weight=1 / NODE_GPUS,
    )


def running_jobs(
    caps: np.ndarray[tuple[int], np.dtype[np.int64]], nodes: int, fair: int, rng: np.random.Generator
) -> np.ndarray[tuple[int, int], np.dtype[np.int16]]:
    """Place most jobs, tightest node first; whole nodes for those that need more than one."""
    current = np.zeros((caps.size, nodes), np.int16)
    free = np.full(nodes, NODE_GPUS)
    for job in rng.permutation(caps.size)[: int(0.9 * caps.size)]:
        wanted = min(int(caps[job]), max(1, int(rng.poisson(fair))))
        if wanted <= NODE_GPUS:
            room = np.flatnonzero(free >= wanted)
            chosen, given = (room[np.argsort(free[room], kind="stable")[:1]], wanted)
        else:
            chosen, given = np.flatnonzero(free == NODE_GPUS)[: wanted // NODE_GPUS], NODE_GPUS
        current[job, chosen] = given
        free[chosen] -= given
    return current


def main() -> int:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", choices=["hybrid", "genetic"], default="hybrid")
    parser.add_argument("--largest", type=int, default=4096, help="GPUs of the largest cluster")
    parser.add_argument("--repeat", type=int, default=3, help="rounds of each size; the median time is reported")
    parser.add_argument("--gap", action="store_true", help="bound the optimum of every round")
    args = parser.parse_args()
    search(synthetic_round(64, 20, np.random.default_rng(0)), method=args.method)  # compiles
    print(f"{'GPUs':>6} {'jobs':>6} {'ms':>9} {'fitness':>9} {'kept as is':>11} {'gap %':>8} {'memory MB':>10}")
    for gpus, jobs in SIZES:
        if gpus > args.largest:
            break
        times, reached, kept, gaps, memory = [], [], [], [], 0
        for seed in range(args.repeat):
            problem = synthetic_round(gpus, jobs, np.random.default_rng([gpus, seed]))
            start = time.process_time()
            found = search(problem, method=args.method, seed_or_rng=seed)
            times.append(1000 * (time.process_time() - start))
            memory = memory or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            if violations(problem, found.allocation):
                print(f"infeasible at {gpus} GPUs", file=sys.stderr)
                return 1
            reached.append(found.fitness)
            kept.append(fitness(problem, problem.current))
            bound = upper_bound(problem, allocation=found.allocation) if args.gap else np.nan
            gaps.append(100 * (bound - found.fitness) / bound)
        means = f"{np.mean(reached):9.5f} {np.mean(kept):11.5f} {np.mean(gaps):8.4f}"
        print(f"{gpus:6d} {jobs:6d} {np.median(times):9.1f} {means} {memory:10d}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
