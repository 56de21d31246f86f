"""Time whole traces from 1,000 to 1,000,000 jobs under FIFO and Tiresias-L, with results written to disk.

Usage: python benchmarks/trace_scale.py [--largest JOBS] [--seed N] [--plot FILE.png]

The jobs are those of a generated Philly, of all final states, at Philly's own rate: more jobs make the trace longer and
not denser. The cluster is like Philly's, 240 nodes of 8 GPUs and 274 of 2. Every line is measured in a process
of its own; CPU time is that of the simulation with its result tables, without making the trace.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SIZES = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
POLICIES = {
    "FIFO": ("fifo", {}),
    "Tiresias-L": ("tiresias", {"queue_thresholds_gpu_s": [3200], "interval_s": None, "placement": "fragments"}),
}
COLUMNS = ("jobs", "policy", "cpu_s", "us_per_job", "trace_s", "mib", "decisions", "restarts")


def measure(jobs: int, label: str, seed: int) -> dict[str, float | str]:
    """Run one size under one policy in this process."""
    from simsched.engine import EngineOptions, simulate
    from simsched.model import Cluster, NodeGroup
    from simsched.policy import registry
    from simsched.results import TableWriter, read_table
    from simsched.testing import Applications
    from simsched.workload.generator import GeneratorOptions, generate_from_seed
    from simsched.workload.recipes import specs_of

    begin = time.process_time()
    table = generate_from_seed(GeneratorOptions(statuses="all", jobs=jobs), seed).table
    specs = specs_of(table.assign(duration_s=table["duration_s"].clip(lower=1).round().astype("int64")))
    del table
    trace_s = time.process_time() - begin
    name, params = POLICIES[label]
    cluster = Cluster.of(NodeGroup(240, 8), NodeGroup(274, 2))
    with tempfile.TemporaryDirectory() as folder:
        begin = time.process_time()
        with TableWriter(Path(folder)) as writer:
            options = EngineOptions(restart_delay_s=0)
            simulate(cluster, specs, Applications(), registry.load(name)(**params), options, seed, writer)
        cpu_s = time.process_time() - begin
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        restarts = int(read_table(Path(folder), "jobs", ["restarts"])["restarts"].sum())
        decisions = len(read_table(Path(folder), "rounds", ["time_s"]))
    values = (jobs, label, cpu_s, 1e6 * cpu_s / jobs, trace_s, peak, decisions, restarts)
    return dict(zip(COLUMNS, values, strict=True))


def measure_apart(jobs: int, label: str, seed: int) -> dict[str, float | str]:
    """Run one size under one policy in a process of its own."""
    command = [sys.executable, __file__, "--one", str(jobs), label, "--seed", str(seed)]
    environment = {**os.environ, "SIMSCHED_CHECK_INVARIANTS": "0"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    found: dict[str, float | str] = json.loads(done.stdout)
    return found


def plot(rows: list[dict[str, float | str]], file: Path) -> None:
    """Draw CPU time (beside a proportional line) and memory against jobs."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for label, marker in zip(POLICIES, "os", strict=True):
        own = [row for row in rows if row["policy"] == label]
        for axis, column in zip(axes, ("cpu_s", "mib"), strict=True):
            axis.plot([r["jobs"] for r in own], [r[column] for r in own], marker=marker, label=label)
    last = rows[-1]
    sizes = [rows[0]["jobs"], last["jobs"]]
    axes[0].plot(sizes, [last["cpu_s"] * n / last["jobs"] for n in sizes], "--", color="grey", label="proportional")
    for axis, title in zip(axes, ("CPU time of the simulation (s)", "largest memory (MiB)"), strict=True):
        axis.set(xscale="log", xlabel="jobs in the trace", title=title)
        axis.grid(alpha=0.3)
        axis.legend()
    axes[0].set_yscale("log")
    axes[1].set_ylim(bottom=0)
    figure.suptitle("Whole traces on 2,468 GPUs, results written to disk")
    figure.savefig(file, dpi=150)


def main() -> None:
    """Measure, print a line for each size and policy, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=int, default=SIZES[-1], help="stop at so many jobs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plot", type=Path, help="write a figure there")
    parser.add_argument("--one", nargs=2, metavar=("JOBS", "POLICY"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(int(given.one[0]), given.one[1], given.seed)))
        return
    titles = ("policy    ", "  CPU s", "us/job", "trace s", "  MiB", "decisions", "restarts")
    print("     jobs", *titles, sep="  ")
    rows = []
    for jobs in (size for size in SIZES if size <= given.largest):
        for label in POLICIES:
            row = measure_apart(jobs, label, given.seed)
            rows.append(row)
            print(
                f"{jobs:>9}  {label:<10}  {row['cpu_s']:>7.2f}  {row['us_per_job']:>6.0f}  {row['trace_s']:>7.2f}"
                f"  {row['mib']:>5.0f}  {row['decisions']:>9}  {row['restarts']}",
                flush=True,
            )
    if given.plot:
        plot(rows, given.plot)


if __name__ == "__main__":
    main()
