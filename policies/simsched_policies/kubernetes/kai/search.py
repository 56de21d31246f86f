"""The search for victims: which jobs to move or stop so that a waiting job gets its places.

Trials rank queues as the next `allocate` would: a queue is represented by its first job that waits or lost its place,
even if that job takes no part. Otherwise the reclaiming job would get places that `allocate` returns to the victim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from simsched_policies.kubernetes.kai.approval import Unit
from simsched_policies.kubernetes.kai.board import Board
from simsched_policies.kubernetes.kai.model import Amounts, Ask, Job, Pod, plus, within
from simsched_policies.kubernetes.kai.order import Order, Ranked, next_victims, step, urgency
from simsched_policies.kubernetes.kai.placing import Placing
from simsched_policies.kubernetes.kai.room import Floats

#: Whether victims without another place may be stopped for what a job asks.
Test = Callable[[Amounts, Sequence[Unit]], bool]


@dataclass(frozen=True)
class Asked:
    """Which jobs an action may move, and which of these it `may_lose` for good; a `test` decides.

    `most` limits the number of victims, -1 for no limit.
    """

    victims: Sequence[Job]
    may_lose: Callable[[Job], bool]
    test: Test
    most: int = -1


class Search:
    """Searches places for one job's next pods among those of victims, worst first."""

    def __init__(self, board: Board, placing: Placing, job: Job, asked: Asked, heads: Sequence[Ranked]) -> None:
        """Start a search; `heads` are the waiting jobs of all queues, see the function of that name."""
        self._board, self._placing, self._job = board, placing, job
        self._victims, self._test, self._most = asked.victims, asked.test, asked.most
        self._losable = {one.id for one in asked.victims if asked.may_lose(one)}
        self._nodes = {job.id: self._nodes_of(job) for job in self._victims}
        self._heads = heads

    def solve(self) -> bool:
        """Place the first 1, 2, ... of the job's pods with ever more victims; return whether all have places.

        Otherwise the board is unchanged.
        """
        board = self._board
        pods = step(board, self._job, board.pending(self._job))
        if not pods:
            return False
        kept: list[Unit] = []
        for number in range(1, len(pods) + 1):
            mark = board.mark()
            found = self._solve(pods[:number], kept)
            if found is None:
                return False
            kept = found
            if number < len(pods):
                board.undo(mark)
        return True

    def _solve(self, pods: Sequence[Pod], kept: list[Unit]) -> list[Unit] | None:
        """Return the victims that give some pods places, and apply them to the board; None if there are none."""
        copies = self._board.room.copies(pods[0])
        if self._may_suffice(pods, kept, copies) and self._try(pods, kept):
            return kept
        known = {pod.id for _, gone in kept for pod in gone}
        so_far: list[Unit] = []
        for job, unit in self._units():
            fresh = [pod for pod in unit if pod.id not in known]
            if not fresh:
                continue
            so_far.append((job, fresh))
            for node in self._nodes[job.id]:
                taken = [*kept, *((one, gone) for one, gone in so_far if node in self._nodes[one.id])]
                if self._may_suffice(pods, taken, copies) and self._try(pods, taken):
                    return taken
        return None

    def _nodes_of(self, job: Job) -> list[int]:
        seats = (self._board.seat(pod.id).now for pod in self._board.running(job))
        return sorted({seat.node for seat in seats if seat is not None})

    def _units(self) -> Iterator[Unit]:
        """Yield what to evict, worst first: a pod above a minimum, or all remaining pods of a job."""
        board = self._board
        left = {job.id: board.running(job) for job in self._victims}
        touched: set[str] = set()
        order = Order(
            board,
            self._victims,
            lambda job: board.asks(next_victims(job, left[job.id])),
            rank=lambda job: urgency(job, left[job.id]),
            reverse=True,
        )
        while (job := order.pop()) is not None:
            touched.add(job.id)
            if 0 <= self._most < len(touched) - 1:
                return
            unit = next_victims(job, left[job.id])
            gone = {pod.id for pod in unit}
            left[job.id] = [pod for pod in left[job.id] if pod.id not in gone]
            yield job, unit
            if left[job.id]:
                order.push(job)

    def _may_suffice(self, pods: Sequence[Pod], taken: Sequence[Unit], copies: Floats) -> bool:
        """Return whether pods may fit at all; `copies` of the first one fit on each node without victims."""
        room = self._board.room
        lost = self._board.asks([pod for one, gone in taken if one.id in self._losable for pod in gone])
        free = plus(room.all_free(), lost)
        if not within(self._board.asks(list(pods)), free):
            return False
        if any(pod.ask != pods[0].ask or pod.nodes != pods[0].nodes for pod in pods):
            return True
        freed: dict[int, list[Ask]] = {}
        for _, gone in taken:
            for pod in gone:
                place = self._board.seat(pod.id).now
                if place is not None:
                    freed.setdefault(place.node, []).append(pod.ask)
        more = sum(room.copies_with(pods[0], node, asks) - float(copies[node]) for node, asks in freed.items())
        return float(copies.sum()) + more >= len(pods)

    def _try(self, pods: Sequence[Pod], taken: Sequence[Unit]) -> bool:
        """Evict victims, place them and the job's pods again in order, and test whether that is allowed."""
        board = self._board
        mark = board.mark()
        before = {pod.id: board.seat(pod.id) for _, gone in taken for pod in gone}
        for pod in before:
            board.evict(pod)
        free: dict[str, list[Pod]] = {self._job.id: list(pods)}
        for job, gone in taken:
            free.setdefault(job.id, []).extend(gone)

        def tried(job: Job) -> list[Pod]:
            waiting = [pod for pod in free[job.id] if board.seat(pod.id).future is None]
            return waiting if job is self._job else step(board, job, waiting)

        involved = {board.ledger.root_of(board.jobs[name].queue) for name in free}
        others = [
            one for one in self._heads if one[1].id not in free and board.ledger.root_of(one[1].queue) in involved
        ]
        order = Order(board, [board.jobs[name] for name in free], lambda job: board.asks(tried(job)), others=others)
        placed, left = False, set(free)
        while left and (first := order.pop()) is not None:
            if first.id not in free:
                continue
            left.discard(first.id)
            some = tried(first)
            if some and self._placing.place(first, some, start=False):
                placed |= first is self._job
                if first is not self._job and tried(first):
                    order.push(first)
                    left.add(first.id)
            elif first is self._job:
                break
        if placed:
            lost = [(job, [pod for pod in gone if board.seat(pod.id).future is None]) for job, gone in taken]
            if self._test(board.asks(list(pods)), [(job, gone) for job, gone in lost if gone]):
                return True
        board.undo(mark)
        return False


def heads(board: Board, next_pods: Callable[[Job], Sequence[Pod]]) -> Iterator[Ranked]:
    """Yield the waiting jobs with what they try next; of consecutive equal requests in a queue, only one."""
    by_queue: dict[str, list[Ranked]] = {}
    for job in board.jobs.values():
        pods = next_pods(job)
        if pods:
            by_queue.setdefault(job.queue, []).append((urgency(job, board.active(job)), job, board.asks(list(pods))))
    for line in by_queue.values():
        line.sort(key=lambda one: one[0])
        yield from (one for number, one in enumerate(line) if number == 0 or one[2] != line[number - 1][2])
