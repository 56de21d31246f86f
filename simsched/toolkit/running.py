"""The jobs that hold GPUs of one type, in order of priority, for the walk of `simsched.toolkit.priority`."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import defaultdict

from simsched.model import Allocation
from simsched.model.placement import NOTHING
from simsched.model.pool import Placer
from simsched.policy import JobView

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
