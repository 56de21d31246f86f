"""A small cluster in plain Python whose rules can be chosen: an oracle for the gate, its readings and its forecasts.

An event loop of its own, which imports nothing of the engine or the policies. Jobs stand in the order of their
submission. Those at the head start while they fit; of those that must wait some hold a reservation, for the time at
which the limits of the running jobs promise them room, and later jobs start if they delay none of these (Mu'alem and
Feitelson, TPDS 2001, section 2).
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

HOUR_S, DAY_S, ZERO = 3600, 86400, 1_709_251_200  # 2024-03-01


@dataclass(frozen=True)
class Rules:
    """What reservations count (`gpus` of a type, or `nodes`), who holds them, and whether users who give up do.

    The first waiting job of each `partition` holds one, or only the first of the `cluster`, or `nobody`. Jobs that
    their users cancel while they wait stand in the queue until then only if they `linger`. With `favours`, every fourth
    user goes first, and no log says so.
    """

    counts: str = "nodes"
    holders: str = "partition"
    linger: bool = False
    favours: bool = False


@dataclass
class Job:
    """A job on `nodes` nodes with `gpus` on each; `cancel_s` is when its user gives up if it waits then."""

    id: int
    submit_s: int
    user: int
    partition: str
    nodes: int
    gpus: int
    limit_s: int
    run_s: int
    cancel_s: float = float("inf")
    start_s: float = -1
    end_s: float = -1
    held: tuple[int, ...] = ()


@dataclass
class Cluster:
    """Nodes of 8 GPUs of two types, each with a partition of its own, and what is free of them."""

    big: int
    old: int
    rules: Rules = field(default_factory=Rules)

    @property
    def of(self) -> dict[str, range]:
        """The nodes of each partition."""
        return {"gpu": range(self.big), "old": range(self.big, self.big + self.old)}

    def run(self, jobs: Sequence[Job]) -> list[Job]:
        """Return the jobs as they run on the empty cluster."""
        jobs = [replace(one) for one in jobs]
        self.free = [8] * (self.big + self.old)
        self.waiting: list[Job] = []
        self.running: list[Job] = []
        events: list[tuple[float, int, int]] = [(one.submit_s, 1, place) for place, one in enumerate(jobs)]
        heapq.heapify(events)
        while events:
            now = events[0][0]
            while events and events[0][0] == now:
                _, what, place = heapq.heappop(events)
                one = jobs[place]
                if what == 0:  # it ends
                    self.running.remove(one)
                    self._take(one.held, -one.gpus)
                elif what == 1 and (one.cancel_s == float("inf") or self.rules.linger):
                    self.waiting.append(one)
                    if one.cancel_s < float("inf"):
                        heapq.heappush(events, (one.cancel_s, 2, place))
                elif what == 2 and one in self.waiting:
                    self.waiting.remove(one)
                    one.end_s = now
            for one in list(self._starting(now)):
                one.start_s, one.end_s = now, now + min(one.run_s, one.limit_s)
                heapq.heappush(events, (one.end_s, 0, one.id))
        return jobs

    def _take(self, nodes: Sequence[int], gpus: int) -> None:
        for node in nodes:
            self.free[node] -= gpus

    def _fitting(self, job: Job, free: Sequence[int]) -> tuple[int, ...]:
        """Return the fullest nodes with room, none if there are too few."""
        good = sorted((free[node], node) for node in self.of[job.partition] if free[node] >= job.gpus)
        return tuple(node for _, node in good[: job.nodes]) if len(good) >= job.nodes else ()

    def _starting(self, now: float) -> Iterator[Job]:
        """Start the jobs that may start now."""
        held: dict[str, tuple[float, list[int] | int]] = {}
        blocked = set[str]()
        for job in sorted(self.waiting, key=lambda one: self.rules.favours and one.user % 4 > 0):
            at = self._fitting(job, self.free)
            if job.partition in held and at:
                at = self._beside(job, now, held[job.partition])
            if at:
                self._take(at, job.gpus)
                job.held = at
                self.running.append(job)
                self.waiting.remove(job)
                if job.partition in held:
                    held[job.partition] = self._booked(job, now, held[job.partition])
                yield job
            elif job.partition not in blocked:
                first = not blocked
                blocked.add(job.partition)
                if self.rules.holders == "partition" or (self.rules.holders == "cluster" and first):
                    held[job.partition] = self._reserved(job, now)

    def _reserved(self, job: Job, now: float) -> tuple[float, list[int] | int]:
        """Return when a job has room by the limits, and what is then free beside it: of each node, or in all."""
        mine = self.of[job.partition]
        free = list(self.free)
        ends = sorted(
            (max(one.start_s if one.start_s >= 0 else now, 0) + one.limit_s, one.id, one) for one in self.running
        )
        total, wanted, at_s, place = sum(free[node] for node in mine), job.nodes * job.gpus, now, 0
        while place < len(ends) and (total < wanted if self.rules.counts == "gpus" else not self._fitting(job, free)):
            at_s = max(ends[place][0], now + 1)
            while place < len(ends) and max(ends[place][0], now + 1) == at_s:
                one = ends[place][2]
                for node in one.held:
                    free[node] += one.gpus
                total += one.nodes * one.gpus if one.partition == job.partition else 0
                place += 1
        if self.rules.counts == "gpus":
            return at_s, total - wanted
        for node in self._fitting(job, free):
            free[node] -= job.gpus
        return at_s, free

    def _beside(self, job: Job, now: float, held: tuple[float, list[int] | int]) -> tuple[int, ...]:
        """Return nodes on which a job delays no reservation, none if there are too few."""
        at_s, spare = held
        if now + job.limit_s <= at_s:
            return self._fitting(job, self.free)
        if isinstance(spare, int):
            return self._fitting(job, self.free) if job.nodes * job.gpus <= spare else ()
        return self._fitting(job, [min(pair) for pair in zip(self.free, spare, strict=True)])

    def _booked(self, job: Job, now: float, held: tuple[float, list[int] | int]) -> tuple[float, list[int] | int]:
        at_s, spare = held
        if now + job.limit_s <= at_s:
            return held
        if isinstance(spare, int):
            return at_s, spare - job.nodes * job.gpus
        return at_s, [left - job.gpus * (node in job.held) for node, left in enumerate(spare)]


_SHAPES = (((1, 1), 30), ((1, 2), 16), ((1, 4), 20), ((1, 8), 20), ((2, 8), 9), ((3, 8), 5))
_LIMITS_H = ((1, 15), (2, 15), (4, 20), (8, 20), (24, 30))


def draw(cluster: Cluster, seed: int, days: float, load: float, *, hopeful: float = 0.0) -> list[Job]:
    """Draw jobs that offer `load` of each partition's GPU-time, and `hopeful` ones of all nodes a day, given up."""
    dice = random.Random(seed)
    jobs: list[Job] = []
    for partition, nodes in cluster.of.items():
        wanted = load * len(nodes) * 8 * days * DAY_S
        while wanted > 0:
            submit_s = dice.randrange(int(days * DAY_S))
            if dice.random() > (1.0 if 9 <= submit_s / HOUR_S % 24 < 20 else 0.4):
                continue
            shapes, weights = zip(*_SHAPES, strict=True)
            (many, gpus), user = dice.choices(shapes, weights)[0], dice.randrange(16)
            if many > len(nodes) // 2:
                continue
            hours, share = zip(*_LIMITS_H, strict=True)
            limit_s = dice.choices(hours, share)[0] * HOUR_S
            for _ in range(dice.choices((1, 4, 10), (80, 15, 5))[0]):
                run_s = max(30, int(limit_s * dice.betavariate(0.8, 1.6)))
                jobs.append(Job(0, submit_s + dice.randrange(120), user, partition, many, gpus, limit_s, run_s))
                wanted -= many * gpus * run_s
        for _ in range(round(hopeful * days)):
            submit_s = dice.randrange(int(days * DAY_S))
            cancel_s = submit_s + dice.randrange(6 * HOUR_S, 20 * HOUR_S)
            jobs.append(Job(0, submit_s, 16, partition, len(nodes), 8, 8 * HOUR_S, HOUR_S, cancel_s))
    jobs.sort(key=lambda one: one.submit_s)
    for number, one in enumerate(jobs):
        one.id = number
    return jobs


