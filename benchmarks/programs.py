"""Time the programs of shares over the number of jobs, on three GPU types.

Usage: python benchmarks/programs.py [--largest JOBS] [--repeat N] [--plot FILE.png]
       python benchmarks/programs.py --parts JOBS

Two mixes: `drawn` has 26 kinds of jobs on 1, 2, 4 or 8 GPUs with weights 1 or 5, so that many jobs are alike, as in
Gavel's workloads; in `distinct` no two jobs are alike. One thread, CPU seconds, the least of the repetitions.
With `--parts` max-min fairness is solved in 1, 2, 4 and 8 parts (POP), for the mix `drawn` and for jobs of one GPU and
weight 1, beside the objective relative to the whole.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from simsched.threads import one_thread_each
from simsched.toolkit.programs import (
    Elapsed,
    ShareProblem,
    allox,
    fair_value,
    finish_time,
    makespan,
    max_min,
    partitioned,
    total_throughput,
    water_filling,
)

SIZES = (32, 128, 512, 1024, 2048)
KINDS = 26
#: Jobs for each GPU of a type where programs are solved in parts: so few that no job has all the time it can use.
PER_PARTED_TYPE = 16


def instance(jobs: int, *, distinct: bool, seed: int = 1) -> ShareProblem:
    """Draw an instance with four jobs for each three GPUs."""
    rng = np.random.default_rng(seed)
    count = jobs if distinct else KINDS
    speed = np.stack([np.ones(count), rng.uniform(1.5, 4, count), rng.uniform(2, 10, count)], axis=1)
    kind = np.arange(jobs) if distinct else rng.integers(0, KINDS, jobs)
    scale = rng.choice([1, 2, 4, 8], jobs, p=[0.7, 0.1, 0.15, 0.05])
    weights = rng.choice([1.0, 5.0], jobs, p=[0.8, 0.2])
    return ShareProblem(speed[kind] * rng.uniform(1, 50, count)[kind, None], scale, np.full(3, jobs // 4), weights)


def programs(problem: ShareProblem) -> dict[str, Callable[[], object]]:
    """Name what is timed."""
    rng = np.random.default_rng(2)
    jobs = problem.num_jobs
    steps = rng.uniform(1e3, 1e6, jobs)
    progress = Elapsed(rng.uniform(0, 1e5, jobs), steps, rng.uniform(0, 1e5, jobs))
    timed: dict[str, Callable[[], object]] = {
        "max-min": lambda: max_min(problem),
        "water filling": lambda: water_filling(problem),
        "makespan": lambda: makespan(problem, steps),
        "finish-time fairness": lambda: finish_time(problem, progress),
        "total throughput": lambda: total_throughput(problem),
    }
    if jobs <= 1024:
        timed["AlloX"] = lambda: allox(steps[:, None] / problem.throughput, np.asarray(problem.num_gpus, dtype=int))
    return timed


def cpu_s(run: Callable[[], object], repeat: int) -> float:
    """Return the least CPU time of some runs."""
    times = []
    for _ in range(repeat):
        start_s = time.process_time()
        run()
        times.append(time.process_time() - start_s)
    return min(times)


def draw(rows: list[tuple[str, int, str, float]], path: Path) -> None:
    """Plot CPU time over jobs."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.5), sharey=True, layout="constrained")
    for axis, mix in zip(axes, ("drawn", "distinct"), strict=True):
        for name in dict.fromkeys(row[2] for row in rows):
            points = [(jobs, seconds) for kind, jobs, program, seconds in rows if (kind, program) == (mix, name)]
            axis.plot(*zip(*points, strict=True), marker="o", label=name)
        axis.set(title=mix, xlabel="jobs", ylabel="CPU time (s)", xscale="log", yscale="log")
    axes[0].legend()
    figure.savefig(path)


def print_parts(jobs: int) -> None:
    """Print what solving in parts costs and saves."""
    print(f"{'mix':10}{'parts':>6}{'CPU s':>9}{'objective / whole':>19}")
    drawn = replace(instance(jobs, distinct=False), num_gpus=np.full(3, jobs // PER_PARTED_TYPE))
    single = replace(drawn, weights=np.ones(jobs), scale_factor=np.ones(jobs, dtype=np.int64))
    for mix, problem in (("drawn", drawn), ("one GPU", single)):
        whole = fair_value(problem, max_min(problem))
        for parts in (1, 2, 4, 8):
            start_s = time.process_time()
            shares = partitioned(problem, parts, lambda part, _: max_min(part), np.random.default_rng(3))
            seconds = time.process_time() - start_s
            print(f"{mix:10}{parts:6d}{seconds:9.3f}{fair_value(problem, shares) / whole:19.4f}", flush=True)


def main() -> None:
    """Print one line for each mix, size and program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=int, default=SIZES[-1])
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--parts", type=int, metavar="JOBS")
    args = parser.parse_args()
    one_thread_each()
    if args.parts:
        print_parts(args.parts)
        return
    rows = []
    print(f"{'mix':10}{'jobs':>6}  {'program':22}{'CPU s':>9}")
    for distinct in (False, True):
        for jobs in (size for size in SIZES if size <= args.largest):
            for name, run in programs(instance(jobs, distinct=distinct)).items():
                mix = "distinct" if distinct else "drawn"
                rows.append((mix, jobs, name, cpu_s(run, args.repeat)))
                print(f"{mix:10}{jobs:6d}  {name:22}{rows[-1][3]:9.3f}", flush=True)
    if args.plot:
        draw(rows, args.plot)


if __name__ == "__main__":
    main()
