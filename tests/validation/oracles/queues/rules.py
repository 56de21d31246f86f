"""First come, shortest, smallest, least served, and in turn, on so many GPUs, wherever they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf

from tests.validation.oracles.queues.loop import Job, Now, Rule, fitting


def keeping(gpus: int, key: Callable[[Job], object], *, blocking: bool = False) -> Rule:
    """FIFO, backfill, SJF: who runs goes on; of the others those with the smallest key start."""

    def rule(now: Now) -> Iterable[Job] | None:
        running = [job for job in now.active if job.running]
        waiting = sorted((job for job in now.active if not job.running), key=key)  # type: ignore[arg-type]
        free = gpus - sum(job.gpus for job in running)
        return running + fitting(waiting, free, blocking=blocking)

    return rule


def preempting(gpus: int, key: Callable[[Job], object]) -> Rule:
    """SRTF, SRSF, smallest first: at each event the jobs with the smallest key run, and no other."""

    def rule(now: Now) -> Iterable[Job] | None:
        return fitting(sorted(now.active, key=key), gpus) if now.happened else None  # type: ignore[arg-type]

    return rule


class BySlices:
    """LAS and Gittins: keys of running jobs are looked at anew once a slice; those that stop or arrive, at once."""

    def __init__(self, gpus: int, slice_s: int, key: Callable[[int], float]) -> None:
        self.gpus, self.slice_s, self.key = gpus, slice_s, key
        self.keys: dict[Job, float] = {}
        self.slice = 0
        self.wake = -1

    def __call__(self, now: Now) -> Iterable[Job] | None:
        if not now.happened and now.time != self.wake:
            return None
        for job in now.arrived:
            self.keys[job] = self.key(0)
        if now.time // self.slice_s != self.slice:
            self.slice = now.time // self.slice_s
            for job in now.active:
                if job.running:
                    self.keys[job] = self.key(job.attained)
        chosen = fitting(sorted(now.active, key=self.keys.__getitem__), self.gpus)
        for job in now.active:
            if job.running and job not in chosen:
                self.keys[job] = self.key(job.attained)
        if len(chosen) < len(now.active):
            self.wake = (self.slice + 1) * self.slice_s
        return chosen


class InTurn:
    """Time slicing: at the end of a slice the running jobs line up behind the waiting ones."""

    def __init__(self, gpus: int, slice_s: int) -> None:
        self.gpus, self.slice_s = gpus, slice_s
        self.line: list[Job] = []
        self.slice = 0
        self.wake = -1

    def __call__(self, now: Now) -> Iterable[Job] | None:
        if not now.happened and now.time != self.wake:
            return None
        self.line = [job for job in self.line if job.end is None] + now.arrived
        if now.time // self.slice_s != self.slice:
            self.slice = now.time // self.slice_s
            if any(not job.running for job in self.line):
                self.line.sort(key=lambda job: job.running)  # keeps the order among either
        chosen = fitting(self.line, self.gpus)
        if len(chosen) < len(self.line):
            self.wake = (self.slice + 1) * self.slice_s
        return chosen


def gittins(samples: Sequence[int], attained: int, quantum: int | None = None) -> float:
    """The chance that a job ends within a quantum over the service expected of it; without a quantum, of the best."""
    left = [sample - attained for sample in samples if sample > attained]
    if not left:
        return 0.0
    best = 0.0
    for until in {quantum} if quantum is not None else set(left):
        best = max(best, sum(one <= until for one in left) / sum(min(one, until) for one in left))
    return best


class CapacityQueues:
    """yarn-cs on one node: the queue that uses least of its share starts its head, if it may and can."""

    def __init__(self, gpus: int, percent: dict[str, int], *, elastic: bool) -> None:
        self.gpus, self.percent, self.elastic = gpus, dict(percent), elastic
        rest = 100 - sum(percent.values())
        if rest:
            self.percent[""] = rest

    def __call__(self, now: Now) -> Iterable[Job] | None:
        if not now.happened:
            return None
        chosen = [job for job in now.active if job.running]
        heads = {name: [job for job in now.active if not job.running and self.of(job) == name] for name in self.percent}
        while any(heads.values()):
            used = {name: sum(job.gpus for job in chosen if self.of(job) == name) for name in self.percent}
            ranks = {name: used[name] / self.percent[name] if heads[name] else inf for name in self.percent}
            name = min(self.percent, key=ranks.__getitem__)
            head = heads[name][0]
            within = self.elastic or 100 * (used[name] + head.gpus) <= self.percent[name] * self.gpus
            if within and sum(used.values()) + head.gpus <= self.gpus:
                chosen.append(heads[name].pop(0))
            else:
                heads[name] = []
        return chosen

    def of(self, job: Job) -> str:
        return job.tenant if job.tenant in self.percent else ""


class InRounds:
    """Isolated: at each round those run that have had least of the time due to them."""

    def __init__(self, gpus: int, round_s: int) -> None:
        self.gpus, self.round_s = gpus, round_s

    def __call__(self, now: Now) -> Iterable[Job] | None:
        if now.time == 0 or now.time % self.round_s:
            return None
        share = self.gpus / len(now.active)

        def behind(job: Job) -> float:
            return min(share / job.gpus, 1.0) * (now.time - job.submit) / job.held if job.held else inf

        return fitting(sorted(now.active, key=lambda job: -behind(job)), self.gpus)
