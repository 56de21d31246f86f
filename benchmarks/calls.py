"""Count the function calls that a job costs under each policy: a count is the same on every machine.

Usage: python benchmarks/calls.py [--jobs N]

The jobs are a generated Philly of all final states with at most 64 GPUs, spread so that they ask for 0.65 of 64 nodes
of 8 GPUs. Only `Simulation.run` counts, by `cProfile`: functions of Python and of C, SimPy's own included. The same
jobs run once before, so that nothing is imported meanwhile.
"""

import argparse
import cProfile
from collections.abc import Callable

from simsched_policies.production.slurm.policy import SlurmBackfill
from simsched_policies.queues.by_key import Fifo, Las, Srtf
from simsched_policies.queues.tiresias import Tiresias

from simsched.engine import EngineOptions, Simulation
from simsched.model import Cluster, JobSpec
from simsched.policy import Policy
from simsched.testing.builders import Applications
from simsched.workload.generator import GeneratorOptions, generate_from_seed

NODES, GPUS, LOAD = 64, 8, 0.65
#: The policies, with the calls that a job should cost at most.
BARS: dict[str, tuple[Callable[[], Policy], int]] = {
    "FIFO": (Fifo, 120),
    "EASY": (SlurmBackfill, 150),
    "SRTF": (Srtf, 220),
    "Tiresias": (Tiresias, 600),
    "LAS": (Las, 900),
}


def jobs_of(count: int) -> list[JobSpec]:
    """Return the jobs of a generated Philly, in order of submission."""
    table = generate_from_seed(GeneratorOptions(statuses="all", jobs=count), 1).table
    table = table[table.num_gpus <= NODES]
    durations_s = table.duration_s.clip(lower=1).round().astype("int64")
    wanted_gpu_s = (table.num_gpus * durations_s).sum()
    stretch = wanted_gpu_s / (NODES * GPUS * LOAD) / table.submit_time_s.max()
    submits_s = (table.submit_time_s * stretch).round().astype("int64")
    rows = zip(submits_s.tolist(), table.num_gpus.tolist(), durations_s.tolist(), strict=True)
    return [JobSpec(f"job-{i:06}", submit, gpus, duration_s=length) for i, (submit, gpus, length) in enumerate(rows)]


def calls_per_job(make: Callable[[], Policy], jobs: list[JobSpec]) -> float:
    """Return the function calls of a run, divided by its jobs."""
    for profile in (cProfile.Profile(), cProfile.Profile()):
        policy = make()
        options = EngineOptions(restart_delay_s=0)
        simulation = Simulation(Cluster.uniform(NODES, GPUS), jobs, Applications(), options, 1, policy)
        profile.enable()
        simulation.run(policy)
        profile.disable()
    return sum(entry.callcount for entry in profile.getstats()) / len(jobs)  # pstats merges what has the same name


def main() -> None:
    """Print the calls of each policy beside what they should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=20_000)
    jobs = jobs_of(parser.parse_args().jobs)
    print(f"{'policy':<9} calls per job  at most")
    for name, (make, most) in BARS.items():
        print(f"{name:<9} {calls_per_job(make, jobs):>13.1f}  {most:>7}", flush=True)


if __name__ == "__main__":
    main()
