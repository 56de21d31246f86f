"""Random traces for the published Tiresias simulator's rules, and what of them the engine and the oracle differ in."""

from __future__ import annotations

import random
from typing import Any

import simsched as sim
from simsched.policy import registry
from tests.validation.oracles import tiresias_simulator as oracle

Rows = list[tuple[int, int, int, int]]

#: Placers that take whatever is free, so that counting GPUs tells whether a job fits.
PLACERS = ("any", "most-free", "fragments")
#: How the shipped policies that follow these rules are called, with their parameters, and what the oracle plays.
SCHEDULES: dict[str, tuple[str, dict[str, Any]]] = {
    "fifo": ("fifo", {}),
    "fjf": ("fifo", {"backfill": True}),
    "sjf": ("smallest-first", {}),
    "shortest": ("srtf", {}),
    "shortest-gpu": ("srsf", {}),
    "dlas-gpu": ("tiresias", {}),
    "dlas-gpu-05": ("tiresias", {"promote_knob": 0.5}),
    "dlas-gpu-1": ("tiresias", {"promote_knob": 1}),
    "dlas-gpu-4": ("tiresias", {"promote_knob": 4}),
}


def random_rows(rng: random.Random, gpus: int, count: int) -> Rows:
    """Draw (id, GPUs, submission, duration): bursts and gaps, short and long jobs, small and large ones."""
    sizes = [size for size in (1, 1, 1, 2, 2, 3, 4, 8, gpus) if size <= gpus]
    scale_s, now_s, rows = rng.choice([100, 1000, 5000]), 0, []
    for number in range(count):
        now_s += 0 if rng.random() < 0.3 else int(rng.expovariate(1 / scale_s))
        longest = rng.choice([300, 5_000, 30_000])
        rows.append((number, rng.choice(sizes), now_s, rng.randint(1, longest)))
    return rows


def by_oracle(rows: Rows, gpus: int, schedule: str) -> list[oracle.Job]:
    """Play rows by the oracle, as the shipped policies define ties and without the published program's habits."""
    if schedule in ("fifo", "fjf"):
        return oracle.replay_started(rows, gpus, schedule)
    if schedule in oracle.SORTED:
        return oracle.replay_sorted(rows, gpus, schedule, by_submission=True)
    knob = SCHEDULES[schedule][1].get("promote_knob", 0)
    return oracle.Queues(rows, gpus, knob=knob, habits=oracle.PAPER).replay()


def differs(rows: Rows, gpus: int, schedule: str, placement: str) -> list[str]:
    """Say which jobs start, end or are preempted otherwise under the shipped policy than under the oracle.

    The oracle counts GPUs, so that where they are must not matter: there are up to four on a node.
    """
    name, params = SCHEDULES[schedule]
    params = {**params, "placement": placement}
    if name == "tiresias":
        params = {**params, "queue_thresholds_gpu_s": list(oracle.LIMITS), "interval_s": None}
    policy = registry.load(name)(**params)
    jobs = [{"id": f"j{row}", "num_gpus": wanted, "submit_time_s": submit_s, "duration_s": duration_s}
            for row, wanted, submit_s, duration_s in rows]  # fmt: skip
    found = sim.simulate(
        jobs=jobs, policy=policy, cluster=(-(-gpus // 4), min(gpus, 4)), restart_delay_s=0
    ).jobs.set_index("job_id")
    expected = {f"j{job.id}": (job.start_s, job.end_s, job.preemptions) for job in by_oracle(rows, gpus, schedule)}
    columns = ["start_time_s", "end_time_s", "restarts"]
    got = {
        name: tuple(int(value) for value in row)
        for name, row in zip(found.index, found[columns].to_numpy(), strict=True)
    }
    names = sorted(expected.keys() | got.keys())
    return [f"{name}: {expected.get(name)} and not {got.get(name)}" for name in names
            if expected.get(name) != got.get(name)]  # fmt: skip
