"""Who runs, by priority, decided at the cost of what changed.

A policy for rigid jobs gives every job a key; the scheduler admits jobs in the order of their keys, skips those that do
not fit, takes GPUs from jobs with larger keys where it may, and lets a placer choose the GPUs. The outcome is that of
walking all jobs in order (`simsched.policy.gang`), but few are looked at: of the waiting jobs of one size the first
tells whether any fits, and those that lose their GPUs are the last of those that run.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from itertools import count
from typing import NamedTuple

from simsched.model.cluster import Node
from simsched.model.placement import NOTHING, Allocation
from simsched.policy.placers import FreeGpus, Placer
from simsched.policy.view import JobView, View

#: Smaller is more urgent. Keys of one scheduler have the same length; ties go to the job added first.
Key = tuple[float, ...]


class _Entry:
    __slots__ = ("allocation", "gpus", "id", "key", "kind", "number", "placer", "version")

    def __init__(self, job: JobView, key: Key, placer: Placer, number: int) -> None:
        self.id = job.id
        self.gpus = job.num_gpus
        self.key = key
        self.placer = placer
        self.kind = (job.num_gpus, placer.name)
        self.number = number
        self.version = 0
        self.allocation: Allocation = NOTHING


#: Key, number, version and entry; stale where the entry has got another version since.
_Item = tuple[Key, int, int, _Entry]


class Changes(NamedTuple):
    """What a scheduler wants done: allocations of jobs that start or move, and jobs that lose what they hold."""

    start: dict[str, Allocation]
    stop: list[str]


class PriorityScheduler:
    """Active jobs, those that run and those that wait, in order of priority.

    Without `preempts` a job that runs keeps its GPUs. `blocking` ends the walk at the first waiting job that does not
    fit (head-of-line blocking).
    """

    def __init__(self, *, preempts: bool = True, blocking: bool = False) -> None:
        """Start empty; the first view tells the cluster."""
        self._preempts = preempts
        self._blocking = blocking
        self._fresh_key: Callable[[str], Key] | None = None
        self._entries: dict[str, _Entry] = {}
        self._waiting: dict[tuple[int, str], list[_Item]] = {}
        self._running: list[_Item] = []
        self._running_gpus = 0
        self._nodes: tuple[Node, ...] = ()
        self._up: list[bool] = []
        self._free = FreeGpus((), (), ())
        self._numbers, self._versions = count(), count()
        #: Placers may refuse, so jobs are placed as the walk goes and not after it.
        self._at_once = False
        # The state of one walk.
        self._changes = Changes({}, [])
        self._heads: list[_Item] = []
        self._budget = 0
        self._admitted: list[_Entry] = []
        self._stopped: list[_Entry] = []

    @property
    def waits(self) -> bool:
        """Tell whether any job waits."""
        return len(self._entries) > len(self._running)

    @property
    def running(self) -> Iterator[str]:
        """List the jobs that run, most urgent first."""
        return (item[3].id for item in self._running)

    @property
    def ids(self) -> Iterator[str]:
        """List all active jobs in the order in which they were added."""
        return iter(self._entries)

    def number(self, job_id: str) -> int:
        """Give the place of a job in the order in which all jobs were added."""
        return self._entries[job_id].number

    def runs(self, job_id: str) -> bool:
        """Tell whether a job holds GPUs."""
        return bool(self._entries[job_id].allocation)

    def update(self, view: View) -> None:
        """Forget finished jobs, and notice nodes that went down or came back."""
        if self._up != list(view.up):
            self._look_again(view)
            return
        for job_id in view.finished:
            entry = self._entries.pop(job_id, None)
            if entry is not None and entry.allocation:
                self._leave(entry)
                self._free.give_back(entry.allocation)

    def add(self, job: JobView, key: Key, placer: Placer) -> None:
        """Let a job wait for GPUs that `placer` will choose."""
        entry = self._entries[job.id] = _Entry(job, key, placer, next(self._numbers))
        self._at_once |= placer.waits
        self._wait(entry)

    def take_in(self, view: View, key: Callable[[JobView], Key], placer: Placer) -> None:
        """Forget finished jobs, and let those wait that arrived."""
        self.update(view)
        for job in view.arrived:
            self.add(job, key(job), placer)

    def rekey(self, job_id: str, key: Key) -> None:
        """Change the priority of a job."""
        entry = self._entries[job_id]
        if entry.key == key:
            return
        if entry.allocation:
            self._leave(entry)
            entry.key = key
            self._join(entry)
        else:
            entry.key = key
            self._wait(entry)

    def schedule(self, fresh_key: Callable[[str], Key] | None = None) -> Changes:
        """Decide who starts, moves and stops, and count on its being done.

        `fresh_key` gives the key of a running job as it is now, for keys that fall while a job runs: the scheduler asks
        only for jobs that are about to lose their GPUs.
        """
        self._fresh_key = fresh_key
        changes = self._changes = Changes({}, [])
        self._budget = self._free.total
        if self.waits and (self._budget or self._preempts):
            self._gather()
            self._walk()
            self._settle()
        return changes

    def _gather(self) -> None:
        """Find the first waiting job of each kind that might fit."""
        most = self._budget + (self._running_gpus if self._preempts else 0)
        self._heads = [
            queue[0] for (gpus, _), queue in self._waiting.items() if (gpus <= most or self._blocking) and _first(queue)
        ]
        heapq.heapify(self._heads)

    def _walk(self) -> None:
        heads = self._heads
        while heads:
            entry = heapq.heappop(heads)[3]
            if entry.allocation:  # it ran until a more urgent job wanted its GPUs
                self._reconsider(entry)
            elif self._admit(entry):
                queue = self._waiting[entry.kind]
                heapq.heappop(queue)
                if _first(queue):
                    heapq.heappush(heads, queue[0])
            elif self._blocking:
                heads.clear()

    def _settle(self) -> None:
        """Place what was admitted without being placed, once everything that stops has given back its GPUs."""
        for entry in self._stopped:
            if not self._at_once:
                self._free.give_back(entry.allocation)
            entry.allocation = NOTHING
            self._wait(entry)
            self._changes.stop.append(entry.id)
        for entry in self._admitted:
            allocation = self._free.choose(entry.placer, entry.gpus)
            if allocation is None:  # the free GPUs are of several types
                self._wait(entry)
            else:
                self._place(entry, allocation)
        self._stopped, self._admitted = [], []

    def _admit(self, entry: _Entry) -> bool:
        missing = entry.gpus - self._budget
        if missing > 0 and not (self._preempts and self._preempt_for(entry, missing)):
            return False
        if not self._at_once:
            self._budget -= entry.gpus
            self._admitted.append(entry)
            return True
        allocation = self._free.choose(entry.placer, entry.gpus)
        if allocation is None and self._preempts:
            allocation = self._clear_nodes(entry)
        if allocation is None:
            return False
        self._budget -= entry.gpus
        self._place(entry, allocation)
        return True

    def _reconsider(self, entry: _Entry) -> None:
        """Let a job run on that yielded more than was wanted of it, as far as there is room."""
        if entry.gpus <= self._budget:
            if not self._at_once or self._free.holds(entry.allocation):
                self._budget -= entry.gpus
                if self._at_once:
                    self._free.take(entry.allocation)
                self._join(entry)
                return
            moved = self._free.choose(entry.placer, entry.gpus)
            if moved is not None:
                self._budget -= entry.gpus
                self._place(entry, moved)
                return
        self._stopped.append(entry)

    def _preempt_for(self, entry: _Entry, missing: int) -> bool:
        """Make the least urgent running jobs yield `missing` GPUs, if all of them are less urgent than `entry`."""
        running = self._running
        yielding: list[_Item] = []
        while missing > 0 and running:
            self._refresh_last()
            last = running[-1]
            if last[:2] <= (entry.key, entry.number):
                break
            missing -= last[3].gpus
            yielding.append(running.pop())
        if missing > 0:
            running.extend(reversed(yielding))
            return False
        for item in yielding:
            self._preempt(item[3])
        return True

    def _clear_nodes(self, entry: _Entry) -> Allocation | None:
        """Make less urgent jobs yield on just the nodes that a placer chooses as if none of them ran."""
        if self._fresh_key is not None:
            for job_id in list(self.running):
                self.rekey(job_id, self._fresh_key(job_id))
        less_urgent = self._running[bisect_left(self._running, (entry.key, entry.number)) :]
        free = list(self._free.free)
        for item in less_urgent:
            for node, gpus in item[3].allocation:
                free[node] += gpus
        allocation = FreeGpus(self._nodes, self._up, free).choose(entry.placer, entry.gpus)
        if allocation is None:
            return None
        for item in reversed(less_urgent):
            short = [node for node, gpus in allocation if self._free.free[node] < gpus]
            if not short:
                break
            other = item[3]
            if any(node in short for node, _ in other.allocation):
                del self._running[self._index(other)]
                self._preempt(other)
        return allocation

    def _refresh_last(self) -> None:
        """Bring the key of the least urgent running job up to date; it may then not be the last any more."""
        if self._fresh_key is None:
            return
        while True:
            last = self._running[-1][3]
            key = self._fresh_key(last.id)
            if key == last.key:
                return
            self.rekey(last.id, key)

    def _preempt(self, entry: _Entry) -> None:
        """Line up a job taken from those running, with its GPUs still noted, to be reconsidered in its turn."""
        self._running_gpus -= entry.gpus
        self._budget += entry.gpus
        if self._at_once:
            self._free.give_back(entry.allocation)
        heapq.heappush(self._heads, (entry.key, entry.number, entry.version, entry))

    def _place(self, entry: _Entry, allocation: Allocation) -> None:
        self._free.take(allocation)
        entry.allocation = allocation
        self._join(entry)
        self._changes.start[entry.id] = allocation

    def _wait(self, entry: _Entry) -> None:
        entry.version = next(self._versions)
        queue = self._waiting.setdefault(entry.kind, [])
        heapq.heappush(queue, (entry.key, entry.number, entry.version, entry))

    def _join(self, entry: _Entry) -> None:
        entry.version = next(self._versions)
        insort(self._running, (entry.key, entry.number, entry.version, entry))
        self._running_gpus += entry.gpus

    def _leave(self, entry: _Entry) -> None:
        del self._running[self._index(entry)]
        self._running_gpus -= entry.gpus

    def _index(self, entry: _Entry) -> int:
        return bisect_left(self._running, (entry.key, entry.number))

    def _look_again(self, view: View) -> None:
        """Take over who holds what after the nodes changed, or at the first view."""
        self._nodes, self._up = tuple(view.nodes), list(view.up)
        self._free = FreeGpus(self._nodes, self._up, view.free)
        entries = [entry for job_id, entry in self._entries.items() if job_id in view.jobs]
        self._entries = {entry.id: entry for entry in entries}
        self._waiting, self._running, self._running_gpus = {}, [], 0
        for entry in entries:
            entry.allocation = view.jobs[entry.id].allocation
            if entry.allocation:
                self._join(entry)
            else:
                self._wait(entry)


def _first(queue: list[_Item]) -> bool:
    """Drop stale items from the front of a queue, and tell whether any is left."""
    while queue and queue[0][2] != queue[0][3].version:
        heapq.heappop(queue)
    return bool(queue)
