"""Measure a simulated month of a cluster for language models: CPU time and memory.

Usage: python benchmarks/llm_scale.py [--jobs N] [--placement NAME] [--no-contention] [--seed N]

2,048 nodes of 8 H100 in leaves of 16 nodes (uplinks 1:2 oversubscribed) and spines of 128 (1:7) run jobs of five sizes
of models on 64 to 4,096 GPUs. They arrive over 30 days, and each trains so many steps that the jobs together are worth
85 % of the cluster's time. Every job runs its fastest plan. Gradients are summed in the open, so that jobs which cross
the same uplinks slow each other down; --no-contention gives each the uplinks to itself.
"""

from __future__ import annotations

import argparse
import resource
import time
from dataclasses import dataclass, field, replace

import numpy as np

from simsched.applications.plans import shipped_llms
from simsched.engine import EngineOptions, MemoryRecorder, simulate
from simsched.experiment.cluster import ClusterSpec
from simsched.model import Cluster, JobRequest, JobSpec, JobTruth, tightest_site
from simsched.model.plans import PlannedJob, PlannedModel
from simsched.policy import registry

DAYS, LOAD = 30, 0.85
#: Sizes of jobs that train a shipped model, and how often a job does.
MODELS = {
    "llama2-7b": ((64, 128, 256), 0.4),
    "llama2-13b": ((128, 256, 512), 0.25),
    "llama2-70b": ((256, 512, 1024), 0.2),
    "gpt3-175b": ((512, 1024, 1536), 0.1),
    "llama3-405b": ((1024, 2048, 4096), 0.05),
}
LEVELS = (
    {"level": "gpu", "gpus": 1, "uplink_gb_s": 450, "latency_us": 20},
    {"level": "node", "nodes": 1, "uplink_gb_s": 400, "latency_us": 20},
    {"level": "leaf", "nodes": 16, "oversubscription": 2, "latency_us": 20},
    {"level": "spine", "nodes": 128, "oversubscription": 7, "latency_us": 20},
)


@dataclass
class Models:
    """The shipped models, with gradients summed in the open."""

    known: dict[str, PlannedModel] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Make the models."""
        for name in MODELS:
            model = shipped_llms()[name]
            open_sums = replace(model.on("h100"), overlap=0.0, exposed_messages=1.0)
            self.known[name] = replace(model, hardware={"h100": open_sums})

    def for_job(self, request: JobRequest, truth: JobTruth) -> PlannedJob:
        """Return the physics of a job."""
        return PlannedJob(self.known[request.application], truth.total_steps)


def workload(models: Models, cluster: Cluster, count: int, seed: int) -> list[JobSpec]:
    """Draw jobs with log-normal durations on an empty cluster, scaled to the load."""
    rng = np.random.default_rng(seed)
    names = rng.choice(list(MODELS), count, p=[share for _, share in MODELS.values()])
    gpus = [int(rng.choice(MODELS[name][0])) for name in names]
    lasts = rng.lognormal(0, 1.0, count)
    lasts *= LOAD * DAYS * 86400 * cluster.total_gpus / (lasts * gpus).sum()
    arrivals = np.sort(rng.uniform(0, DAYS * 86400, count)).astype(int)
    jobs = []
    for i, (name, size) in enumerate(zip(names, gpus, strict=True)):
        step_s = models.known[name].best(tightest_site(cluster, size, "h100")).parts.total
        jobs.append(JobSpec(f"{i:04}-{name}", int(arrivals[i]), size, str(name), total_steps=lasts[i] // step_s + 1))
    return jobs


def main() -> None:
    """Run one month and print what it cost."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--placement", default="most-free")
    parser.add_argument("--no-contention", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    begin = time.process_time()
    spec = {"nodes": 2048, "gpus_per_node": 8, "gpu_type": "h100", "topology": LEVELS}
    cluster = ClusterSpec.model_validate(spec).build()
    models = Models()
    jobs = workload(models, cluster, options.jobs, options.seed)
    made = time.process_time()
    recorder = MemoryRecorder()
    engine = EngineOptions(contention=not options.no_contention, fragmentation=True)
    policy = registry.load("fifo")(placement=options.placement, backfill=True)
    simulate(cluster, jobs, models, policy, engine, options.seed, recorder)
    done = time.process_time()
    congested = sum((one.end_s - one.start_s) * one.gpus for one in recorder.allocations if one.congestion)
    held = sum((one.end_s - one.start_s) * one.gpus for one in recorder.allocations)
    last_s = recorder.jobs[-1].end_time_s
    print(f"jobs {len(jobs)}, largest {max(job.num_gpus for job in jobs)} GPUs, {last_s / 86400:.1f} days")
    print(
        f"CPU {done - begin:.1f} s, of which the workload {made - begin:.1f} s and the simulation {done - made:.1f} s"
    )
    print(f"memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
    print(f"decisions {len(recorder.decisions)}, intervals {len(recorder.allocations)}")
    print(f"GPU time congested {congested / held:.1%}")


if __name__ == "__main__":
    main()
