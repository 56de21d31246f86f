"""Run the Pollux search on captured scheduling rounds and compare it with what was published.

Usage: python benchmarks/pollux_rounds.py DIR [--method hybrid|genetic] [--gap] [--seed N] [--effort X] [--quiet]

DIR holds *.jsonl files, a round a line: nodes, gpus_per_node, restart_delay_s, fairness, published_fitness and jobs.
Times are on one core after compilation; --gap also bounds the optimum of each round (not part of the time).
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from simsched_policies.adaptive.pollux.search import AllocationProblem, SearchOptions, search, upper_bound, violations

BUSY_JOBS = 8


def read_rounds(folder: Path) -> Iterator[tuple[str, float, AllocationProblem]]:
    """Yield the name, the published fitness and the problem of every round in a folder."""
    for path in sorted(folder.glob("*.jsonl")):
        with path.open() as lines:
            for line in lines:
                record = json.loads(line)
                yield f"{path.stem}:{record['round']}", record["published_fitness"], to_round(record)


def to_round(record: dict[str, Any]) -> AllocationProblem:
    """Build the problem of one line."""
    jobs, delay = record["jobs"], record["restart_delay_s"]
    caps = np.array([job["max_gpus"] for job in jobs])
    current = np.array([job["current"] for job in jobs])
    speedup = np.zeros((len(jobs), 2, 1 + int(max(caps.max(), current.sum(axis=1).max()))))
    for table, job in zip(speedup, jobs, strict=True):
        for row, first, key in ((table[0], 1, "speedup_one_node"), (table[1], 2, "speedup_multi_node")):
            values = job[key][: max(0, row.size - first)]
            row[first : first + len(values)] = values
    ages = np.array([job["age_s"] for job in jobs], dtype=float)
    restarts = np.array([job["restarts"] for job in jobs])
    return AllocationProblem(
        speedup=speedup,
        max_gpus=caps,
        node_gpus=np.full(record["nodes"], record["gpus_per_node"]),
        current=current,
        restart_factor=np.maximum(ages - delay * restarts, 0) / (ages + delay),
        weight=1 / record["gpus_per_node"],
        fairness=record["fairness"],
    )


def main() -> int:
    """Print a line a round, then a summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--method", choices=["hybrid", "genetic"], default="hybrid")
    parser.add_argument("--gap", action="store_true", help="bound the optimum of every round")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--effort", type=float, default=1.0)
    parser.add_argument("--quiet", action="store_true", help="print the summary only")
    args = parser.parse_args()
    rounds = list(read_rounds(args.folder))
    if not rounds:
        print(f"no rounds in {args.folder}", file=sys.stderr)
        return 2
    options = SearchOptions(effort=args.effort)
    search(rounds[0][2], method=args.method)  # compiles
    rows = []
    if not args.quiet:
        print(f"{'round':>16} {'jobs':>5} {'published':>10} {'reached':>10} {'ratio':>9} {'gap %':>8} {'ms':>8}")
    for i, (name, published, problem) in enumerate(rounds):
        start = time.perf_counter()
        found = search(problem, method=args.method, seed_or_rng=args.seed * len(rounds) + i, options=options)
        taken = 1000 * (time.perf_counter() - start)
        if violations(problem, found.allocation):
            print(f"{name}: infeasible: {violations(problem, found.allocation)[0]}", file=sys.stderr)
            return 1
        bound = upper_bound(problem, allocation=found.allocation) if args.gap else np.nan
        gap = 100 * (bound - found.fitness) / bound
        ratio = found.fitness / published
        rows.append((problem.jobs, ratio, gap, taken))
        if not args.quiet:
            numbers = f"{published:10.6f} {found.fitness:10.6f} {ratio:9.6f} {gap:8.4f} {taken:8.2f}"
            print(f"{name:>16} {problem.jobs:5d} {numbers}")
    summarise(args.method, np.array(rows))
    return 0


def summarise(method: str, rows: np.ndarray[Any, np.dtype[np.float64]]) -> None:
    """Print the figures of all rounds; ``rows`` holds jobs, ratio, gap in % and milliseconds."""
    jobs, ratio, gap, taken = rows.T
    busy = jobs >= BUSY_JOBS
    some = busy if busy.any() else np.ones_like(busy)
    print(f"\n{method}: {len(rows)} rounds, {busy.sum()} busy ({BUSY_JOBS} jobs or more)")
    print(f"fitness at least published (to 1e-6)  {100 * np.mean(ratio >= 1 - 1e-6):.2f} % of rounds")
    print(f"ratio to published                    least {ratio.min():.5f}, greatest {ratio.max():.5f}")
    print(f"mean ratio over busy rounds           {ratio[some].mean():.5f}")
    print(f"time, ms                              median busy {np.median(taken[some]):.2f}, worst {taken.max():.2f}")
    print(f"time in all                           {taken.sum() / 1000:.2f} s")
    if not np.isnan(gap).any():
        proved = 100 * np.mean(gap <= 0.001)
        print(f"gap to the bound                      mean {gap.mean():.4f} %, worst {gap.max():.4f} %")
        print(f"optimal to 1e-5                       {proved:.2f} % of rounds")


if __name__ == "__main__":
    sys.exit(main())
