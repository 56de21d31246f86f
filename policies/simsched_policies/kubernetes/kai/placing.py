"""Placement of the pods of a job that are tried together, all or none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from simsched_policies.kubernetes.kai.board import Board, Seat
from simsched_policies.kubernetes.kai.model import Constraint, Job, Pod, SubGroup
from simsched_policies.kubernetes.kai.room import Bools
from simsched_policies.kubernetes.kai.topology import Domains


class Placing:
    """Places pods on the nodes of a board."""

    def __init__(self, board: Board, topologies: Mapping[str, Sequence[str]]) -> None:
        self._board, self._domains = board, Domains(board.room, topologies)

    def place(self, job: Job, pods: Sequence[Pod], *, start: bool) -> bool:
        """Place pods, with `start` at once where places are free; return whether all of them have one.

        If fewer than a minimum can start at once, all of them only reserve their places.
        """
        board = self._board
        if board.ledger.refuses(job.queue, board.asks(list(pods)), preemptible=job.preemptible):
            return False
        mark = board.mark()
        if not self._inside(job, "", job.constraint, pods, None, start=start):
            board.undo(mark)
            return False
        running = {pod.id for pod in board.running(job)}
        short = any(
            sum(pod.id in running for pod in job.pods if pod.group == group.name) < group.min_member
            for group in job.leaves()
        )
        if start and short:
            for pod in pods:
                board.set(pod.id, Seat(None, board.seat(pod.id).future))
        return True

    def _inside(
        self,
        job: Job,
        name: str,
        constraint: Constraint | None,
        pods: Sequence[Pod],
        nodes: Bools | None,
        *,
        start: bool,
    ) -> bool:
        """Place the pods of a sub-group, or of the job (the empty name), in the first domain that takes them."""
        children = [group for group in job.groups if group.parent == name]
        board = self._board
        below = _below(job, name)
        held = {
            seat.future.node for p in job.pods if p.group in below and (seat := board.seat(p.id)).future is not None
        }
        for domain, likes in self._domains.candidates(constraint, pods, board.asks(list(pods)), nodes, held):
            mark = board.mark()
            if children and (not name or name not in {pod.group for pod in pods}):
                placed = all(self._child(job, child, pods, domain, start=start) for child in children)
            else:
                placed = all(self._one(pod, domain, likes, start=start) for pod in pods)
            if placed:
                return True
            board.undo(mark)
        return False

    def _child(self, job: Job, group: SubGroup, pods: Sequence[Pod], nodes: Bools | None, *, start: bool) -> bool:
        below = _below(job, group.name)
        own = [pod for pod in pods if pod.group in below]
        return not own or self._inside(job, group.name, group.constraint, own, nodes, start=start)

    def _one(self, pod: Pod, nodes: Bools | None, likes: Mapping[int, int], *, start: bool) -> bool:
        room = self._board.room
        place = room.choose(pod, nodes, likes)
        if place is None:
            return False
        seat = self._board.seat(pod.id)
        at_once = start and seat.now is None and room.idle(pod, place)
        self._board.set(pod.id, Seat(place if at_once else seat.now, place))
        return True


def _below(job: Job, name: str) -> set[str]:
    """Return the names of a sub-group and of those inside it; all names for the empty one."""
    found = {name}
    while more := {group.name for group in job.groups if group.parent in found} - found:
        found |= more
    return found
