"""Gavel's simulator (OSDI'20) as a plain loop: jobs, rounds, and its programs straight from their formulas.

`python -m tests.validation.oracles.gavel_replay RATES.json fifo-perf 0.4 0`: mean JCT in hours of jobs 4000 to 4999. A
fifth argument is the number of jobs that are there at the start (108 in the artifact's steady state).

Written anew from `../shared/reference/gavel.md` (sections 2 to 5), by somebody who had not seen the code of simsched
nor an earlier replay of it; it imports nothing of simsched. Programs are solved by scipy's linprog. One thing is not
from there: that the agnostic FIFO may overbook a type, and closes it only when exactly no GPU is left, is how
`docs/reproduction-gavel.md` reads its "stale loop variable"; the makespan of seed 1 comes out by it.
"""

from __future__ import annotations

import ast
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from random import Random

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

ROUND_S = 360.0
RESET_S = 1920.0
CREDIT_S = ROUND_S / 2
MOST_FAILURES = 5
TYPES = ("k80", "p100", "v100")
FAST_FIRST = ("v100", "p100", "k80")

Setting = tuple[str, int]
Rates = Mapping[Setting, Sequence[float]]

#: Families in the order of the artifact's list, with their batches where they have any.
FAMILIES = {
    "ResNet-18": (16, 32, 64, 128, 256),
    "ResNet-50": (16, 32, 64, 128),
    "Transformer": (16, 32, 64, 128, 256),
    "LM": (5, 10, 20, 40, 80),
    "Recommendation": (512, 1024, 2048, 4096, 8192),
    "A3C": (),
    "CycleGAN": (),
}
TEMPLATES = [
    name
    for family, batches in FAMILIES.items()
    for name in ([f"{family} (batch size {batch})" for batch in batches] or [family])
]


@dataclass(eq=False)
class Job:
    """A job, its rates on K80, P100 and V100, and how far it has come; times received and deficits are by type."""

    id: int
    arrival_s: float
    gpus: int
    rates: Sequence[float]
    left: float
    received_s: list[float] = field(default_factory=lambda: [CREDIT_S] * 3)
    deficit_s: list[float] = field(default_factory=lambda: [0.0] * 3)
    failures: int = 0


#: Shares of time on the three types by job.
Shares = Mapping[int, Sequence[float]]
Policy = Callable[[Sequence[Job]], Shares]


def read_rates(path: Path) -> dict[Setting, list[float]]:
    """Read the steps per second of jobs alone, on the three types."""
    table = json.loads(path.read_text())
    return {ast.literal_eval(key): [float(table[gpu_type][key]["null"]) for gpu_type in TYPES] for key in table["v100"]}


def drawn_jobs(rates: Rates, seed: int, *, multi_gpu: bool) -> Iterator[tuple[int, Sequence[float], float]]:
    """Draw the GPUs, rates and steps of jobs without end."""
    rng = Random(seed + 2)
    distributed = {name for name, gpus in rates if gpus == 2}
    while True:
        size = rng.random()
        gpus = 1 if size < 0.7 else 2 if size <= 0.8 else 4 if size <= 0.95 else 8
        gpus = gpus if multi_gpu else 1
        duration_s = 60 * 10 ** (rng.uniform(3, 4) if rng.random() >= 0.8 else rng.uniform(1.5, 3))
        name = rng.choice(TEMPLATES)
        while gpus > 1 and name not in distributed:
            name = rng.choice(TEMPLATES)
        row = rates[name, gpus]
        yield gpus, row, duration_s * row[2]


def arrivals(seed: int, jobs_per_hour: float, at_once: int) -> Iterator[float]:
    """List times of arrival: so many at the start, then one, then one after another."""
    rng, time_s = Random(seed + 3), 0.0
    for _ in range(at_once):
        yield 0.0
    while True:
        yield time_s
        time_s += -math.log(1 - rng.random()) * 3600 / jobs_per_hour


@dataclass
class Task:
    """A job's part of a round on a type: the steps that it will have taken at a time."""

    job: Job
    kind: int
    steps: float
    finish_s: float


