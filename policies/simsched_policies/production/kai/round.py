"""A round of the scheduler: allocate, consolidation, reclaim, preempt, and the eviction of stale gangs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence

from simsched_policies.production.kai.approval import Unit, is_elastic, keeps_minimum, may_reclaim, protected
from simsched_policies.production.kai.board import Board
from simsched_policies.production.kai.gang import step
from simsched_policies.production.kai.model import Amounts, Job, Pod, Snapshot, plus, within
from simsched_policies.production.kai.order import Order
from simsched_policies.production.kai.placing import Placing
from simsched_policies.production.kai.search import Search, Test


def run_round(snapshot: Snapshot) -> Board:
    """Run the actions on a snapshot; the board returned says where every pod is, and where it is to be."""
    board = Board(snapshot)
    actions = _Actions(board, Placing(board, snapshot.topologies))
    for action in snapshot.rules.actions:
        actions.run(action)
    return board


class _Actions:
    """The actions, on one board."""

    def __init__(self, board: Board, placing: Placing) -> None:
        self._board, self._placing = board, placing

    def run(self, action: str) -> None:
        if action == "stalegangeviction":
            self._evict_stale()
            return
        board = self._board
        waiting = [job for job in board.jobs.values() if self._next(job)]
        order = Order(board, waiting, lambda job: board.asks(self._next(job)))
        attempts: dict[str, Callable[[Job], bool]] = {
            "allocate": self._allocate,
            "consolidation": self._consolidate,
            "reclaim": self._reclaim,
            "preempt": self._preempt,
        }
        attempt, failed = attempts[action], set[Hashable]()
        while (job := order.pop()) is not None:
            kind = self._kind(job)
            if kind in failed and (action == "allocate" or board.rules.skip_alike):
                continue
            if not attempt(job):
                failed.add(kind)
            elif self._next(job):
                order.push(job)

    def _next(self, job: Job) -> list[Pod]:
        return step(self._board, job, self._board.pending(job))

    def _kind(self, job: Job) -> Hashable:
        """Return what two jobs share that fare alike."""
        pods = tuple((pod.ask, pod.nodes, pod.group) for pod in self._next(job))
        where = () if job.constraint is None and not job.groups else (job.id,)
        return (job.queue, job.priority, job.preemptible, pods, where)

    def _allocate(self, job: Job) -> bool:
        return self._placing.place(job, self._next(job), start=True)

    def _running(self) -> list[Job]:
        return [job for job in self._board.jobs.values() if job.preemptible and self._board.running(job)]

    def _consolidate(self, job: Job) -> bool:
        board, most = self._board, self._board.rules.max_consolidation_preemptees
        free = board.room.future(board.room.everywhere)[2]
        if not job.preemptible or most == 0 or free + 1e-6 < board.asks(self._next(job))[2]:
            return False
        return self._search(job, self._running(), lambda _, lost: not lost, most)

    def _reclaim(self, job: Job) -> bool:
        board, queue = self._board, self._board.ledger.entries[job.queue]
        if not within(plus(queue.allocated, board.asks(self._next(job))), queue.fair_share):
            return False
        victims = self._victims((one for one in self._running() if one.queue != job.queue), job)
        held = {name: entry.allocated for name, entry in board.ledger.entries.items()}

        def test(request: Amounts, lost: Sequence[Unit]) -> bool:
            multiplier = board.rules.saturation_multiplier
            allowed = may_reclaim(board.ledger, job, request, lost, held, board.amounts, multiplier)
            return allowed and self._respects(lost, job)

        return self._search(job, victims, test, -1)

    def _preempt(self, job: Job) -> bool:
        same = (one for one in self._running() if one.queue == job.queue and one.priority < job.priority)
        return self._search(job, self._victims(same, None), lambda _, lost: self._respects(lost, None), -1)

    def _victims(self, jobs: Iterable[Job], reclaimer: Job | None) -> list[Job]:
        return [job for job in jobs if is_elastic(job) or not protected(self._board, job, reclaimer)]

    def _respects(self, lost: Sequence[Unit], reclaimer: Job | None) -> bool:
        board = self._board
        return all(keeps_minimum(board, job) or not protected(board, job, reclaimer) for job, _ in lost)

    def _search(self, job: Job, victims: Sequence[Job], test: Test, most: int) -> bool:
        others = [one for one in victims if one is not job]
        return bool(others) and Search(self._board, self._placing, job, others, test, most).solve()

    def _evict_stale(self) -> None:
        board = self._board
        grace_s = board.rules.staleness_grace_s
        for job in board.jobs.values():
            if grace_s < 0 or keeps_minimum(board, job) or not board.running(job):
                continue
            since_s = board.now_s if job.stale_since_s is None else job.stale_since_s
            if board.now_s - since_s >= grace_s:
                for pod in board.active(job):
                    board.evict(pod.id)
