"""Placement on as few nodes as possible by migrating jobs, like ElasticFlow's buddies.

Source: ElasticFlow (ASPLOS'23, section 4.3): if jobs and nodes have powers of two GPUs, migration always defragments
enough for the next job.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from simsched.model import Allocation, Capacity, gpus_of
from simsched.policy import View
from simsched.toolkit.elastic import tell_counts
from simsched.toolkit.placers import MOST_FREE


def place_consolidated(
    counts: Mapping[str, int], view: View, firm: Collection[str], may_move: Callable[[str], bool]
) -> dict[str, Allocation]:
    """Place the jobs of `counts`, those in `firm` first, each on as few nodes as possible.

    A job of unchanged size stays if it is consolidated or may not move. A firm job without room displaces other firm
    jobs that may move; if that fails, it is scattered. The rest stay if firm jobs leave them room, else they go to the
    freest nodes. A job without room gets nothing.
    """
    if view.reasons is not None:
        tell_counts(counts, view.reasons)
    board = _Board(view, may_move)
    wanted = {job_id: counts[job_id] for job_id in counts if job_id in firm and counts[job_id]}
    for job_id, gpus in wanted.items():
        held = view.jobs[job_id].allocation
        if gpus_of(held) == gpus and (board.is_consolidated(held) or not may_move(job_id)):
            board.take(job_id, held)
    moving = [job_id for job_id in wanted if job_id not in board.placed]
    while moving:
        moving.sort(key=lambda job_id: -wanted[job_id])
        job_id = moving.pop(0)
        moving += board.place(job_id, wanted[job_id])
    late = [job_id for job_id in counts if job_id not in wanted and counts[job_id]]
    stays = [job_id for job_id in late if gpus_of(view.jobs[job_id].allocation) == counts[job_id]]
    for job_id in stays:
        board.take_if_free(job_id, view.jobs[job_id].allocation)
    for job_id in sorted((one for one in late if one not in board.placed), key=lambda one: -counts[one]):
        board.scatter(job_id, counts[job_id])
    return board.placed


class _Board:
    """Which job has which GPUs during placement."""

    def __init__(self, view: View, may_move: Callable[[str], bool]) -> None:
        self._view = view
        self._room = Capacity.idle(view)
        self._sizes = list(self._room.free)
        self._per_node = max(self._sizes)
        self._may_move = may_move
        self.placed: dict[str, Allocation] = {}

    def is_consolidated(self, held: Allocation) -> bool:
        """Return whether GPUs are on as few nodes as possible."""
        return len(held) == -(-gpus_of(held) // self._per_node)

    def take(self, job_id: str, allocation: Allocation) -> None:
        """Give a job these GPUs."""
        self.placed[job_id] = allocation
        self._room.take(allocation)

    def take_if_free(self, job_id: str, allocation: Allocation) -> None:
        """Give a job these GPUs if they are free."""
        if self._room.holds(allocation):
            self.take(job_id, allocation)

    def scatter(self, job_id: str, gpus: int) -> None:
        """Place a job on the nodes with the most room."""
        picked = self._room.choose(MOST_FREE, gpus)
        if picked is not None:
            self.take(job_id, picked)

    def place(self, job_id: str, gpus: int) -> list[str]:
        """Place a job on as few nodes as possible; return the jobs that this displaces."""
        full, rest = divmod(gpus, self._per_node)
        moved: list[str] = []
        before = dict(self.placed)
        nodes: list[tuple[int, int]] = []
        for part in [self._per_node] * full + [rest] * (rest > 0):
            node = self._best_fit(part, {node for node, _ in nodes})
            if node is None:
                node = self._cleared(part, {node for node, _ in nodes}, moved)
            if node is None:
                self._room, self.placed = Capacity.idle(self._view, before.values()), before
                self.scatter(job_id, gpus)
                return []
            nodes.append((node, part))
        self.take(job_id, tuple(nodes))
        return moved

    def _best_fit(self, gpus: int, taken: Collection[int]) -> int | None:
        """Return the fullest node with enough room, ties by the most GPUs idle now."""
        room = self._room.free
        fitting = [node for node in range(len(room)) if room[node] >= gpus and node not in taken]
        return min(fitting, key=lambda node: (room[node], -self._view.free[node], node), default=None)

    def _cleared(self, gpus: int, taken: Collection[int], moved: list[str]) -> int | None:
        """Clear the node that displaces the fewest GPUs and return it; None if there is none."""
        best: tuple[int, int, list[str]] | None = None
        for node, size in enumerate(self._sizes):
            if size < gpus or node in taken:
                continue
            missing, leave = gpus - self._room.free[node], []
            here = [(one, held) for one, held in self.placed.items() if held[0][0] == node and len(held) == 1]
            for one, held in sorted(here, key=lambda pair: gpus_of(pair[1])):
                if missing > 0 and gpus_of(held) < gpus and self._may_move(one):
                    leave.append(one)
                    missing -= gpus_of(held)
            cost = sum(gpus_of(self.placed[one]) for one in leave)
            if missing <= 0 and (best is None or cost < best[0]):
                best = cost, node, leave
        if best is None:
            return None
        for one in best[2]:
            self._room.give_back(self.placed.pop(one))
        moved += best[2]
        return best[1]
