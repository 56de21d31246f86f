"""Shockwave's simulator (NSDI'23) as a plain loop: from shares of time to completion times and rounds.

Written anew from `../shared/reference/shockwave.md` alone (sections 3 and 4), by somebody who had not seen the code of
simsched nor an earlier replay of it; it imports nothing of simsched. What the page leaves open: where jobs wait without
shares while nothing runs and nothing will arrive, its loop has no end, and this one raises `StuckError`.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROUND_S = 120.0  # L
RESTART_S = 20.0  # C
RESET_S = 1000.0  # R
CREDIT_S = ROUND_S / 2  # h
OVERTIME = 1.5
MOST_FAILURES = 5

#: Examples in the data set of a model, its largest batch, and the smallest that Accordion returns to.
EXAMPLES = {
    "ResNet-18": 50_000,
    "ResNet-50": 100_000,
    "Transformer": 10_000,
    "LM": 59_675,
    "Recommendation": 117_907,
    "CycleGAN": 6_287,
    "A3C": 4,
}
LARGEST = {"ResNet-18": 256, "ResNet-50": 128, "Transformer": 128, "LM": 80, "Recommendation": 8192}
SMALLEST = {"ResNet-18": 16, "ResNet-50": 16, "LM": 5, "Recommendation": 512}


#: Epochs at which a noise schedule doubles the batch, by model, first batch and GPUs.
SWITCHES: dict[tuple[str, int, int], tuple[int, ...]] = {
    ("ResNet-18", 16, 1): (31, 41, 51, 71),
    ("ResNet-18", 16, 2): (21, 31, 91, 111),
    ("ResNet-18", 16, 4): (11, 21, 81, 91),
    ("ResNet-18", 32, 1): (21, 31, 51),
    ("ResNet-18", 32, 2): (11, 21, 41),
    ("ResNet-18", 32, 4): (21, 31, 61),
    ("ResNet-18", 64, 1): (11, 31),
    ("ResNet-18", 64, 2): (21, 41),
    ("ResNet-18", 64, 4): (11, 61),
    ("ResNet-18", 128, 1): (11,),
    ("ResNet-18", 128, 2): (41,),
    ("ResNet-18", 128, 4): (11,),
    ("ResNet-50", 32, 2): (101, 111),
    ("ResNet-50", 32, 4): (131, 221),
    ("ResNet-50", 64, 1): (101,),
    ("ResNet-50", 64, 2): (81,),
    ("ResNet-50", 64, 4): (191,),
    ("LM", 5, 1): (31, 41, 61, 71),
    ("LM", 5, 2): (31, 51, 61, 71),
    ("LM", 5, 4): (11, 31, 71, 91),
    ("LM", 10, 1): (11, 21, 41),
    ("LM", 10, 2): (11, 31, 41),
    ("LM", 10, 4): (11, 31, 61),
    ("LM", 20, 1): (11, 41),
    ("LM", 20, 2): (31, 41),
    ("LM", 20, 4): (11, 61),
    ("LM", 40, 1): (11,),
    ("LM", 40, 2): (11,),
    ("LM", 40, 4): (61,),
    ("Recommendation", 512, 1): (21, 41, 71, 91),
    ("Recommendation", 1024, 1): (21, 51, 91),
    ("Recommendation", 2048, 1): (21, 41),
    ("Recommendation", 4096, 1): (41,),
}


class StuckError(Exception):
    """Jobs are left that have no shares, nothing runs and nothing will arrive: the loop described never ends."""


def ceil_div(above: int, below: int) -> int:
    return -(-above // below)


@dataclass
class Job:
    """A line of the trace, and how far it has come."""

    id: int
    model: str
    first_batch: int
    gpus: int
    mode: str
    total: int
    arrival_s: float
    batch: int = 0
    done: int = 0
    run_s: float = 0.0
    received_s: float = CREDIT_S
    deficit_s: float = 0.0
    wanted_batch: int | None = None
    failures: int = 0
    epochs_s: list[float] = field(default_factory=list)

    @property
    def epoch(self) -> int:
        """Return the epoch that the job is in."""
        return ceil_div(self.done, ceil_div(EXAMPLES[self.model], self.batch))

    @property
    def deadline_s(self) -> int:
        return int(OVERTIME * int(sum(self.epochs_s)))


#: Shares of time by job, from the time and the jobs that are there.
Shares = Callable[[float, Sequence[Job]], Mapping[int, float]]
#: The jobs of a round in their order, from the time, the jobs, and those of the round before.
Choice = Callable[[float, Sequence[Job], Sequence[Job]], Sequence[Job]]


def read_jobs(trace: Path) -> list[Job]:
    """Read a trace of twelve columns, in which jobs are named by their place."""
    jobs = []
    for number, line in enumerate(trace.read_text().splitlines()):
        kind, _command, _folder, _flag, _data, steps, gpus, mode, _weight, _slo, _nominal, arrival = line.split("\t")
        model, batch = named(kind)
        job = Job(number, model, batch, int(gpus), mode, int(steps), float(arrival), batch)
        jobs.append(job)
    return jobs


def named(kind: str) -> tuple[str, int]:
    """Split 'LM (batch size 10)'; a model without a batch has 1."""
    model, _, rest = kind.partition(" (batch size ")
    return model, int(rest.rstrip(")")) if rest else 1


def read_rates(table: Path) -> dict[tuple[str, int, int], float]:
    """Read the steps per second of jobs alone on V100, by model, batch and GPUs."""
    rates = {}
    for key, row in json.loads(table.read_text())["v100"].items():
        kind, gpus = ast.literal_eval(key)
        rates[(*named(kind), gpus)] = float(row["null"])
    return rates


class Regimes:
    """How batches change: noise schedules, critical epochs, triggers, profiles."""

    def __init__(self, rates: Mapping[tuple[str, int, int], float]) -> None:
        self.rates = rates

    def rate(self, job: Job) -> float:
        return self.rates[job.model, job.batch, job.gpus]

    def switched(self, job: Job, epoch: int) -> int:
        """Count the epochs at which the batch has doubled, this one included."""
        return sum(switch <= epoch for switch in SWITCHES.get((job.model, job.first_batch, job.gpus), ()))

    def scheduled(self, job: Job, epoch: int) -> int:
        """Return the batch of an epoch under the noise schedule."""
        doubled = job.first_batch * 2 ** self.switched(job, epoch)
        return min(doubled, LARGEST[job.model]) if job.model in LARGEST else doubled

    def critical(self, job: Job, epoch: int) -> bool:
        """Return whether Accordion keeps the small batch in an epoch."""
        match job.model:
            case "LM":
                return epoch < 10
            case "Recommendation":
                return epoch < {512: 30, 1024: 30, 2048: 40}.get(job.first_batch, 10)
            case "ResNet-50":
                return epoch % 30 < 10
            case "ResNet-18":
                first = 20 if job.first_batch == 256 else 10
                return epoch < first or 150 <= epoch < 160 or 250 <= epoch < 260
        return True

    def trigger(self, job: Job) -> int | None:
        """Return the batch that the job's rule asks for now, if that is another one."""
        epoch, cap = job.epoch, LARGEST.get(job.model)
        if job.mode == "gns":
            grows = max(self.scheduled(job, epoch + 1), self.scheduled(job, epoch)) > job.batch
            return 2 * job.batch if grows and job.batch != cap else None
        if job.mode == "accordion" and job.model != "Transformer" and cap is not None:
            critical, first = self.critical(job, epoch), job.batch == job.first_batch
            if not critical and first and job.batch != cap:
                return cap
            if critical and not first and job.batch != SMALLEST[job.model]:
                return job.first_batch
        return None

    def rescale(self, job: Job, batch: int) -> None:
        """Change the batch, and count steps in it; what is done is rounded up to whole epochs."""
        if job.first_batch == LARGEST.get(job.model) or not self.rates.get((job.model, batch, job.gpus)):
            return
        examples = EXAMPLES[job.model]
        old, new = ceil_div(examples, job.batch), ceil_div(examples, batch)
        epochs, total = ceil_div(job.total, old), ceil_div(job.total * job.batch, batch)
        job.total = total if ceil_div(total, new) == epochs else epochs * new
        job.done = ceil_div(job.done, old) * new
        job.batch = batch

    def profiled_batch(self, job: Job, epoch: int, epochs: int) -> int:
        """Return the batch of an epoch that the artifact's profile foresees."""
        if job.mode == "gns":
            last = epoch == epochs - 1
            return job.first_batch if last and self.switched(job, epoch) != 1 else self.scheduled(job, epoch)
        if job.mode == "accordion" and job.model in SMALLEST:
            late = job.model == "Recommendation" and (60 <= epoch < 70 or 80 <= epoch < 90)
            if not late and not self.critical(job, epoch) and epoch > 0.3 * epochs:
                return LARGEST[job.model]
        return job.first_batch

    def profile(self, job: Job) -> list[float]:
        """List the seconds of every epoch that the profile foresees."""
        epochs = ceil_div(job.total, ceil_div(EXAMPLES[job.model], job.first_batch))
        batches = [self.profiled_batch(job, epoch, epochs) for epoch in range(epochs)]
        return [EXAMPLES[job.model] / b / self.rates[job.model, b, job.gpus] for b in batches]


