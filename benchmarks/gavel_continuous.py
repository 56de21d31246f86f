"""Time a continuous point of Gavel's evaluation over the number of jobs: max-min fairness, jobs of one GPU.

Usage: python benchmarks/gavel_continuous.py RATES.json [--rate JOBS_PER_HOUR] [--jobs N ...] [--profile]

RATES.json is Gavel's simulation_throughputs.json. One thread, CPU seconds of the simulation alone.
"""

import argparse
import cProfile
import pstats
import time
from pathlib import Path

from simsched_policies.gavel.max_min import MaxMin

from simsched.applications.catalogue import ApplicationCatalogue
from simsched.engine.options import EngineOptions
from simsched.engine.records import MemoryRecorder
from simsched.engine.simulation import simulate
from simsched.model.cluster import Cluster, NodeGroup
from simsched.threads import one_thread_each
from simsched.workload.source import WorkloadOptions, make_workload


def measured(rates: Path, jobs: int, jobs_per_hour: float) -> tuple[float, int, float]:
    """Simulate; return CPU seconds, decisions and the mean JCT in hours."""
    table = ApplicationCatalogue.load(rates)
    options = WorkloadOptions(recipe="gavel", jobs=jobs, jobs_per_hour=jobs_per_hour, multi_gpu=False)
    workload = make_workload(options, 0, tabulated=table.tabulated)
    cluster = Cluster.of(*(NodeGroup(36, 1, gpu_type) for gpu_type in ("v100", "p100", "k80")))
    records = MemoryRecorder()
    begin_s = time.process_time()
    simulate(cluster, workload, table, MaxMin(), EngineOptions(restart_delay_s=0, tick_s=0), 0, records)
    cpu_s = time.process_time() - begin_s
    return cpu_s, len(records.decisions), sum(job.jct_s for job in records.jobs) / len(records.jobs) / 3600


def main() -> None:
    """Print a row for each number of jobs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rates", type=Path)
    parser.add_argument("--rate", type=float, default=4.0)
    parser.add_argument("--jobs", type=int, nargs="+", default=[300, 1000, 5000])
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    one_thread_each()
    print("jobs decisions cpu_s jct_mean_h")
    for jobs in given.jobs:
        profile = cProfile.Profile(time.process_time)
        if given.profile:
            profile.enable()
        cpu_s, decisions, jct_h = measured(given.rates, jobs, given.rate)
        profile.disable()
        print(f"{jobs} {decisions} {cpu_s:.2f} {jct_h:.3f}")
        if given.profile:
            pstats.Stats(profile).sort_stats("cumulative").print_stats(30)


if __name__ == "__main__":
    main()
