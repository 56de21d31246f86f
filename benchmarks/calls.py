"""Count the function calls that a job costs under each policy: a count is the same on every machine.

Usage: python benchmarks/calls.py [--jobs N] [--apart]

The jobs are a generated Philly of all final states with at most 64 GPUs, spread so that they ask for 0.65 of 64 nodes
of 8 GPUs. Only `Simulation.run` counts, by `cProfile`: functions of Python and of C, SimPy's own included. The same
jobs run once before, so that nothing is imported meanwhile. With `--apart` it prints instead the CPU time of FIFO in a
process of its own behind messages, beside that of FIFO in this process, in pairs.
"""

import argparse
import cProfile
import os
from collections.abc import Callable
from functools import partial

from simsched_policies.external.bridge import Bridged
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


def cpu_apart(jobs: list[JobSpec], walled: bool = True) -> tuple[float, float, float]:
    """Return the CPU seconds of FIFO here, what bridging it adds here per decision, and that of both processes."""
    times = []
    for make in (Fifo, partial(Bridged, "fifo", walled=walled)):
        policy, options = make(), EngineOptions(restart_delay_s=0)
        simulation = Simulation(Cluster.uniform(NODES, GPUS), jobs, Applications(), options, 1, policy)
        began = os.times()
        simulation.run(policy)
        policy.artifacts()  # ends the process
        times.append([after - before for after, before in zip(os.times(), began, strict=True)])
    decisions = len(simulation.recorder.decisions)
    here_s, added_s = sum(times[0][:2]), sum(times[1][:2]) - sum(times[0][:2])
    return here_s, added_s / decisions, sum(times[1][:4])


def main() -> None:
    """Print the calls of each policy beside what they should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--apart", action="store_true")
    given = parser.parse_args()
    jobs = jobs_of(given.jobs)
    for _ in range(3 * given.apart):
        here_s, added_s, both_s = cpu_apart(jobs)
        told = f"FIFO {here_s:.2f} s, apart {both_s:.2f} s (x {both_s / here_s:.1f})"
        print(f"{told}, {1e6 * added_s:.0f} us a decision more in this process", flush=True)
    if given.apart:
        return
    print(f"{'policy':<9} calls per job  at most")
    for name, (make, most) in BARS.items():
        print(f"{name:<9} {calls_per_job(make, jobs):>13.1f}  {most:>7}", flush=True)


if __name__ == "__main__":
    main()
