"""Pieces that policies for rigid jobs share: admit in an order, keep what runs, place the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from simsched.model import Allocation
from simsched.policy import JobView, View
from simsched.toolkit.type_pools import gpu_types

#: Picks GPUs for a job from the free GPUs of each node, lowers them, and returns what it picked (None: no room).
Picker = Callable[[list[int], int], Allocation | None]


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


def run_in_order(
    order: Iterable[JobView], view: View, picker: Picker = most_free_first, *, blocking: bool = False
) -> dict[str, Allocation]:
    """Run the first jobs of an order that fit into the cluster, and stop all others.

    Jobs are admitted by the number of GPUs that they ask for, on one GPU type: the one they hold, else the first on
    which they can run and fit. One that does not fit is skipped or, if `blocking`, ends the walk (head-of-line
    blocking). Admitted jobs that run keep their GPUs where they may; the others are placed in the order given, and one
    that `picker` cannot place gets nothing.
    """
    left = available_by_type(view)
    kept: list[JobView] = []
    placed: list[tuple[JobView, str]] = []
    for job in order:
        own = view.nodes[job.allocation[0][0]].gpu_type if job.running else None
        types = [own, *(kind for kind in left if kind != own)] if own else list(left)
        found = next((kind for kind in types if left[kind] >= job.num_gpus and job.facts.runs_on(kind)), None)
        if found is not None:
            left[found] -= job.num_gpus
            if found == own:
                kept.append(job)
            else:
                placed.append((job, found))
        elif blocking:
            break
        if not any(left.values()):
            break
    free = {kind: _free_of(view, kind) for kind in left}
    allocations: dict[str, Allocation] = {}
    for job in kept:
        allocations[job.id] = job.allocation
        for node, gpus in job.allocation:
            free[view.nodes[node].gpu_type][node] -= gpus
    for job, kind in placed:
        picked = picker(free[kind], job.num_gpus)
        if picked is not None:
            allocations[job.id] = picked
    return allocations


def available_by_type(view: View) -> dict[str, int]:
    """Count the GPUs of the nodes that are up, by type in the order of the nodes."""
    counts = dict.fromkeys(gpu_types(view.nodes), 0)
    for node, up in zip(view.nodes, view.up, strict=True):
        if up:
            counts[node.gpu_type] += node.gpus
    return counts


def available_gpus(view: View) -> int:
    """Count the GPUs of nodes that are up."""
    return sum(available_by_type(view).values())


def _free_of(view: View, gpu_type: str) -> list[int]:
    """Return the GPUs of each node that is up and of a type, 0 for all others."""
    return [node.gpus if up and node.gpu_type == gpu_type else 0 for node, up in zip(view.nodes, view.up, strict=True)]
