"""Pieces that policies for rigid jobs share: admit in an order, keep what runs, place the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from simsched.model.placement import Allocation
from simsched.policy.view import JobView, View

#: Picks GPUs for a job from the free GPUs of each node, lowers them, and returns what it picked (None: no room).
Placer = Callable[[list[int], int], Allocation | None]


def admit(order: Iterable[JobView], gpus: int, *, blocking: bool = False) -> list[JobView]:
    """Walk jobs in order of priority and admit those that fit into `gpus` GPUs.

    A job that does not fit is skipped, or, if `blocking`, ends the walk (head-of-line blocking).
    """
    admitted: list[JobView] = []
    for job in order:
        if job.num_gpus <= gpus:
            admitted.append(job)
            gpus -= job.num_gpus
        elif blocking:
            break
        if not gpus:
            break
    return admitted


def most_free_first(free: list[int], gpus: int) -> Allocation | None:
    """Take GPUs from the node with the most free ones (lowest index on a tie), and so on until there are enough."""
    if sum(free) < gpus:
        return None
    picked: list[tuple[int, int]] = []
    while gpus:
        most = max(free)
        node = free.index(most)
        took = min(most, gpus)
        picked.append((node, took))
        free[node] -= took
        gpus -= took
    return tuple(picked)


def keep_and_place(admitted: Sequence[JobView], view: View, placer: Placer = most_free_first) -> dict[str, Allocation]:
    """Let admitted jobs that run keep their GPUs, and place the others in the order given.

    Every job that is not admitted loses what it holds; a job that the placer cannot place gets nothing.
    """
    free = [node.gpus if up else 0 for node, up in zip(view.nodes, view.up, strict=True)]
    allocations: dict[str, Allocation] = {}
    for job in admitted:
        if job.running:
            allocations[job.id] = job.allocation
            for node, gpus in job.allocation:
                free[node] -= gpus
    for job in admitted:
        if not job.running:
            picked = placer(free, job.num_gpus)
            if picked is not None:
                allocations[job.id] = picked
    return allocations


def available_gpus(view: View) -> int:
    """Count the GPUs of nodes that are up."""
    return sum(node.gpus for node, up in zip(view.nodes, view.up, strict=True) if up)
