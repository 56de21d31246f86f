"""A round of the scheduler: allocate, consolidation, reclaim, preempt, and the eviction of stale gangs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from operator import le

from simsched_policies.kubernetes.kai.approval import Unit, is_elastic, keeps_minimum, may_lose, may_reclaim, protected
from simsched_policies.kubernetes.kai.board import Board
from simsched_policies.kubernetes.kai.model import NOTHING, Amounts, Job, Pod, Snapshot, plus, within
from simsched_policies.kubernetes.kai.order import Order, Ranked, step
from simsched_policies.kubernetes.kai.placing import Placing
from simsched_policies.kubernetes.kai.search import Asked, Search, heads


def run_round(snapshot: Snapshot) -> Board:
    """Run the actions on a snapshot; return a board with the present and future place of every pod."""
    board = Board(snapshot)
    actions = _Actions(board, Placing(board, snapshot.topologies))
    for action in snapshot.rules.actions:
        actions.run(action)
    return board


class _Actions:
    """The actions, on one board."""

    def __init__(self, board: Board, placing: Placing) -> None:
        self._board, self._placing = board, placing
        #: What jobs try next, and the heads of queues; cached until an attempt changes the board.
        self._steps: dict[str, list[Pod]] = {}
        self._heads: list[Ranked] | None = None

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
        attempt = attempts[action]
        failed: dict[Hashable, list[tuple[float, ...]]] = {}
        while (job := order.pop()) is not None:
            kind, hardness = self._alike(job)
            before = failed.setdefault((kind, "" if action == "consolidation" else job.queue), [])
            alike = board.rules.skip_alike or action == "allocate"  # where it only affects running time
            if alike and any(all(map(le, easier, hardness)) for easier in before):
                continue
            if not attempt(job):
                before.append(hardness)
                continue
            self._steps.clear()
            self._heads = None
            if self._next(job):
                order.push(job)

    def _next(self, job: Job) -> list[Pod]:
        if job.id not in self._steps:
            self._steps[job.id] = step(self._board, job, self._board.pending(job))
        return self._steps[job.id]

    def _alike(self, job: Job) -> tuple[Hashable, tuple[float, ...]]:
        """Return a key shared by jobs of which none fares better than another, and how hard each is to place."""
        pods = self._next(job)
        ask = pods[0].ask
        kind = (job.preemptible, pods[0].nodes, job.constraint)
        if job.groups or ask.shared or ask.mig or len({(pod.ask, pod.nodes) for pod in pods}) > 1:
            return (kind, job.id), ()
        return kind, (len(pods), ask.gpus, ask.cpu_milli, ask.memory_mb, -job.priority)

    def _allocate(self, job: Job) -> bool:
        return self._placing.place(job, self._next(job), start=True)

    def _running(self) -> list[Job]:
        return [job for job in self._board.jobs.values() if job.preemptible and self._board.running(job)]

    def _consolidate(self, job: Job) -> bool:
        board, most = self._board, self._board.rules.max_consolidation_preemptees
        free = board.room.future(board.room.everywhere)[2]
        if not job.preemptible or most == 0 or free + 1e-6 < board.asks(self._next(job))[2]:
            return False
        victims = [one for one in self._running() if one is not job]
        return self._search(job, Asked(victims, lambda _: False, lambda _, lost: not lost, most))

    def _reclaim(self, job: Job) -> bool:
        board, queue = self._board, self._board.ledger.entries[job.queue]
        asked = board.asks(self._next(job))
        if not within(plus(queue.allocated, asked), queue.fair_share):
            return False
        victims = self._victims((one for one in self._running() if one.queue != job.queue), job)
        held = {name: entry.allocated for name, entry in board.ledger.entries.items()}

        def test(request: Amounts, lost: Sequence[Unit]) -> bool:
            multiplier = board.rules.saturation_multiplier
            allowed = may_reclaim(board.ledger, job, request, lost, held, board.amounts, multiplier)
            return allowed and self._respects(lost, job)

        def may(victim: Job) -> bool:
            return may_lose(board.ledger, job, NOTHING, victim, held, held)

        return self._search(job, Asked(victims, may, test))

    def _preempt(self, job: Job) -> bool:
        same = (one for one in self._running() if one.queue == job.queue and one.priority < job.priority)
        victims = self._victims(same, None)
        return self._search(job, Asked(victims, lambda _: True, lambda _, lost: self._respects(lost, None)))

    def _victims(self, jobs: Iterable[Job], reclaimer: Job | None) -> list[Job]:
        return [job for job in jobs if is_elastic(job) or not protected(self._board, job, reclaimer)]

    def _respects(self, lost: Sequence[Unit], reclaimer: Job | None) -> bool:
        board = self._board
        return all(keeps_minimum(board, job) or not protected(board, job, reclaimer) for job, _ in lost)

    def _search(self, job: Job, asked: Asked) -> bool:
        if not asked.victims:
            return False
        if self._heads is None:
            self._heads = list(heads(self._board, self._next))
        return Search(self._board, self._placing, job, asked, self._heads).solve()

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
