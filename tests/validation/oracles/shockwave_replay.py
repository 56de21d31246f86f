"""Replay Shockwave's round mechanism in one plain loop, sharing no code with the simulator.

Written from a description of the artifact (Zheng et al., NSDI'23): rounds of 120 s on GPUs of one type, a restart
charge taken from credited steps, deadlines on charged seconds, batch sizes that change at the end of a micro-task.
Seconds are doubles and every sum is made in the artifact's order, so that ties break as they did in the published runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any

ROUND_S, RESTART_S, RESET_S, CREDIT_S = 120, 20, 1000, 60.0
SAMPLES = {"ResNet-18": 50_000, "ResNet-50": 100_000, "Transformer": 10_000, "LM": 59_675, "Recommendation": 117_907}
CAPS = {"ResNet-18": 256, "ResNet-50": 128, "Transformer": 128, "LM": 80, "Recommendation": 8192}
FLOORS = {"ResNet-18": 16, "ResNet-50": 16, "LM": 5, "Recommendation": 512}


@dataclass
class Job:
    """A line of the trace and what has become of it."""

    id: int
    model: str
    first_batch: int
    total: int
    gpus: int
    mode: str
    arrival: float
    batch: int = 0
    done: int = 0
    charged: float = 0.0
    received: float = CREDIT_S
    deficit: float = 0.0
    pending: str = ""
    failures: int = 0
    profile: list[float] = field(default_factory=list)


class Artifact:
    """The trace, the rates and the epochs at which batches double, read from a folder of published data."""

    def __init__(self, folder: Path) -> None:
        """Read `120-jobs.trace`, `tacc_throughputs.json` and `gns_switch_epochs.json` in `folder`."""
        table = json.loads((folder / "tacc_throughputs.json").read_text())["v100"]
        self.rates: dict[str, float] = {key: row["null"] for key, row in table.items()}
        self.switches: dict[str, list[int]] = json.loads((folder / "gns_switch_epochs.json").read_text())
        lines = (folder / "120-jobs.trace").read_text().splitlines()
        self.jobs = [self._job(i, line.split("\t")) for i, line in enumerate(lines)]
        for job in self.jobs:
            job.profile = self.epoch_seconds(job)

    @staticmethod
    def _job(number: int, cells: list[str]) -> Job:
        model, batch = cells[0].rstrip(")").split(" (batch size ")
        job = Job(number, model, int(batch), int(cells[5]), int(cells[6]), cells[7], float(cells[11]))
        job.batch = job.first_batch
        return job

    def rate(self, job: Job, batch: int) -> float:
        """Return steps per second, 0 where the table has none."""
        return self.rates.get(f"('{job.model} (batch size {batch})', {job.gpus})", 0.0)

    def gns_batch(self, job: Job, epoch: int, epochs: int) -> int:
        """Return the batch size of an epoch in a gradient-noise schedule of `epochs` epochs."""
        switches = self.switches.get(f"{job.model}|{job.first_batch}|{job.gpus}", [])
        if not switches or epochs <= switches[0] + 1:
            return job.first_batch
        return int(min(CAPS[job.model], job.first_batch * 2 ** sum(at <= epoch for at in switches)))

    def critical(self, job: Job, epoch: int) -> bool:
        """Return whether Accordion keeps the small batch in `epoch`."""
        if job.model == "ResNet-50":
            return epoch % 30 < 10
        if job.model == "ResNet-18":
            return epoch < (20 if job.first_batch == 256 else 10) or 150 <= epoch < 160 or 250 <= epoch < 260
        if job.model == "Recommendation":
            return epoch < {512: 30, 1024: 30, 2048: 40, 4096: 10, 8192: 10}[job.first_batch]
        return job.model != "LM" or epoch < 10

    def epoch_seconds(self, job: Job) -> list[float]:
        """Return what the profile says each epoch takes, with the oddities of the published profiles."""
        epochs = ceil(job.total / ceil(SAMPLES[job.model] / job.first_batch))
        batches = [job.first_batch] * epochs
        for e in range(epochs):
            if job.mode == "accordion":
                late = job.model == "Recommendation" and (60 <= e < 70 or 80 <= e < 90)
                if not self.critical(job, e) and not late and e > 0.3 * epochs:
                    batches[e] = CAPS[job.model]
            elif job.mode == "gns":
                batches[e] = self.gns_batch(job, e, epochs)
        if job.mode == "gns" and batches[-1] > 2 * job.first_batch:
            batches[-1] = job.first_batch
        return [SAMPLES[job.model] / batch / self.rate(job, batch) for batch in batches]

    def trigger(self, job: Job) -> str:
        """Return the change of batch that the job's rule asks for, or nothing."""
        epoch = ceil(job.done / ceil(SAMPLES[job.model] / job.batch))
        cap = CAPS[job.model]
        if job.mode == "gns":
            epochs = max(760, epoch + 2)
            wanted = max(self.gns_batch(job, epoch, epochs), self.gns_batch(job, epoch + 1, epochs))
            return "double" if wanted > job.batch and job.batch != cap else ""
        if job.mode != "accordion" or job.model == "Transformer":
            return ""
        if not self.critical(job, epoch):
            return "up" if job.batch == job.first_batch != cap else ""
        return "down" if job.batch != job.first_batch and job.batch != FLOORS[job.model] else ""

    def rescale(self, job: Job) -> None:
        """Apply the pending change: whole epochs are kept, rounded up."""
        new = {"double": 2 * job.batch, "up": CAPS[job.model], "down": job.first_batch}[job.pending]
        if job.first_batch == CAPS[job.model] or not self.rate(job, new):
            return
        old_steps, new_steps = (ceil(SAMPLES[job.model] / batch) for batch in (job.batch, new))
        epochs, total = ceil(job.total / old_steps), ceil(job.total * job.batch / new)
        job.total = total if ceil(total / new_steps) == epochs else epochs * new_steps
        job.done, job.batch = ceil(job.done / old_steps) * new_steps, new