def write_log(folder: Path, cluster: Cluster, jobs: Sequence[Job]) -> tuple[Path, Path]:
    """Write what `sacct -P` and a description of the cluster would say; return both files."""
    folder.mkdir(parents=True, exist_ok=True)

    def at(second: float) -> str:
        return "Unknown" if second < 0 else f"{datetime.fromtimestamp(ZERO + second, UTC):%Y-%m-%dT%H:%M:%S}"

    lines = ["JobID|Submit|Start|End|State|AllocTRES|ReqTRES|Timelimit|Partition|Account|User|NodeList"]
    for one in jobs:
        asked = f"gres/gpu={one.nodes * one.gpus},node={one.nodes}"
        began = one.start_s >= 0
        state = "COMPLETED" if began else "CANCELLED by 1000"
        limit = f"{one.limit_s // HOUR_S:02d}:00:00"
        names = ",".join(f"n{node:02d}" for node in one.held)
        tail = f"{asked if began else ''}|{asked}|{limit}|{one.partition}|lab|user{one.user:02d}|{names}"
        lines.append(f"{1000 + one.id}|{at(one.submit_s)}|{at(one.start_s)}|{at(one.end_s)}|{state}|{tail}")
    (folder / "log.txt").write_text("\n".join(lines) + "\n")
    nodes = [
        f"NodeName=n{node:02d} Gres=gpu:{'a100' if name == 'gpu' else 'v100'}:8 Partitions={name} State=IDLE"
        for name, mine in cluster.of.items()
        for node in mine
    ]
    (folder / "cluster.txt").write_text("\n".join(nodes) + "\n")
    return folder / "log.txt", folder / "cluster.txt"