class Replay:
    """The rounds of section 4.

    `order` names the types in the order in which a round fills them; under `skip_zero` nobody runs on a type of which
    it has no share. `deserted` says that everybody had left once before somebody else came.
    """

    def __init__(
        self,
        coming: Iterator[Job],
        gpus: Sequence[int],
        policy: Policy,
        order: Callable[[], Sequence[str]],
        *,
        skip_zero: bool = False,
    ) -> None:
        self.coming, self.gpus, self.policy, self.order, self.skip_zero = coming, gpus, policy, order, skip_zero
        self.next = next(coming, None)
        self.active: list[Job] = []
        self.x: Shares = {}
        self.worker_s, self.reset_s, self.need = [0.0] * 3, 0.0, True
        self.jct_s: dict[int, float | None] = {}
        self.makespan_s, self.deserted = 0.0, False

    def run(self, until: Callable[[Mapping[int, float | None]], bool] = lambda _: False) -> Replay:
        """Play until all jobs have ended, or until `until` says of their completion times that it is enough."""
        running: list[Task] = []
        ended_s = 0.0
        while not until(self.jct_s):
            if running:
                now_s = max(task.finish_s for task in running)
            elif self.next:
                now_s = self.next.arrival_s
            else:
                break
            for task in sorted(running, key=lambda task: (-task.finish_s, task.job.id)):
                self.complete(task, ended_s)
            if running:
                ended_s = now_s  # a gap without rounds counts as time received
            while self.next and self.next.arrival_s <= now_s:
                self.active.append(self.next)
                self.next, self.need = next(self.coming, None), True
            self.deserted |= not self.active and self.next is not None
            if self.need and (now_s - self.reset_s >= RESET_S or self.reset_s == 0):
                self.reset(now_s)
            running = list(self.started(now_s))
        return self

    def complete(self, task: Task, before_s: float) -> None:
        """Credit a task, or count a failure: a worker of it that would report no step."""
        job, took_s = task.job, task.finish_s - before_s
        if task.steps <= 0 or (job.gpus > 1 and task.steps < job.gpus):
            job.failures += 1
            if job.failures >= MOST_FAILURES:
                self.end(job, None)
            return
        job.failures = 0
        job.left -= task.steps
        job.received_s[task.kind] += took_s
        self.worker_s[task.kind] += took_s
        if job.left <= 0:
            self.end(job, task.finish_s - job.arrival_s)
            self.makespan_s = max(self.makespan_s, task.finish_s)

    def end(self, job: Job, jct_s: float | None) -> None:
        self.active.remove(job)
        self.jct_s[job.id], self.need = jct_s, True

    def reset(self, now_s: float) -> None:
        for job in self.active:
            shares = self.x.get(job.id, (0.0, 0.0, 0.0))
            for kind in range(3):
                due_s = shares[kind] * (now_s - self.reset_s)
                job.deficit_s[kind] += due_s - (job.received_s[kind] - CREDIT_S)
            job.received_s = [CREDIT_S] * 3
        self.worker_s, self.reset_s, self.need = [CREDIT_S * len(self.active)] * 3, now_s, False
        self.x = self.policy(self.active) if self.active else {}

    def started(self, now_s: float) -> Iterator[Task]:
        """Fill the types one after another; a job without shares yet takes the room and idles."""
        taken: set[int] = set()
        for kind in map(TYPES.index, self.order()):
            keyed = [(self.key(job, kind), job) for job in self.active if job.id not in taken]
            free = self.gpus[kind]
            for key, job in sorted(keyed, key=lambda pair: pair[0], reverse=True):
                if free == 0:
                    break
                if job.gpus > free or (self.skip_zero and key[0] == 0):
                    continue
                free -= job.gpus
                taken.add(job.id)
                if job.id in self.x:
                    rate = job.rates[kind]
                    steps = min(float(int(rate * ROUND_S)), job.left)
                    yield Task(job, kind, steps, now_s + steps / rate if rate else now_s)

    def key(self, job: Job, kind: int) -> tuple[float, float, float]:
        share = self.x[job.id][kind] if job.id in self.x else 0.0
        if share == 0:
            return 0.0, job.deficit_s[kind], share
        part = job.received_s[kind] / self.worker_s[kind]
        return (share / part if part else share * 1e9), job.deficit_s[kind], share


def fifo_by_type(gpus: Sequence[int]) -> Policy:
    """First come, first served, blind to speeds: a job stays where it began, the last type that is not just full.

    The type that is drawn is not the one that is used, so that one may be overbooked; it is closed only when the GPUs
    left are exactly none.
    """
    where: dict[int, int] = {}

    def policy(jobs: Sequence[Job]) -> Shares:
        here = {job.id for job in jobs}
        for gone in [job for job in where if job not in here]:
            del where[gone]
        free = dict(enumerate(gpus))
        for job in jobs:
            if job.id in where:
                free[where[job.id]] -= job.gpus
        free = {kind: left for kind, left in free.items() if left != 0}
        for job in sorted(jobs, key=lambda job: job.id):
            if job.id not in where:
                if not any(left >= job.gpus for left in free.values()):
                    break
                where[job.id] = max(free)
                free[where[job.id]] -= job.gpus
                free = {kind: left for kind, left in free.items() if left != 0}
        return {job.id: [float(where.get(job.id) == kind) for kind in range(3)] for job in jobs}

    return policy


def fifo_by_speed(gpus: Sequence[int]) -> Policy:
    """First come, first served on the fastest type with room, anew each time; the first that does not fit blocks."""

    def policy(jobs: Sequence[Job]) -> Shares:
        free, shares = list(gpus), {job.id: [0.0] * 3 for job in jobs}
        for job in sorted(jobs, key=lambda job: job.id):
            fits = [kind for kind in range(3) if free[kind] >= job.gpus]
            if not fits:
                break
            kind = max(fits, key=lambda kind: job.rates[kind])
            free[kind] -= job.gpus
            shares[job.id][kind] = 1.0
        return shares

    return policy