@dataclass
class Outcome:
    """What a replay leaves: completion times and fairness by job, the jobs of every round."""

    jct_s: dict[int, float]
    rho: dict[int, float]
    rounds: list[list[int]]
    makespan_s: float


Policy = Callable[[float, list[Job], Artifact], dict[int, float]]


def replay(artifact: Artifact, policy: Policy, gpus: int = 32, choose: Any = None) -> Outcome:
    """Run the trace under shares from `policy`, or under rounds from `choose(now, jobs, artifact, running)`."""
    waiting, active, shares = list(artifact.jobs), {}, {}
    running: dict[int, tuple[int, float]] = {}  # job -> steps, finish
    rounds: list[list[int]] = []
    jct: dict[int, float] = {}
    start = end = last_reset = worker_s = now = 0.0
    stale = True
    while waiting or active:
        start, now = (end, max(f for _, f in running.values())) if running else (start, waiting[0].arrival)
        end = now if running else end
        for i, (steps, finish) in sorted(running.items(), key=lambda item: (-item[1][1], item[0])):
            job, seconds, fraction = active[i], finish - start, 1.0
            if len(rounds) != 1 and i not in rounds[-2] and seconds != 0 and seconds > ROUND_S - 5:
                fraction = (seconds - RESTART_S) / seconds
                seconds -= RESTART_S
            credit = int(steps * fraction)
            job.charged += seconds
            late = job.charged > int(1.5 * int(sum(job.profile)))
            if credit <= 0 and seconds <= 0:
                job.failures += 1
                stale, ended = True, job.failures >= 5
            else:
                job.failures, job.done = 0, job.done + credit
                job.received += seconds
                worker_s += seconds
                ended = job.done >= job.total or late
            if job.pending:
                artifact.rescale(job)
                job.pending = ""
            if ended:
                jct[i], stale = finish - job.arrival, True
                del active[i]
        for job in active.values():
            job.pending = artifact.trigger(job) or job.pending
        while waiting and waiting[0].arrival <= now:
            arrived = waiting.pop(0)
            active[arrived.id], stale = arrived, True
        if stale and active and choose is None and (now - last_reset >= RESET_S or last_reset == 0):
            for job in active.values():
                job.deficit += shares.get(job.id, 0.0) * (now - last_reset) - (job.received - CREDIT_S)
                job.received = CREDIT_S
            worker_s, last_reset, stale = CREDIT_S * len(active), now, False
            shares = policy(now, list(active.values()), artifact)
        if choose is None:
            chosen = _by_priority(list(active.values()), shares, worker_s, gpus, running)
        else:
            chosen = choose(now, list(active.values()), artifact, running)
        running = {}
        for job in chosen:
            rate = artifact.rate(job, job.batch)
            steps = min(int(rate * ROUND_S), job.total - job.done)
            running[job.id] = (steps, max(now, now + steps / rate))
        if active:
            rounds.append(sorted(running))
    makespan = max(jct[job.id] + job.arrival for job in artifact.jobs)
    fair = max(1, len(jct) / gpus)
    rho = {job.id: round(jct[job.id] / (sum(job.profile) * fair), 5) for job in artifact.jobs}
    return Outcome(jct, rho, rounds, makespan)


def _by_priority(
    jobs: list[Job], shares: dict[int, float], worker_s: float, gpus: int, running: dict[int, Any]
) -> list[Job]:
    """Fill a round by share over time received; a job without a share takes room and only runs on if it ran."""

    def key(job: Job) -> tuple[float, float, float]:
        share = shares.get(job.id, 0.0)
        priority = share / (job.received / worker_s) if share > 0 else 0.0
        return priority, job.deficit, share

    chosen = []
    for job in sorted(jobs, key=key, reverse=True):
        if job.gpus <= gpus:
            gpus -= job.gpus
            if job.id in shares or job.id in running:
                chosen.append(job)
    return chosen
