"""The jobs, the restart overheads and the cluster of Muri's traces."""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from pathlib import Path

NODES = 8
NODE_GPUS = 8

#: Seconds that a restart costs, on 1, 2, 4, 8, 16 and 32 GPUs; 10 for every other model.
OVERHEAD_S = {
    "vgg16": (7, 7, 8, 9, 9, 10),
    "vgg19": (7, 7, 8, 9, 10, 10),
    "resnet18": (4, 5, 5, 7, 7, 7),
    "shufflenet_v2_x1_0": (4, 4, 5, 5, 7, 8),
    "a2c": (38, 39, 39, 46, 46, 46),
    "dqn": (5, 5, 6, 6, 8, 8),
}
_COUNTS = (1, 2, 4, 8, 16, 32)


@dataclass(eq=False)
class Job:
    """One row of a trace and what the replay remembers of it; times in seconds."""

    index: int
    gpus: int
    submit_s: float
    model: str
    duration_s: float
    iteration_s: float
    stages_s: tuple[float, float, float]
    opportunistic: bool
    remaining: float
    overhead_s: float
    executed_s: float = 0.0
    checked_s: float = 0.0
    running: bool = False
    now_iteration_s: float = 0.0
    now_overhead_s: float = 0.0
    end_s: float = -1.0
    queue: int = 0
    nodes: list[tuple[int, int]] = field(default_factory=list)


def read_jobs(path: Path) -> list[Job]:
    """Read a trace; jobs are numbered by their row and sorted by submission."""
    with path.open(newline="") as stream:
        jobs = [_job(index, row) for index, row in enumerate(csv.DictReader(stream))]
    return sorted(jobs, key=lambda job: job.submit_s)


def _job(index: int, row: dict[str, str]) -> Job:
    gpus, model = int(row["num_gpu"]), row["model_name"]
    first, second, third = (float(row[f"resource_time_{i}"]) / 1000 for i in range(3))
    iteration_s = float(row["iteration_time"]) * 1.015 / 1000
    overhead = OVERHEAD_S.get(model)
    return Job(
        index=index,
        gpus=gpus,
        submit_s=float(row["submit_time"]) / 1000,
        model=model,
        duration_s=float(row["duration"]) / 1000,
        iteration_s=iteration_s,
        stages_s=(first, second, third),
        opportunistic=row["priority"] == "1",
        remaining=float(row["iterations"]),
        overhead_s=overhead[_COUNTS.index(gpus)] if overhead else 10,
    )


def first_fit(free: list[int], gpus: int) -> list[tuple[int, int]]:
    """Take GPUs from `free` by node: the first node with room, or the first empty nodes and one more for the rest.

    Returns [] and takes nothing where it does not fit.
    """
    if gpus <= NODE_GPUS:
        node = next((node for node, count in enumerate(free) if count >= gpus), -1)
        if node < 0:
            return []
        free[node] -= gpus
        return [(node, gpus)]
    whole, rest = divmod(gpus, NODE_GPUS)
    taken = [(node, NODE_GPUS) for node, count in enumerate(free) if count == NODE_GPUS][:whole]
    if len(taken) < whole:
        return []
    if rest:
        used = {node for node, _ in taken}
        node = next((node for node, count in enumerate(free) if node not in used and count >= rest), -1)
        if node < 0:
            return []
        taken.append((node, rest))
    for node, count in taken:
        free[node] -= count
    return taken
