"""Gandiva in ElasticFlow's artifact: sets of nodes for jobs of one size, which train in turns within a set."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from simsched.errors import input_error
from simsched.model import Cluster
from simsched.policy import JobView

from .books import LEVELS, RESTART_S, SLOT_S, Account, Artifact, Books, gathered, stand_still_s

#: The training jobs of a set change only at decisions at multiples of this many seconds.
_TURN_S = 60


class Gandiva(Artifact):
    """Distributes sets of nodes by the demand of each size, at arrivals, and every slot after the last arrival."""

    name: ClassVar[str] = "elasticflow-artifact-gandiva"

    def check_jobs(self, jobs: Sequence[JobView], cluster: Cluster) -> None:
        """Refuse sizes and nodes for which the artifact has no sets."""
        super().check_jobs(jobs, cluster)
        if len({node.gpus for node in cluster.nodes}) > 1:
            raise input_error("cluster", "nodes differ in their GPUs", "the artifact's sets are of equal nodes")
        for job in jobs:
            if job.request.num_gpus not in LEVELS:
                message = f"job '{job.id}' asks for {job.request.num_gpus} GPUs, for which the artifact has no sets"
                raise input_error("workload", message, f"the sizes are {', '.join(map(str, LEVELS))}")

    def keep(self, accounts: Sequence[Account], gpus: int) -> Books:
        """Decide until all ends have been noticed."""
        return _Nodes(list(accounts), gpus, len(self._cluster.nodes)).keep()


@dataclass(eq=False)
class _Member:
    """A job, what it has trained, and how long it pauses before it next trains."""

    account: Account
    trained_s: float = 0.0
    still_s: float = 0.0


@dataclass(eq=False)
class _Set:
    """Nodes that `room` jobs use at once; `load` counts jobs that joined, and ignores ends."""

    nodes: int
    room: int
    load: int = 0
    jobs: list[_Member] = field(default_factory=list)

    def take(self, job: _Member) -> None:
        """Let a job join, behind all others."""
        self.jobs.append(job)
        self.load += 1

    def train(self, now_s: float, elapsed_s: float) -> Iterator[Account]:
        """Train the first jobs since the last decision, and yield those that end."""
        running, waiting = self.jobs[: self.room], self.jobs[self.room :]
        for job in running:
            job.trained_s += max(0.0, elapsed_s - job.still_s)
            job.still_s = 0.0
            if job.trained_s >= job.account.duration_s:
                job.account.end_s = now_s - (job.trained_s - job.account.duration_s)
                yield job.account
        left = [job for job in running if job.trained_s < job.account.duration_s]
        self.jobs = waiting + left if now_s % _TURN_S == 0 else left + waiting


def _order(sets: list[_Set]) -> None:
    sets.sort(key=lambda one: one.load)


def _deal(sets: list[_Set], jobs: Sequence[_Member]) -> None:
    """Let each job join the least loaded set, which keeps its position among sets of equal load."""
    for job in jobs:
        sets[0].take(job)
        _order(sets)


@dataclass
class _Nodes:
    """All sets by the size of their jobs, each list ordered by load at the last join."""

    coming: list[Account]
    gpus: int
    free_nodes: int
    books: Books = field(default_factory=Books)
    sets: dict[int, list[_Set]] = field(default_factory=lambda: {level: [] for level in LEVELS})
    waiting: list[_Member] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.node_gpus = self.gpus // self.free_nodes

    def keep(self) -> Books:
        last_s = now_s = self.coming[0].submit_s
        while True:
            freed = self._train(now_s, now_s - last_s)
            self._arrive(now_s, freed=freed)
            if self.coming:
                self._stand_still()
            self._adjust()
            active = self._note(now_s)
            if not self.coming and not active:
                return self.books
            last_s = now_s
            now_s = gathered(now_s, [one.submit_s for one in self.coming]) if self.coming else now_s + SLOT_S

    def _train(self, now_s: float, elapsed_s: float) -> bool:
        """Train, and free the sets without jobs; return whether there were any."""
        freed = 0
        for sets in self.sets.values():
            for one in sets:
                for account in one.train(now_s, elapsed_s):
                    self.books.end(account, now_s)
            freed += sum(one.nodes for one in sets if not one.jobs)
            sets[:] = [one for one in sets if one.jobs]
        self.free_nodes += freed
        return freed > 0

    def _arrive(self, now_s: float, *, freed: bool) -> None:
        while self.coming and self.coming[0].submit_s <= now_s:
            job = _Member(self.coming.pop(0))
            if not self._place(job, now_s):
                self.waiting.append(job)
        if freed:
            for job in self.waiting:  # the artifact removes while iterating over the list, and so skips the next
                if self._place(job, now_s):
                    self.waiting.remove(job)

    def _place(self, job: _Member, now_s: float) -> bool:
        """Put a job into a set with room for two more, else into a new one, else into the next one, or into none."""
        size = job.account.asked_gpus
        sets = self.sets[size]
        if not sets or sets[0].load + 1 >= sets[0].room:
            sets[:] = [*sets[1:], *sets[:1]]
            sets[:0] = self._claim(size, 1)
            if not sets:
                return False
        first = sets.pop(0)
        first.take(job)
        sets.append(first)
        _order(sets)
        job.account.start_s = now_s
        return True

    def _claim(self, size: int, count: int) -> list[_Set]:
        """Return this many empty sets, or as many as the nodes allow."""
        nodes = math.ceil(size / self.node_gpus)
        made = min(count, self.free_nodes // nodes)
        self.free_nodes -= made * nodes
        return [_Set(nodes, self.node_gpus * nodes // size) for _ in range(made)]

    def _stand_still(self) -> None:
        restart_s = RESTART_S if self.books.restarts else 0
        for size, sets in self.sets.items():
            for job in (job for one in sets for job in one.jobs):
                job.still_s = stand_still_s(size) + restart_s

    def _adjust(self) -> None:
        """Adjust the sets of each size towards its share of the GPUs; new sets that stay empty are removed."""
        demand = {size: size * sum(len(one.jobs) for one in sets) for size, sets in self.sets.items()}
        for size, sets in self.sets.items():
            if not sets:
                continue
            target = min(self.gpus * demand[size] // sum(demand.values()), demand[size])
            held = self.node_gpus * sum(one.nodes for one in sets)
            count = math.ceil(abs(target - held) / size)
            if target > held:
                made = self._claim(size, count)
                sets += made
                if size > self.node_gpus or len(made) < count:
                    self._deal_anew(sets)
            else:
                self._dissolve(sets, min(count, len(sets) - 1))

    def _deal_anew(self, sets: list[_Set]) -> None:
        jobs = [job for one in sets for job in one.jobs]
        for one in sets:
            one.jobs, one.load = [], 0
        _deal(sets, jobs)

    def _dissolve(self, sets: list[_Set], count: int) -> None:
        """Dissolve the first sets, and distribute their jobs over the others."""
        gone, sets[:] = sets[:count], sets[count:]
        self.free_nodes += sum(one.nodes for one in gone)
        _deal(sets, [job for one in gone for job in one.jobs])

    def _note(self, now_s: float) -> bool:
        """Record the decision if it changes anything, and return whether any end has not been noticed."""
        active = [job.account for job in self.waiting]
        for one in (one for sets in self.sets.values() for one in sets):
            for place, job in enumerate(one.jobs):
                account = job.account
                account.gpus = account.asked_gpus if place < one.room else 0
                account.left = account.total * max(1 - job.trained_s / account.duration_s, 0.0)
                active.append(account)
        running = {account.id: account.gpus for account in active if account.gpus}
        if self.coming or not self.books.turns or running != self.books.turns[-1].gpus:
            self.books.turn(now_s, active)
        return bool(active)
