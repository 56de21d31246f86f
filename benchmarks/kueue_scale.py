"""Measure the cost of Kueue's admission: on the load of its own performance test, and on many queues in five levels.

Run as `python benchmarks/kueue_scale.py [own|tree] [--jobs N] [--queues N] [--nodes N] [--load SHARE] [--fans N...]
[--topology WISH]`. `own` is the baseline of Kueue's test/performance/scheduler: 5 cohorts of 6 queues with 20 of quota
each, that borrow up to 100 from their cohort and reclaim, and for every queue 350 small, 100 medium and 50 large
workloads; a simulated second stands for a tenth of one, since workloads last whole seconds. `tree` has queues at the
leaves of cohorts in four further levels, with lognormal durations, on nodes in racks, rows and halls; with `--fans 5
--queues 30` it has 30 queues in 5 cohorts.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
from simsched_policies.kubernetes.kueue.policy import Kueue

from simsched.applications import ApplicationsOptions, catalogue
from simsched.engine import AllocationRecord, EngineOptions, JobRecord, Recorder, simulate
from simsched.model import Cluster, JobSpec
from simsched.model.cluster import Level, Tenant
from simsched.model.topology import with_levels

PER_NODE = 8
#: For each class: number, interarrival and run time in tenths of a second, priority and request.
CLASSES = {"small": (350, 1, 2, 50, 1), "medium": (100, 5, 5, 100, 5), "large": (50, 12, 10, 200, 20)}
SIZES, SHARES = (1, 2, 4, 8, 16, 64), (0.6, 0.12, 0.1, 0.13, 0.04, 0.01)
#: Cohorts below the root, by level; queues are below the last.
FANS = (4, 3, 4)


class Kept(Recorder):
    """Records the starts and ends of jobs, and the total that they held."""

    def __init__(self) -> None:
        self.waits: dict[str, float] = {}
        self.end_s = 0.0
        self.held_s = 0.0
        self.restarts = 0

    def job(self, record: JobRecord) -> None:
        """Record the wait of a job."""
        self.waits[record.job_id] = record.queueing_s
        self.end_s = max(self.end_s, record.end_time_s)
        self.restarts += record.restarts

    def allocation(self, record: AllocationRecord) -> None:
        """Sum what was held."""
        self.held_s += (record.end_s - record.start_s) * record.gpus


def own() -> tuple[Cluster, list[JobSpec], Kueue]:
    """Return Kueue's own baseline: cohorts that share nothing with each other, on nodes of 20."""
    tenants, jobs = {}, []
    for i in range(5):
        tenants[f"cohort-{i}"] = Tenant(gpus=0, borrows=False, lends=0)
        for j in range(6):
            queue = f"queue-{i}-{j}"
            tenants[queue] = Tenant(gpus=20, max_gpus=120, parent=f"cohort-{i}")
            for kind, (count, every_s, lasts_s, priority, asks) in CLASSES.items():
                jobs += [
                    JobSpec(f"{queue}-{kind}-{k}", k * every_s, asks, duration_s=lasts_s, tenant=queue,
                            priority=priority)
                    for k in range(1, count + 1)
                ]  # fmt: skip
    jobs.sort(key=lambda job: (job.submit_time_s, job.id))
    return Cluster.uniform(30, 20, "gpu"), jobs, Kueue(tenants)


def tree(given: argparse.Namespace) -> tuple[Cluster, list[JobSpec], Kueue]:
    """Return queues in five levels of cohorts and queues, on nodes in three levels above them."""
    rng = np.random.default_rng(1)
    total = given.nodes * PER_NODE
    tenants: dict[str, Tenant] = {}
    lowest = [""]
    for depth, fan in enumerate(given.fans):
        above, lowest = lowest, []
        for parent in above:
            for i in range(fan):
                name = f"{parent or 'cohort'}-{i}"
                tenants[name] = Tenant(parent=parent) if depth else Tenant()
                lowest.append(name)
    for i in range(given.queues):
        name = f"queue-{i:03d}"
        tenants[name] = Tenant(gpus=total // given.queues, parent=lowest[i % len(lowest)])
    gpus = rng.choice(SIZES, size=given.jobs, p=SHARES)
    durations = np.clip(rng.lognormal(7.5, 1.6, size=given.jobs), 10, 5 * 86400).astype(int)
    span = float((gpus * durations).sum()) / (total * given.load)
    submits = np.sort((rng.random(given.jobs) * span).astype(int))
    weights = rng.dirichlet(np.full(given.queues, 1.0))
    queues, priorities = rng.choice(given.queues, given.jobs, p=weights), rng.choice((0, 50, 100), given.jobs)
    rows = zip(submits.tolist(), gpus.tolist(), durations.tolist(), queues.tolist(), priorities.tolist(), strict=True)
    jobs = [
        JobSpec(f"j{i}", at, asks, duration_s=lasts, tenant=f"queue-{queue:03d}", priority=priority)
        for i, (at, asks, lasts, queue, priority) in enumerate(rows)
    ]
    sizes = {"rack": 20, "row": 100, "hall": 500}
    levels = [
        Level(name, tuple(tuple(range(at, min(at + size, given.nodes))) for at in range(0, given.nodes, size)))
        for name, size in sizes.items()
    ]
    return (
        with_levels(Cluster.uniform(given.nodes, PER_NODE, "gpu"), levels),
        jobs,
        Kueue(tenants, topology=given.topology),
    )


def main() -> None:
    """Replay and print one line of results, for `own` also the use of quota and the waits of each class."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("load_of", nargs="?", choices=("own", "tree"), default="own")
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--queues", type=int, default=200)
    parser.add_argument("--nodes", type=int, default=2_000)
    parser.add_argument("--load", type=float, default=0.95)
    parser.add_argument("--fans", type=int, nargs="+", default=FANS, help="cohorts of 'tree' below each, by level")
    parser.add_argument("--topology", help="such as 'preferred rack': jobs of 'tree' are placed by topology")
    given = parser.parse_args()
    cluster, jobs, policy = own() if given.load_of == "own" else tree(given)
    options = EngineOptions(restart_delay_s=0)
    kept = Kept()
    began = time.process_time()
    simulate(cluster, jobs, catalogue(ApplicationsOptions()), policy, options, 1, kept)
    spent = time.process_time() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    use = kept.held_s / (kept.end_s * sum(node.gpus for node in cluster.nodes))
    print(f"{len(jobs)} workloads: {spent:.1f} s CPU, {memory:.2f} GiB, {kept.end_s:.1f} s simulated,")
    print(f"{100 * use:.1f} % of the quota in use, {kept.restarts} preemptions")
    for kind in CLASSES if given.load_of == "own" else ():
        waits = [wait for name, wait in kept.waits.items() if f"-{kind}-" in name]
        print(f"{kind}: {np.mean(waits) / 10:.2f} s to admission on average")


if __name__ == "__main__":
    main()
