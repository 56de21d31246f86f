"""Building blocks of policies for rigid jobs: admit in order, keep what runs, place the rest."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import islice

from simsched.model import Allocation, Capacity
from simsched.model.placement import NOTHING
from simsched.model.pool import Placer
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


#: Smaller is more urgent. Keys of one scheduler have the same length; ties go to the job added first.
Key = tuple[float, ...]


class Entry:
    """A job as the scheduler knows it; it can run on `types`, and jobs of one `kind` fit alike."""

    __slots__ = (
        "allocation", "attained_gpu_s", "gpus", "id", "key", "kind", "number", "on", "placer", "shape", "since_s",
        "types", "version",
    )  # fmt: skip

    def __init__(self, job: JobView, key: Key, placer: Placer, number: int, types: tuple[int, ...]) -> None:
        """Start without GPUs; `number` is the job's position in the order of addition."""
        self.id = job.id
        self.gpus = gpus = job.request.num_gpus
        self.key = key
        self.shape = job.request.shape
        self.placer = placer if self.shape is None else placer.within(self.shape)
        self.types = types
        self.kind = (gpus, self.placer.name, types)
        self.number = number
        self.version = 0
        self.allocation: Allocation = NOTHING
        #: Service attained before its last start, and the second of that start.
        self.attained_gpu_s: float = 0
        self.since_s: float = 0
        #: The type of the GPUs that it holds, or last held; meaningless before its first run.
        self.on = 0


#: Key, number, version and entry; stale once the entry has another version.
Item = tuple[Key, int, int, Entry]


class Running:
    """The jobs on GPUs of one type, most urgent first; `gpus` counts what they hold, `budget` what a walk has left."""

    __slots__ = ("budget", "gpus", "items")

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.gpus = 0
        self.budget = 0

    def leave(self, entry: Entry) -> None:
        """Remove a job."""
        del self.items[bisect_left(self.items, (entry.key, entry.number))]
        self.gpus -= entry.gpus

    def place_of(self, entry: Entry) -> int:
        """Return the position of a job, or the one it would have if it ran here."""
        return bisect_left(self.items, (entry.key, entry.number))


#: Waiting jobs: those that fit alike share a heap, and any fits only if the first one does.
Waiting = defaultdict[tuple[int, str, tuple[int, ...]], list[Item]]


def first(queue: list[Item]) -> bool:
    """Drop stale items from the front of a queue, and return whether any item is left."""
    while queue and queue[0][2] != queue[0][3].version:
        heapq.heappop(queue)
    return bool(queue)
