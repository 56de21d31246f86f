"""Gandiva of ElasticFlow's simulator, in plain loops and in the order of its description, as an oracle of its replay.

Written from the description of the published simulator (pkusys/ElasticFlow, Apache-2.0), which has no log of Gandiva
and can be read in several ways: orders of ties, what an end does to a set's load and when a stand-still is spent were
searched by machine until all published figures came out, two variants included. The same hand wrote the replay later.
"""

from __future__ import annotations

from tests.validation.oracles.elasticflow import (
    GPUS,
    LEVELS,
    RESTART_EVERY,
    RESTART_S,
    SLOT_S,
    Job,
    Row,
    arrivals_of,
    gather,
    logged,
    stand_still_s,
)

NODE_GPUS = 8


class NodeSet:
    """A set of nodes; `load` is lowered only when jobs are dealt out anew, not by ends."""

    def __init__(self, size: int) -> None:
        self.nodes = max(size // NODE_GPUS, 1)
        self.room = NODE_GPUS * self.nodes // size
        self.load = 0
        self.jobs: list[Job] = []

    def take(self, job: Job) -> None:
        self.jobs.append(job)
        self.load += 1


def sort(sets: list[NodeSet]) -> None:
    sets.sort(key=lambda one: one.load)


class Gandiva:
    """The four steps; `always_anew` and `never_still` are the two variants of which figures are published."""

    def __init__(self, jobs: list[Job], *, always_anew: bool = False, never_still: bool = False) -> None:
        self.arrivals = arrivals_of(jobs)
        self.always_anew, self.never_still = always_anew, never_still
        self.sets: dict[int, list[NodeSet]] = {size: [] for size in LEVELS}
        self.free = GPUS // NODE_GPUS
        self.waiting: list[Job] = []
        self.rows: list[Row] = []
        self.decisions = 0

    def replay(self) -> list[Row]:
        missing = sum(len(event.starts) for event in self.arrivals)
        last = now = self.arrivals[0].time_s
        while True:
            self.adjust()
            freed = self.run(now, now - last)
            if self.arrivals and self.arrivals[0].time_s == now:
                self.arrive(self.arrivals.pop(0).starts, now)
            if freed:
                self.try_waiting(now)
            if self.arrivals:
                self.stand_still()
            self.decisions += 1
            if len(self.rows) == missing:
                return self.rows
            gather(now, self.arrivals)
            last, now = now, self.arrivals[0].time_s if self.arrivals else now + SLOT_S

    def adjust(self) -> None:
        demand = {size: size * sum(len(one.jobs) for one in self.sets[size]) for size in LEVELS}
        for size in LEVELS:
            if demand[size] == 0:
                continue
            sets = self.sets[size]
            target = min(GPUS * demand[size] // sum(demand.values()), demand[size])
            held = NODE_GPUS * sum(one.nodes for one in sets)
            if target > held:
                self.add(size, -((held - target) // size))
            elif target < held:
                gone = [sets.pop(0) for _ in range(min(-((target - held) // size), len(sets) - 1))]
                self.free += sum(one.nodes for one in gone)
                self.deal(sets, [job for one in gone for job in one.jobs])

    def add(self, size: int, count: int) -> None:
        sets, last_was_made = self.sets[size], True
        for _ in range(count):
            added = NodeSet(size)
            last_was_made = added.nodes <= self.free
            if last_was_made:
                self.free -= added.nodes
                sets.append(added)
        if self.always_anew or size > NODE_GPUS or not last_was_made:
            jobs = [job for one in sets for job in one.jobs]
            for one in sets:
                one.jobs, one.load = [], 0
            self.deal(sets, jobs)

    def deal(self, sets: list[NodeSet], jobs: list[Job]) -> None:
        for job in jobs:
            sets[0].take(job)
            sort(sets)

    def run(self, now: float, elapsed_s: float) -> bool:
        empty = []
        for sets in self.sets.values():
            for one in sets:
                first, waiting = one.jobs[: one.room], one.jobs[one.room :]
                for job in first:
                    job.attained_s += max(elapsed_s - job.overhead_s, 0)
                    job.overhead_s = 0
                    if job.attained_s >= job.duration_s:
                        one.jobs.remove(job)
                        job.end_s, job.gpus = now - (job.attained_s - job.duration_s), job.asked_gpus
                        self.rows.append(logged(job, now, 0))
                    elif waiting and now % 60 == 0:
                        one.jobs.remove(job)
                        one.jobs.append(job)
                if not one.jobs:
                    empty.append((sets, one))
        for sets, one in empty:
            sets.remove(one)
            self.free += one.nodes
        return bool(empty)

    def arrive(self, jobs: list[Job], now: float) -> None:
        self.waiting += [job for job in jobs if not self.place(job, now)]

    def try_waiting(self, now: float) -> None:
        at = 0
        while at < len(self.waiting):
            if self.place(self.waiting[at], now):
                del self.waiting[at]  # and the next one is skipped
            at += 1

    def place(self, job: Job, now: float) -> bool:
        sets, added = self.sets[job.asked_gpus], NodeSet(job.asked_gpus)
        if sets and sets[0].load + 1 < sets[0].room:
            chosen = sets.pop(0)
        else:
            if sets:
                sets.append(sets.pop(0))
            if added.nodes <= self.free:
                self.free -= added.nodes
                chosen = added
            elif sets:
                chosen = sets.pop(0)
            else:
                return False
        chosen.take(job)
        sets.append(chosen)
        sort(sets)
        job.start_s = now
        return True

    def stand_still(self) -> None:
        restart = self.decisions > 0 and self.decisions % RESTART_EVERY == 0
        for job in [job for sets in self.sets.values() for one in sets for job in one.jobs]:
            if not self.never_still:
                job.overhead_s = stand_still_s(job.asked_gpus) + (RESTART_S if restart else 0)
