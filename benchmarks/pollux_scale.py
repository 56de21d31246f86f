"""Time the Pollux search from 64 to 20,000 GPUs and from 20 to 2,000 jobs, on synthetic rounds.

Usage: python benchmarks/pollux_scale.py [--method hybrid|genetic] [--largest GPUS] [--repeat N] [--plot FILE.png]

A round is a busy cluster of nodes with 4 GPUs: nine jobs in ten run, some have just ended, and speedups come from a
throughput model with a cost of synchronisation that is larger between nodes than within one, times an efficiency that
falls with the number of GPUs. One core, after compilation.
"""

import argparse
import resource
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "policies"))

from simsched_policies.adaptive.pollux.search import AllocationProblem, fitness, search, violations

NODE_GPUS, MOST_GPUS = 4, 64
SIZES = [(64, 20), (128, 50), (256, 100), (512, 250), (1024, 500), (2048, 1000), (4096, 2000), (20_000, 2000)]


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
    """Print a table, and draw it if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", choices=["hybrid", "genetic"], default="hybrid")
    parser.add_argument("--largest", type=int, default=4096, help="GPUs of the largest cluster")
    parser.add_argument("--repeat", type=int, default=3, help="rounds of each size; the median time is reported")
    parser.add_argument("--plot", type=Path, help="PNG to draw")
    args = parser.parse_args()
    search(synthetic_round(64, 20, np.random.default_rng(0)), method=args.method)  # compiles
    print(f"{'GPUs':>6} {'jobs':>6} {'ms':>9} {'fitness':>9} {'kept as is':>11} {'memory MB':>10}")
    rows = []
    for gpus, jobs in SIZES:
        if gpus > args.largest:
            break
        times, reached, kept = [], [], []
        for seed in range(args.repeat):
            problem = synthetic_round(gpus, jobs, np.random.default_rng([gpus, seed]))
            start = time.perf_counter()
            found = search(problem, method=args.method, seed_or_rng=seed)
            times.append(1000 * (time.perf_counter() - start))
            if violations(problem, found.allocation):
                print(f"infeasible at {gpus} GPUs", file=sys.stderr)
                return 1
            reached.append(found.fitness)
            kept.append(fitness(problem, problem.current))
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        rows.append((gpus, jobs, float(np.median(times))))
        means = f"{np.mean(reached):9.5f} {np.mean(kept):11.5f}"
        print(f"{gpus:6d} {jobs:6d} {np.median(times):9.1f} {means} {memory:10d}", flush=True)
    if args.plot:
        draw(rows, args.method, args.plot)
    return 0


def draw(rows: list[tuple[int, int, float]], method: str, path: Path) -> None:
    """Draw time against jobs x nodes, with a line of proportional growth."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    cells = np.array([gpus // NODE_GPUS * jobs for gpus, jobs, _ in rows], dtype=float)
    times = np.array([taken for *_, taken in rows])
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    axes.loglog(cells, times, "o-", label=f"{method} search")
    axes.loglog(cells, times[0] * cells / cells[0], ":", color="grey", label="proportional to jobs x nodes")
    for (gpus, jobs, taken), x in zip(rows, cells, strict=True):
        axes.annotate(f"{gpus} GPUs\n{jobs} jobs", (x, taken), textcoords="offset points", xytext=(4, -18), fontsize=7)
    axes.set(xlabel="jobs x nodes", ylabel="time of a round, ms", title="Pollux search, one core")
    axes.margins(x=0.15)
    axes.legend()
    figure.savefig(path, dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    sys.exit(main())
