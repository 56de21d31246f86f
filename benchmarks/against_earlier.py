"""Compare what whole traces cost with an earlier state of simsched, measured side by side in one run.

Usage: python benchmarks/against_earlier.py CHECKOUT [--jobs N] [--pairs N] [--seed N] [--policy NAME ...]

CHECKOUT is a folder with the earlier state, e.g. from `git worktree add --detach ../earlier 409727e`. The trace is made
once, by this state: a generated Philly of all final states at Philly's own rate, on a cluster like Philly's, 240 nodes
of 8 GPUs and 274 of 2. Then both states simulate it in turn, each time in a process of its own, with result tables
written to disk and nothing that fails, is shared or differs. The one that begins changes from pair to pair. Only the
user CPU time of the simulation counts, not that of imports and of reading the trace. Prints every pair, then by policy
the median of the ratios of the pairs and the ratio of the least times, which other load on the machine touches least.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
POLICIES: dict[str, dict[str, object]] = {
    "fifo": {},
    "slurm-backfill": {},
    "tiresias": {"queue_thresholds_gpu_s": [3200], "interval_s": None, "placement": "fragments"},
}


def make_trace(jobs: int, seed: int, path: Path) -> None:
    """Write a generated trace: a line of submission, GPUs and duration for each job."""
    from simsched.workload.generator import GeneratorOptions, generate_from_seed

    table = generate_from_seed(GeneratorOptions(statuses="all", jobs=jobs), seed).table
    table["duration_s"] = table["duration_s"].clip(lower=1).round().astype("int64")
    path.write_text(
        json.dumps([table["submit_time_s"].tolist(), table["num_gpus"].tolist(), table["duration_s"].tolist()])
    )


def simulate_here(policy: str, trace: Path, seed: int) -> dict[str, float | str]:
    """Simulate the trace by the simsched that this process has; return what it cost and what came of it."""
    import importlib

    import pandas as pd  # which Arrow would load at its first table

    import simsched

    # By their modules, since earlier states have no doors.
    from simsched.engine.options import EngineOptions
    from simsched.engine.simulation import simulate
    from simsched.model.cluster import Cluster, NodeGroup
    from simsched.model.job import JobSpec
    from simsched.results.reader import read_table
    from simsched.results.writer import TableWriter
    from simsched.testing.builders import Applications

    rows = zip(*json.loads(trace.read_text()), strict=True)
    specs = [
        JobSpec(f"job-{index:06}", submit, gpus, duration_s=duration)
        for index, (submit, gpus, duration) in enumerate(rows)
    ]
    root = Path(simsched.__file__).parent.parent
    declared = tomllib.loads((root / "pyproject.toml").read_text())["project"]["entry-points"]["simsched.policies"]
    module, name = declared[policy].split(":")  # each state has its policies where its own pyproject says
    chosen = getattr(importlib.import_module(module), name)(**POLICIES[policy])
    cluster = Cluster.of(NodeGroup(240, 8), NodeGroup(274, 2))
    with tempfile.TemporaryDirectory() as folder:
        begin = resource.getrusage(resource.RUSAGE_SELF).ru_utime
        with TableWriter(Path(folder)) as writer:
            simulate(cluster, specs, Applications(), chosen, EngineOptions(restart_delay_s=0), seed, writer)
        cpu_s = resource.getrusage(resource.RUSAGE_SELF).ru_utime - begin
        ends = read_table(Path(folder), "jobs", ["end_time_s"])["end_time_s"]
    total_s = float(pd.Series(ends).sum())
    return {"cpu_s": cpu_s, "completions_s": total_s, "from": str(root)}


def measure(checkout: Path, policy: str, trace: Path, seed: int) -> dict[str, float | str]:
    """Simulate the trace by the simsched of a checkout, in a process of its own."""
    command = [sys.executable, __file__, str(checkout), "--here", policy, str(trace), "--seed", str(seed)]
    paths = os.pathsep.join(str(path) for path in (checkout, checkout / "policies"))
    environment = {**os.environ, "SIMSCHED_CHECK_INVARIANTS": "0", "PYTHONPATH": paths, "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    found: dict[str, float | str] = json.loads(done.stdout)
    assert found.pop("from") == str(checkout), "another simsched was imported than that of the checkout"
    return found


def compare(earlier: Path, policy: str, trace: Path, pairs: int, seed: int) -> None:
    """Measure pairs of runs, and print them with their ratios."""
    times: dict[Path, list[float]] = {earlier: [], HERE: []}
    for pair in range(pairs):
        order = (earlier, HERE) if pair % 2 == 0 else (HERE, earlier)
        found = {checkout: measure(checkout, policy, trace, seed) for checkout in order}
        for checkout in order:
            times[checkout].append(float(found[checkout]["cpu_s"]))
        same = "same" if found[earlier]["completions_s"] == found[HERE]["completions_s"] else "DIFFERENT"
        before, now = times[earlier][-1], times[HERE][-1]
        print(
            f"{policy:<9} {pair + 1:>4} {before:>10.2f} {now:>8.2f} {now / before:>7.3f}  {same} completions",
            flush=True,
        )
    ratios = [now / before for before, now in zip(times[earlier], times[HERE], strict=True)]
    least = min(times[HERE]) / min(times[earlier])
    print(
        f"{policy}: median of the ratios {statistics.median(ratios):.3f}, ratio of the least times {least:.3f}",
        flush=True,
    )


def main() -> None:
    """Make the trace, then measure policy by policy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="a checkout of the earlier state")
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--policy", action="append", choices=list(POLICIES), help="[default: all]")
    parser.add_argument("--here", nargs=2, metavar=("POLICY", "TRACE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.here:
        print(json.dumps(simulate_here(given.here[0], Path(given.here[1]), given.seed)))
        return
    print(f"{'policy':<9} pair  earlier s    now s   ratio")
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        make_trace(given.jobs, given.seed, trace)
        for policy in given.policy or POLICIES:
            compare(given.checkout.resolve(), policy, trace, given.pairs, given.seed)


if __name__ == "__main__":
    main()
