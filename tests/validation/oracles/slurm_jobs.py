"""Jobs for the reference cluster: shapes, limits and run times of a site's users, drawn from a seed."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.validation.oracles.slurm_cluster import DAY_S, HOUR_S, Job, Partition, Site

#: By partition: its part of the load offered, and the shapes with their weights: nodes, GPUs of each.
_SHAPES = {
    "a100": (((1, 1), 34), ((1, 2), 16), ((1, 4), 16), ((1, 8), 24), ((2, 8), 7), ((4, 8), 3)),
    "v100": (((1, 1), 50), ((1, 2), 25), ((1, 4), 20), ((2, 4), 5)),
    "h100": (((1, 1), 20), ((1, 4), 20), ((1, 8), 45), ((2, 8), 15)),
    "debug": (((1, 1), 70), ((1, 2), 20), ((1, 4), 10)),
}
#: What is offered to each partition, as a part of its GPU-time: waits of hours, and a queue that empties.
LOAD = {"a100": 0.76, "v100": 0.5, "h100": 0.6, "debug": 0.02}
SMALL_LOAD = {"a100": 0.68, "v100": 0.4, "h100": 0.4, "debug": 0.02}
_LIMITS_H = ((1, 15), (2, 10), (4, 15), (8, 10), (12, 12), (24, 25), (48, 13))


def draw_jobs(site: Site, seed: int, days: float, load: dict[str, float]) -> list[Job]:
    """Draw jobs whose GPU-time is `load` of each partition's own nodes, more of them at day than at night."""
    dice = random.Random(seed)
    users = [f"user{i:02d}" for i in range(24)]
    weights = [1 / (1 + i) ** 0.8 for i in range(24)]
    jobs: list[Job] = []
    for partition in site.partitions:
        if partition.name not in load:
            continue
        wanted = load[partition.name] * site.gpus_of(partition.name) * days * DAY_S
        while wanted > 0:
            burst = dice.choices((1, 4, 12), (85, 12, 3))[0]
            job = _draw(site, partition, dice, days, dice.choices(users, weights)[0])
            for _ in range(burst):
                one = replace(job, submit_s=job.submit_s + dice.randrange(120), run_s=_run_time(job.limit_s, dice))
                jobs.append(one)
                wanted -= one.all_gpus * min(one.run_s, one.limit_s)
    jobs.sort(key=lambda one: one.submit_s)
    for number, one in enumerate(jobs, 1000):
        one.id = number
    return jobs


def _draw(site: Site, partition: Partition, dice: random.Random, days: float, user: str) -> Job:
    while True:
        submit_s = dice.randrange(int(days * DAY_S))
        hour = submit_s / HOUR_S % 24
        if dice.random() < (1.0 if 9 <= hour < 20 else 0.35):
            break
    shapes, weights = zip(*_SHAPES[partition.name], strict=True)
    nodes, gpus = dice.choices(shapes, weights)[0]
    kind = next(one for one in site.kinds if one.name == partition.kinds[0])
    hours, share = zip(*_LIMITS_H, strict=True)
    limit_s = min(dice.choices(hours, share)[0] * HOUR_S, partition.max_time_s)
    even = kind.cpus // kind.gpus if site.counts_cpus else 0
    cpus = dice.choices((even // 2, even, 2 * even), (50, 40, 10))[0] * gpus
    memory = site.counts_cpus * int(kind.memory_mb / kind.gpus * dice.choices((0.3, 0.8, 1.5), (60, 30, 10))[0]) * gpus
    qos = dice.choices(("normal", "high"), (88, 12))[0]
    account = f"lab{int(user[4:]) % 5}"
    whole = (max(1, min(cpus, kind.cpus)), max(1, min(memory, kind.memory_mb)))
    return Job(0, submit_s, user, account, partition.name, qos, nodes, gpus, *whole, limit_s, 0)


def _run_time(limit_s: int, dice: random.Random) -> int:
    """Draw a run time: one in eight runs into its limit, the others end at any part of it, most of them early."""
    if dice.random() < 0.125:
        return limit_s + 1
    return max(30, int(limit_s * dice.betavariate(0.8, 1.6)))
