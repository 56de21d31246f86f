"""Building blocks of policies for rigid jobs: admit in order, keep what runs, place the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

from simsched.model import Allocation, Capacity
from simsched.policy import JobView, Urgency, View, Why
from simsched.toolkit.placers import MOST_FREE
from simsched.toolkit.type_pools import gpu_types


def run_in_order(
    order: Iterable[JobView], view: View, *, blocking: bool = False, score: Callable[[JobView], Urgency] = lambda _: ()
) -> dict[str, Allocation]:
    """Run the first jobs of an order that fit into the cluster, and stop all others.

    A job gets the GPUs it asks for, on one GPU type: the one it holds, else the first one that it can use and that has
    room. A job that does not fit is skipped or, if `blocking`, ends the walk (head-of-line blocking). Running jobs keep
    their GPUs if they may; the others go, in order, to the nodes with the most free GPUs. `score` gives the numbers
    that order jobs; it is called only if reasons are kept.
    """
    if view.reasons is not None:
        order = list(order)
        view.reasons.order({job.id: score(job) for job in order})
    left = available_by_type(view)
    kept: list[JobView] = []
    placed: list[tuple[JobView, str]] = []
    for place, job in enumerate(order):
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
            if view.reasons is not None:
                for other in islice(order, place + 1, None):
                    view.reasons.wait(other.id, Why.ANOTHER_FIRST, f"{job.id} waits before it")
            break
        if not any(left.values()):
            break
    allocations = {job.id: job.allocation for job in kept}
    free = Capacity.idle(view, allocations.values())
    for job, kind in placed:
        picked = free.place(MOST_FREE, job.num_gpus, (free.types.index(kind),))
        if picked is not None:
            allocations[job.id] = picked
    return allocations


def available_by_type(view: View) -> dict[str, int]:
    """Count the GPUs of nodes that are up by type, in the order of the nodes."""
    counts = dict.fromkeys(gpu_types(view.nodes), 0)
    for node, up in zip(view.nodes, view.up, strict=True):
        if up:
            counts[node.gpu_type] += node.gpus
    return counts


def available_gpus(view: View) -> int:
    """Count the GPUs of nodes that are up."""
    return sum(available_by_type(view).values())