@dataclass
class Outcome:
    """What a replay gives: times and ratios by job, and the jobs of every round in ascending order.

    `deserted` says that there was a round without a job, everybody having left before somebody else came.
    """

    jct_s: dict[int, float] = field(default_factory=dict)
    rho: dict[int, float] = field(default_factory=dict)
    rounds: list[list[int]] = field(default_factory=list)
    deserted: bool = False
    makespan_s: float = 0.0


@dataclass(eq=False)
class Micro:
    """A job's part of a round: steps that it will have taken at a time."""

    job: Job
    steps: int
    finish_s: float


class Replay:
    """The loop of section 3 over the jobs of a folder's trace."""

    def __init__(
        self, jobs: Sequence[Job], regimes: Regimes, shares: Shares, gpus: int = 32, choose: Choice | None = None
    ) -> None:
        self.coming = sorted(jobs, key=lambda job: job.arrival_s)
        self.active: list[Job] = []
        self.regimes, self.shares, self.gpus, self.choose = regimes, shares, gpus, choose
        self.x: dict[int, float] = {}
        self.reset_s, self.pool_s, self.need = 0.0, 0.0, True
        self.outcome, self.count = Outcome(), len(jobs)

    def run(self) -> Outcome:
        """Play until all jobs have ended; raise `StuckError` where that cannot be."""
        running: list[Micro] = []
        begun_s, before_s = 0.0, None
        while True:
            if running:
                begun_s = begun_s if before_s is None else before_s
                before_s = now_s = max(micro.finish_s for micro in running)
            elif self.coming:
                now_s = self.coming[0].arrival_s
            else:
                raise StuckError
            for micro in sorted(running, key=lambda micro: (-micro.finish_s, micro.job.id)):
                self.complete(micro, begun_s)
            if len(self.outcome.jct_s) == self.count:
                break
            for job in self.active:
                if job.mode != "static":
                    job.wanted_batch = self.regimes.trigger(job) or job.wanted_batch
            self.admit(now_s)
            self.outcome.deserted |= not self.active
            self.reset_if_due(now_s)
            running = [self.start(job, now_s) for job in self.chosen(now_s)]
            self.outcome.rounds.append(sorted(micro.job.id for micro in running))
        return self.outcome

    def complete(self, micro: Micro, begun_s: float) -> None:
        """Credit a job's part of the round, change its batch if that was asked for, and end it if it is done."""
        job, took_s, credited = micro.job, micro.finish_s - begun_s, 1.0
        rounds = self.outcome.rounds
        idle_before = len(rounds) != 1 and job.id not in rounds[-2]
        if idle_before and took_s != 0 and took_s > ROUND_S - 5:
            credited = (took_s - RESTART_S) / took_s
            took_s -= RESTART_S
        steps = int(micro.steps * credited)
        job.run_s += took_s
        if steps <= 0 and took_s <= 0:
            job.failures += 1
            self.need = True
            ended = job.failures >= MOST_FAILURES
        else:
            job.failures = 0
            job.done += steps
            job.received_s += took_s
            self.pool_s += took_s
            ended = job.done >= job.total or job.run_s > job.deadline_s
        if job.wanted_batch is not None:
            self.regimes.rescale(job, job.wanted_batch)
            job.wanted_batch = None
        if ended:
            self.end(job, micro.finish_s)

    def end(self, job: Job, time_s: float) -> None:
        self.active.remove(job)
        self.need = True
        jct_s = time_s - job.arrival_s
        alone_s = sum(job.epochs_s) * max(1, self.count / self.gpus)
        self.outcome.jct_s[job.id] = jct_s
        self.outcome.rho[job.id] = round(jct_s / alone_s, 5)
        self.outcome.makespan_s = max(self.outcome.makespan_s, time_s)

    def admit(self, now_s: float) -> None:
        while self.coming and self.coming[0].arrival_s <= now_s:
            self.active.append(self.coming.pop(0))
            self.need = True

    def reset_if_due(self, now_s: float) -> None:
        """Ask for shares, jobs or no jobs, if some came or ended and the last ones are old enough."""
        if not self.need or not (now_s - self.reset_s >= RESET_S or self.reset_s == 0):
            return
        for job in self.active:
            job.deficit_s += self.x.get(job.id, 0.0) * (now_s - self.reset_s) - (job.received_s - CREDIT_S)
            job.received_s = CREDIT_S
        self.pool_s, self.reset_s, self.need = CREDIT_S * len(self.active), now_s, False
        self.x = dict(self.shares(now_s, self.active))

    def chosen(self, now_s: float) -> Sequence[Job]:
        """Choose the jobs of a round by their priorities; a job without an entry only takes the room."""
        last = set(self.outcome.rounds[-1]) if self.outcome.rounds else set()
        if self.choose:
            return self.choose(now_s, self.active, [job for job in self.active if job.id in last])

        def key(job: Job) -> tuple[float, float, float]:
            share = self.x.get(job.id, 0.0)
            priority = share / (job.received_s / self.pool_s) if share > 0 else 0.0
            return priority, job.deficit_s, share

        free, chosen = self.gpus, []
        for job in sorted(self.active, key=key, reverse=True):
            if job.gpus <= free:
                free -= job.gpus
                if job.id in self.x or job.id in last:
                    chosen.append(job)
        return chosen

    def start(self, job: Job, now_s: float) -> Micro:
        rate = self.regimes.rate(job)
        steps = min(int(rate * ROUND_S), job.total - job.done)
        return Micro(job, steps, max(now_s, now_s + steps / rate))


def read(trace: Path, table: Path) -> tuple[list[Job], Regimes]:
    """Read a trace and its rates, and give every job its profile."""
    jobs, regimes = read_jobs(trace), Regimes(read_rates(table))
    for job in jobs:
        job.epochs_s = regimes.profile(job)
    return jobs, regimes


def replay(
    jobs: Sequence[Job], regimes: Regimes, shares: Shares, gpus: int = 32, choose: Choice | None = None
) -> Outcome:
    """Play jobs under shares of time, or with the jobs of every round chosen by `choose`.

    Raises:
        StuckError: Nothing runs, nothing will arrive, and jobs without shares are left.
    """
    return Replay(jobs, regimes, shares, gpus, choose).run()