def max_min(gpus: Sequence[int], *, aware: bool) -> Policy:
    """Max-min fairness: the least of GPUs times rate over the rate of equal shares of all types, as large as can be."""

    def policy(jobs: Sequence[Job]) -> Shares:
        rates = np.array([job.rates if aware else (1.0, 1.0, 1.0) for job in jobs])
        usual = rates @ np.asarray(gpus, float) / sum(gpus)
        return least_at_most(jobs, gpus, rates * np.array([[job.gpus] for job in jobs]) / usual[:, None])

    return policy


def makespan(gpus: Sequence[int]) -> Policy:
    """Shares under which the longest of all jobs ends as soon as can be."""

    def policy(jobs: Sequence[Job]) -> Shares:
        parts = np.array([[rate / job.left for rate in job.rates] for job in jobs])
        return least_at_most(jobs, gpus, parts / parts.max(axis=1).min())

    return policy


def least_at_most(jobs: Sequence[Job], gpus: Sequence[int], gains: np.ndarray) -> Shares:
    """Maximise the least of the jobs' gains: sums of shares times gains by type."""
    n = len(jobs)
    x = np.arange(3 * n)
    row, kind = x // 3, x % 3
    sizes = np.array([job.gpus for job in jobs], float)
    # Rows: value - gain of job <= 0; shares of a job <= 1; GPUs of a type <= those there are. The value is column 3 n.
    rows = np.concatenate([row, np.arange(n), n + row, 2 * n + kind])
    columns = np.concatenate([x, np.full(n, 3 * n), x, x])
    entries = np.concatenate([-gains.ravel(), np.ones(n), np.ones(3 * n), sizes[row]])
    most = np.concatenate([np.zeros(n), np.ones(n), np.asarray(gpus, float)])
    value = np.zeros(3 * n + 1)
    value[-1] = -1.0
    matrix = coo_array((entries, (rows, columns)), shape=(2 * n + 3, 3 * n + 1)).tocsr()
    solved = linprog(value, matrix, most, bounds=(0, None))
    assert solved.status == 0, solved.message
    shares = np.clip(solved.x[:-1], 0, 1).reshape(n, 3)
    return {job.id: mine.tolist() for job, mine in zip(jobs, shares, strict=True)}


def fast_first() -> Sequence[str]:
    return FAST_FIRST


def shuffled(seed: int) -> Callable[[], Sequence[str]]:
    """Return the types in an order drawn for each round."""
    rng, types = Random(seed + 5), list(FAST_FIRST)

    def order() -> Sequence[str]:
        rng.shuffle(types)
        return types

    return order


POLICIES: dict[str, Callable[[Sequence[int]], Policy]] = {
    "fifo": fifo_by_type,
    "fifo-perf": fifo_by_speed,
    "max-min-agnostic": lambda gpus: max_min(gpus, aware=False),
    "max-min-perf": lambda gpus: max_min(gpus, aware=True),
    "makespan": makespan,
}


def replay(seed: int, name: str, coming: Iterator[Job], gpus: Sequence[int] = (36, 36, 36)) -> Replay:
    """Prepare a replay of jobs under a policy."""
    order = shuffled(seed) if name in ("fifo", "max-min-agnostic") else fast_first
    return Replay(coming, gpus, POLICIES[name](gpus), order, skip_zero=name.startswith("fifo"))


def static(rates: Rates, seed: int, name: str, jobs: int = 100) -> Replay:
    """Play so many jobs of one and more GPUs, all there at the start, on 36 GPUs of each type."""
    drawn = islice(drawn_jobs(rates, seed, multi_gpu=True), jobs)
    return replay(seed, name, (Job(i, 0.0, *one) for i, one in enumerate(drawn))).run()


def continuous(rates: Rates, seed: int, name: str, jobs_per_hour: float, window: range, at_once: int = 0) -> Replay:
    """Play jobs of one GPU until all of a window have ended."""
    drawn = zip(arrivals(seed, jobs_per_hour, at_once), drawn_jobs(rates, seed, multi_gpu=False), strict=False)
    coming = (Job(i, time_s, *one) for i, (time_s, one) in enumerate(drawn))
    missing = set(window)

    def done(jct_s: Mapping[int, float | None]) -> bool:
        missing.difference_update(jct_s)
        return not missing

    return replay(seed, name, coming).run(done)


def mean_h(played: Replay, window: range) -> float:
    """Return the mean completion time of a window in hours; jobs given up are not in it."""
    times = [jct_s for job in window if (jct_s := played.jct_s.get(job)) is not None]
    return sum(times) / len(times) / 3600


def main(path: str, name: str, jobs_per_hour: str, seed: str, at_once: str = "0") -> None:
    window = range(4000, 5000)
    played = continuous(read_rates(Path(path)), int(seed), name, float(jobs_per_hour), window, int(at_once))
    sys.stdout.write(f"{mean_h(played, window):.4f}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
