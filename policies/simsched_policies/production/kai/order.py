"""The order of jobs over the tree of queues, and its reverse, the order of victims. Source: KAI, plugin proportion."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable

from simsched_policies.production.kai.board import Board
from simsched_policies.production.kai.gang import Urgency, urgency
from simsched_policies.production.kai.ledger import Entry
from simsched_policies.production.kai.model import NOTHING, Amounts, Job, plus

#: A job of a queue, its rank, and what it asks for.
Ranked = tuple[Urgency, Job, Amounts]


class Order:
    """Jobs by leaf queue, ranked again at every `pop`, since what queues hold changes in between.

    `asks` returns what a job tries next, or, in `reverse` order, what its next victims would release.
    """

    def __init__(
        self,
        board: Board,
        jobs: Iterable[Job],
        asks: Callable[[Job], Amounts],
        *,
        rank: Callable[[Job], Urgency] | None = None,
        reverse: bool = False,
        others: Iterable[Ranked] = (),
    ) -> None:
        """Queue the jobs; `rank` orders those of a queue, by default as on the board; `others` are ranked too."""
        self._board, self._asks, self._reverse = board, asks, reverse
        self._rank = rank or (lambda job: urgency(job, board.active(job)))
        self._waiting: dict[str, list[Ranked]] = {}
        self._gone: dict[str, Amounts] = {}
        for ranked in others:
            self._waiting.setdefault(ranked[1].queue, []).append(ranked)
        for line in self._waiting.values():
            line.sort(key=lambda one: one[0])
        for job in jobs:
            self.push(job)

    def push(self, job: Job) -> None:
        """Queue a job, again or for the first time."""
        line = self._waiting.setdefault(job.queue, [])
        insort(line, (self._rank(job), job, self._asks(job)), key=lambda one: one[0])

    def pop(self) -> Job | None:
        """Remove and return the first job; None if none is left."""
        found = self._first(self._board.ledger.roots)
        if found is None:
            return None
        job, asked = found
        self._waiting[job.queue].pop(self._end)
        if self._reverse:
            for entry in self._board.ledger.entries[job.queue].lineage():
                self._gone[entry.name] = plus(self._gone.get(entry.name, NOTHING), asked)
        return job

    @property
    def _end(self) -> int:
        return -1 if self._reverse else 0

    def _first(self, entries: Iterable[Entry]) -> tuple[Job, Amounts] | None:
        best: tuple[Entry, tuple[Job, Amounts]] | None = None
        for entry in entries:
            head = self._first(entry.children) if entry.children else self._head(entry.name)
            if head is not None and (best is None or self._before((entry, head[1]), (best[0], best[1][1]))):
                best = (entry, head)
        return None if best is None else best[1]

    def _head(self, leaf: str) -> tuple[Job, Amounts] | None:
        line = self._waiting.get(leaf)
        return line[self._end][1:] if line else None

    def _before(self, one: tuple[Entry, Amounts], other: tuple[Entry, Amounts]) -> bool:
        ledger, asked = self._board.ledger, (one[1], other[1])
        if not self._reverse:
            return ledger.compare(one[0], other[0], asked) < 0
        gone = (
            plus(self._gone.get(one[0].name, NOTHING), asked[0]),
            plus(self._gone.get(other[0].name, NOTHING), asked[1]),
        )
        return ledger.compare(one[0], other[0], (NOTHING, NOTHING), gone) > 0
