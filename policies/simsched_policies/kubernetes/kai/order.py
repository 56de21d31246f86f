"""Which pods of a job are tried together, and the order of jobs over the tree of queues.

Reversed, it is the order of victims. Source: KAI, plugin proportion.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Literal

from simsched_policies.kubernetes.kai.board import Board
from simsched_policies.kubernetes.kai.ledger import Entry
from simsched_policies.kubernetes.kai.model import NOTHING, Amounts, Job, Pod, SubGroup, plus

Urgency = tuple[float, int, float, str]


def pod_order(pod: Pod) -> tuple[bool, int, float, str]:
    """Rank the pods of a sub-group: leader first, then by priority and age."""
    return (not pod.leader, -pod.priority, pod.created_s, pod.id)


def group_order(board: Board, job: Job, group: SubGroup) -> tuple[bool, float, str]:
    """Rank sub-groups: those below their minimum first, then those with the smallest share of it."""
    active = len(board.active(job, group))
    return (active >= group.min_member, active / group.min_member if group.min_member else float(active), group.name)


def step(board: Board, job: Job, free: Collection[Pod]) -> list[Pod]:
    """Return which of the `free` pods are tried next: those missing to the minima, or one more pod.

    Empty if the free pods cannot complete a minimum.
    """
    groups = sorted(job.leaves(), key=lambda group: group_order(board, job, group))
    found: list[Pod] = []
    for group in groups:
        lacking = group.min_member - len(board.active(job, group))
        if lacking > 0:
            own = sorted((pod for pod in free if pod.group == group.name), key=pod_order)
            if len(own) < lacking:
                return []
            found += own[:lacking]
    if found:
        return found
    for group in groups:
        own = sorted((pod for pod in free if pod.group == group.name), key=pod_order)
        if own:
            return own[:1]
    return []


def elastic_state(job: Job, active: Collection[Pod]) -> Literal[0, 1, 2]:
    """Return 0 if a job with active pods is below its minimum, 1 if it is at its minimum, 2 if it is above."""
    numbers = Counter(pod.group for pod in active)
    margins = [numbers[group.name] - group.min_member for group in job.leaves()]
    return 0 if min(margins) < 0 else 2 if max(margins) > 0 else 1


def urgency(job: Job, active: Collection[Pod]) -> Urgency:
    """Rank the jobs of a leaf queue; the most urgent has the lowest rank."""
    return (-job.priority, elastic_state(job, active), job.created_s, job.id)


def next_victims(job: Job, left: Collection[Pod]) -> list[Pod]:
    """Return which of the pods `left` are evicted next: the worst above a minimum, or all."""
    worst_first = [
        (group, sorted((pod for pod in left if pod.group == group.name), key=pod_order, reverse=True))
        for group in job.leaves()
    ]
    above = [(group, pods) for group, pods in worst_first if len(pods) > group.min_member]
    if above:
        fullest = max(above, key=lambda one: (len(one[1]) / max(one[0].min_member, 1), one[0].name))
        return fullest[1][:1]
    return [pod for _, pods in worst_first for pod in pods]


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
