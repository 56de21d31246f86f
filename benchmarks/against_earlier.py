"""Compare what whole traces cost with an earlier state of simsched, measured side by side in one run.

Usage: python benchmarks/against_earlier.py CHECKOUT [--jobs N] [--pairs N] [--seed N] [--policy NAME ...] [--nodes N]

CHECKOUT is a folder with the earlier state, e.g. from `git worktree add --detach ../earlier 409727e`. The trace is made
once, by this state: a generated Philly of all final states at Philly's own rate, on a cluster like Philly's, 240 nodes
of 8 GPUs and 274 of 2; with `--nodes`, a log of log-normal durations and of users' limits that asks for 0.85 of so many
nodes of 8 GPUs. Then both states simulate it in turn, each time in a process of its own, with result tables
written to disk and nothing that fails, is shared or differs. The one that begins changes from pair to pair. Only the
user CPU time of the simulation counts, not that of imports and of reading the trace; the largest memory is that of the
whole process. Prints every pair and whether the tables have the same bytes, then by policy the median of the ratios of
the pairs and the ratio of the least times, which other load on the machine touches least.
"""

import argparse
import hashlib
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


def make_trace(jobs: int, seed: int, nodes: int | None, path: Path) -> None:
    """Write a trace: the submissions, GPUs, durations and limits of its jobs."""
    if nodes is not None:
        from compare import draw

        path.write_text(json.dumps(list(zip(*draw(jobs, nodes, seed), strict=True))))
        return
    from simsched.workload.generator import GeneratorOptions, generate_from_seed

    table = generate_from_seed(GeneratorOptions(statuses="all", jobs=jobs), seed).table
    table["duration_s"] = table["duration_s"].clip(lower=1).round().astype("int64")
    columns = [table[name].tolist() for name in ("submit_time_s", "num_gpus", "duration_s")]
    path.write_text(json.dumps([*columns, [None] * jobs]))


def simulate_here(policy: str, trace: Path, seed: int, nodes: int | None) -> dict[str, float | str]:
    """Simulate the trace by the simsched that this process has; return what it cost and what came of it."""
    import importlib

    import simsched

    # By their modules, since earlier states have no doors.
    from simsched.engine.options import EngineOptions
    from simsched.engine.simulation import simulate
    from simsched.model.cluster import Cluster, NodeGroup
    from simsched.model.job import JobSpec
    from simsched.results.writer import TableWriter
    from simsched.testing.builders import Applications

    rows = zip(*json.loads(trace.read_text()), strict=True)
    specs = [
        JobSpec(f"job-{index:06}", submit, gpus, duration_s=duration, time_limit_s=limit)
        for index, (submit, gpus, duration, limit) in enumerate(rows)
    ]
    root = Path(simsched.__file__).parent.parent
    declared = tomllib.loads((root / "pyproject.toml").read_text())["project"]["entry-points"]["simsched.policies"]
    module, name = declared[policy].split(":")  # each state has its policies where its own pyproject says
    chosen = getattr(importlib.import_module(module), name)(**POLICIES[policy])
    cluster = Cluster.of(NodeGroup(240, 8), NodeGroup(274, 2)) if nodes is None else Cluster.uniform(nodes, 8)
    with tempfile.TemporaryDirectory() as folder:
        begin = resource.getrusage(resource.RUSAGE_SELF).ru_utime
        with TableWriter(Path(folder)) as writer:
            simulate(cluster, specs, Applications(), chosen, EngineOptions(restart_delay_s=0), seed, writer)
        used = resource.getrusage(resource.RUSAGE_SELF)
        cpu_s, peak = used.ru_utime - begin, used.ru_maxrss / 1024
        digest = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(Path(folder).iterdir()))).hexdigest()
    return {"cpu_s": cpu_s, "mib": peak, "tables": digest, "from": str(root)}


def measure(checkout: Path, policy: str, trace: Path, given: argparse.Namespace) -> dict[str, float | str]:
    """Simulate the trace by the simsched of a checkout, in a process of its own."""
    command = [sys.executable, __file__, str(checkout), "--here", policy, str(trace), "--seed", str(given.seed)]
    command += [] if given.nodes is None else ["--nodes", str(given.nodes)]
    paths = os.pathsep.join(str(path) for path in (checkout, checkout / "policies"))
    environment = {**os.environ, "SIMSCHED_CHECK_INVARIANTS": "0", "PYTHONPATH": paths, "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    found: dict[str, float | str] = json.loads(done.stdout)
    assert found.pop("from") == str(checkout), "another simsched was imported than that of the checkout"
    return found


def compare(earlier: Path, policy: str, trace: Path, given: argparse.Namespace) -> None:
    """Measure pairs of runs, and print them with their ratios."""
    times: dict[Path, list[float]] = {earlier: [], HERE: []}
    for pair in range(given.pairs):
        order = (earlier, HERE) if pair % 2 == 0 else (HERE, earlier)
        found = {checkout: measure(checkout, policy, trace, given) for checkout in order}
        for checkout in order:
            times[checkout].append(float(found[checkout]["cpu_s"]))
        same = "same" if found[earlier]["tables"] == found[HERE]["tables"] else "DIFFERENT"
        memory = f"{found[earlier]['mib']:.0f} and {found[HERE]['mib']:.0f} MiB"
        before, now = times[earlier][-1], times[HERE][-1]
        print(
            f"{policy:<9} {pair + 1:>4} {before:>10.2f} {now:>8.2f} {now / before:>7.3f}  {same} tables, {memory}",
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
    parser.add_argument("--nodes", type=int, help="so many nodes of 8 GPUs, and a log that asks for 0.85 of them")
    parser.add_argument("--policy", action="append", choices=list(POLICIES), help="[default: all]")
    parser.add_argument("--here", nargs=2, metavar=("POLICY", "TRACE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.here:
        print(json.dumps(simulate_here(given.here[0], Path(given.here[1]), given.seed, given.nodes)))
        return
    print(f"{'policy':<9} pair  earlier s    now s   ratio")
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        make_trace(given.jobs, given.seed, given.nodes, trace)
        for policy in given.policy or POLICIES:
            compare(given.checkout.resolve(), policy, trace, given)


if __name__ == "__main__":
    main()
