"""Time a continuous point of Gavel's evaluation over the number of jobs: max-min fairness, jobs of one GPU.

Usage: python benchmarks/gavel_continuous.py RATES.json [--rate JOBS_PER_HOUR] [--jobs N ...] [--policy NAME]
           [--seed N] [--at-once N] [--profile]

RATES.json is Gavel's simulation_throughputs.json. One thread, CPU seconds of the simulation alone. The window is that
of the published means, jobs 4,000 to 4,999; jobs must go on arriving until these have ended (150 more at 2 an hour).
"""

import argparse
import cProfile
import math
import pstats
import time
from collections.abc import Callable
from pathlib import Path
from statistics import mean

from simsched_policies.rounds.gavel.fifo import GavelFifo
from simsched_policies.rounds.gavel.max_min import MaxMin

from simsched.applications import ApplicationCatalogue
from simsched.engine import EngineOptions, MemoryRecorder, simulate
from simsched.model import Cluster, NodeGroup
from simsched.policy import Policy
from simsched.threads import one_thread_each
from simsched.workload import WorkloadOptions, make_workload

POLICIES: dict[str, Callable[[], Policy]] = {
    "max-min": MaxMin,
    "max-min-agnostic": lambda: MaxMin(speeds="none"),
    "fifo-aware": lambda: GavelFifo(speeds="true"),
}
WINDOW = range(4000, 5000)


def measured(rates: Path, options: WorkloadOptions, seed: int, policy: Policy) -> tuple[float, int, float, float]:
    """Simulate; return CPU seconds, decisions, and the mean JCT of all jobs and of the window in hours."""
    table = ApplicationCatalogue.load(rates)
    workload = make_workload(options, seed, tabulated=table.tabulated)
    cluster = Cluster.of(*(NodeGroup(36, 1, gpu_type) for gpu_type in ("v100", "p100", "k80")))
    records = MemoryRecorder()
    begin_s = time.process_time()
    simulate(cluster, workload, table, policy, EngineOptions(restart_delay_s=0, tick_s=0), seed, records)
    cpu_s = time.process_time() - begin_s
    jcts = {int(job.job_id): job.jct_s / 3600 for job in records.jobs}
    window = [jcts[job] for job in WINDOW if job in jcts]
    return cpu_s, len(records.decisions), mean(jcts.values()), mean(window) if len(window) == len(WINDOW) else math.nan


def main() -> None:
    """Print a row for each number of jobs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rates", type=Path)
    parser.add_argument("--rate", type=float, default=4.0)
    parser.add_argument("--jobs", type=int, nargs="+", default=[300, 1000, 5000])
    parser.add_argument("--policy", choices=sorted(POLICIES), default="max-min")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at-once", type=int, default=0)
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    one_thread_each()
    print("jobs decisions cpu_s jct_mean_h window_jct_mean_h")
    for jobs in given.jobs:
        profile = cProfile.Profile(time.process_time)
        if given.profile:
            profile.enable()
        options = WorkloadOptions(
            recipe="gavel", jobs=jobs, jobs_per_hour=given.rate, multi_gpu=False, at_once=given.at_once
        )
        cpu_s, decisions, jct_h, window_h = measured(given.rates, options, given.seed, POLICIES[given.policy]())
        profile.disable()
        print(f"{jobs} {decisions} {cpu_s:.2f} {jct_h:.3f} {window_h:.4f}")
        if given.profile:
            pstats.Stats(profile).sort_stats("cumulative").print_stats(30)


if __name__ == "__main__":
    main()
