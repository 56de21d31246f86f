"""Decides which jobs run, by priority, at a cost that depends on what has changed.

A policy for rigid jobs gives every job a key; the scheduler admits jobs by key, skips those that do not fit, takes GPUs
from jobs with larger keys if it may, and lets a placer choose the GPUs. The outcome is that of walking all jobs in
order (`simsched.toolkit.gang`), but the walk visits only the first waiting job of each size and the last running jobs.

GPUs are counted by type, and a job gets GPUs of one type that it can run on: the type it holds, else the first with
enough free GPUs, else the one whose preempted jobs would be the least urgent (by the most urgent of them; ties by the
order of the types).
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter

from simsched.model import Allocation, Capacity
from simsched.model.placement import NOTHING
from simsched.model.pool import Placer
from simsched.policy import JobView, Reasons, View, Why
from simsched.toolkit.gang import Entry, Item, Key, Running, Waiting, first

__all__ = ["Changes", "Key", "PriorityScheduler"]


#: A scheduler's changes: allocations of jobs that start or move, and jobs that lose their GPUs.
Changes = tuple[dict[str, Allocation], list[str]]


class PriorityScheduler:
    """Active jobs, running and waiting, in order of priority.

    Without `preempts` a running job keeps its GPUs. `blocking` ends the walk at the first waiting job that does not fit
    (head-of-line blocking). With `by_service` a key is the service attained, in GPU-seconds: up to the present for a
    job that stops, and up to the last call of `attain` for one that runs.
    """

    def __init__(self, *, preempts: bool = True, blocking: bool = False, by_service: bool = False) -> None:
        """Start empty; the first view provides the cluster."""
        self._by_service = by_service
        self._now_s: float = 0
        self._preempts = preempts
        self._blocking = blocking
        self._fresh_key: Callable[[str], Key] | None = None
        self._entries: dict[str, Entry] = {}
        self._waiting = Waiting(list)
        self._running = [Running()]
        self._shown_up: Sequence[bool] = ()
        self._free = Capacity((), (), ())
        #: The job that was added last.
        self._newest: Entry | None = None
        self._added = self._version = self._waiting_jobs = 0
        #: Placers may refuse, so the walk places jobs as it goes, not afterwards.
        self._at_once = False
        #: Receives the order and why jobs wait, if reasons are kept.
        self._reasons: Reasons | None = None
        # The state of one walk.
        self._changes: Changes = ({}, [])
        self._heads: list[Item] = []
        self._admitted: dict[Entry, int] = {}
        self._stopped: list[Entry] = []

    @property
    def waits(self) -> bool:
        """Return whether any job waits."""
        return self._waiting_jobs > 0

    @property
    def running(self) -> Iterator[str]:
        """List the jobs that run, most urgent first."""
        return (item[3].id for item in heapq.merge(*(on.items for on in self._running)))

    @property
    def ids(self) -> Iterator[str]:
        """List all active jobs in the order in which they were added."""
        return iter(self._entries)

    def number(self, job_id: str) -> int:
        """Return the position of a job in the order of addition."""
        return self._entries[job_id].number

    def runs(self, job_id: str) -> bool:
        """Return whether a job holds GPUs."""
        return bool(self._entries[job_id].allocation)

    def update(self, view: View) -> None:
        """Forget finished jobs, and notice jobs that lost their GPUs and nodes that went down or came back."""
        up, self._reasons, self._now_s = view.up, view.reasons, view.now_s
        if view.lost or ((up is not self._shown_up or type(up) is list) and list(up) != self._free.up):
            self._look_again(view)
            return
        self._shown_up = up
        for job_id in view.finished:
            entry = self._entries.pop(job_id, None)
            if entry is not None and entry.allocation:
                self._running[entry.on].leave(entry)
                self._free.give_back(entry.allocation, entry.shape)
            elif entry is not None:
                self._waiting_jobs -= 1
                entry.version = 0  # its place in the queue is stale
        if view.beside is not None:
            self._free = Capacity.of(view)

    def add(self, job: JobView, key: Key, placer: Placer) -> None:
        """Let a job wait for GPUs that `placer` will choose."""
        types = self._free.fitting(job.facts)
        entry = self._newest = self._entries[job.id] = Entry(job, key, placer, self._added, types)
        self._added += 1
        if self._blocking:  # the first job of all decides, so they share a queue
            entry.kind = (0, "", ())
        self._at_once |= entry.placer.waits
        self._wait((entry,))

    def take_in(self, view: View, key: Callable[[JobView], Key], placer: Placer) -> None:
        """Forget finished jobs, and enqueue those that have arrived; jobs that lost their GPUs have lost work, too."""
        self.update(view)
        for job in view.lost:
            self.rekey(job.id, key(job))
        for job in view.arrived:
            self.add(job, key(job), placer)

    def rekey(self, job_id: str, key: Key) -> None:
        """Change the priority of a job."""
        entry = self._entries[job_id]
        if entry.key == key:
            return
        if entry.allocation:
            self._running[entry.on].leave(entry)
            entry.key = key
            self._join((entry,))
        else:
            entry.key = key
            self._waiting_jobs -= 1
            self._wait((entry,))

    def attain(self) -> None:
        """Change the keys of all running jobs to the service attained by now."""
        for on in self._running:
            for item in on.items:
                entry = item[3]
                entry.key = (entry.attained_gpu_s + entry.gpus * (self._now_s - entry.since_s),)
            on.items = sorted([(item[3].key, *item[1:]) for item in on.items])

    def schedule(self, fresh_key: Callable[[str], Key] | None = None) -> Changes:
        """Decide who starts, moves and stops, and assume that it happens.

        `fresh_key` gives a running job's current key, for keys that fall while a job runs; it is called only for jobs
        about to lose their GPUs.
        """
        self._fresh_key = fresh_key
        changes = self._changes = ({}, [])
        waiting = self._waiting_jobs
        if waiting and (self._free.total or self._preempts) and not (waiting == 1 and self._start_newest()):
            self._gather()
            self._walk()
            self._settle()
        if self._reasons is not None:
            self._tell(self._reasons)
        return changes

    def _tell(self, reasons: Reasons) -> None:
        """Report the order of the jobs, and why jobs wait for reasons other than a lack of GPUs."""
        fresh, head = self._fresh_key, ""
        keys = {e: fresh(e.id) if fresh is not None and e.allocation else e.key for e in self._entries.values()}
        order = sorted(keys, key=lambda entry: (keys[entry], entry.number))
        reasons.order({entry.id: keys[entry] for entry in order})
        for entry in (entry for entry in order if not entry.allocation):
            if self._blocking and head:
                reasons.wait(entry.id, Why.ANOTHER_FIRST, f"{head} waits before it")
            elif entry.placer.waits and any(self._free.total_of(kind) >= entry.gpus for kind in entry.types):
                reasons.wait(entry.id, Why.NOT_ON_ONE_NODE, f"GPUs are free, and none as '{entry.placer.name}' wants")
            head = head or entry.id

    def _start_newest(self) -> bool:
        """Start the only waiting job if it is the newest and a type has room for it; return whether it starts.

        A shortcut: the walk would do the same but look at all queues.
        """
        entry = self._newest
        if entry is None or entry.allocation or self._at_once or entry.id not in self._entries:
            return False
        free = self._free
        for kind in entry.types:
            allocation = free.choose_of(kind, entry.placer, entry.gpus)
            if allocation is not None:
                self._waiting[entry.kind].clear()  # nobody else waits: the rest of the queue is stale
                self._place(entry, kind, allocation)
                self._join((entry,))
                return True
        return False

    def _gather(self) -> None:
        """Count the GPUs to hand out on each type, and find the first waiting job of each kind that might fit."""
        most: list[int] = []
        pools = self._free.pools
        for kind, on in enumerate(self._running):
            on.budget = pools[kind].total
            most += [on.budget + on.gpus * self._preempts]
        largest, one_type = max(most), not most[1:]
        self._heads = [
            queue[0]
            for (gpus, _, types), queue in self._waiting.items()
            if queue
            and (self._blocking or (gpus <= largest and (one_type or any(gpus <= most[kind] for kind in types))))
            and first(queue)
        ]
        heapq.heapify(self._heads)

    def _walk(self) -> None:
        heads, running = self._heads, self._running
        only = None if self._at_once or running[1:] else running[0]
        while heads:
            if only is not None and not only.budget and not (self._preempts and only.items[-1:] > heads[:1]):
                break  # nobody can start any more
            entry = heads[0][3]
            if entry.allocation:  # it ran until a more urgent job wanted its GPUs
                heapq.heappop(heads)
                if entry.gpus <= running[entry.on].budget or entry.types[1:]:
                    self._reconsider(entry)
                else:
                    self._stopped += (entry,)
                continue
            queue = self._waiting[entry.kind] if self._admit(entry, entry.types) else []
            if queue:
                heapq.heappop(queue)
            if queue and (queue[0][2] == queue[0][3].version or first(queue)):
                heapq.heapreplace(heads, queue[0])
            else:
                heapq.heappop(heads)
        if heads:
            self._stopped += [item[3] for item in sorted(heads) if item[3].allocation]

    def _settle(self) -> None:
        """Place admitted jobs once all stopping jobs have released their GPUs."""
        if self._stopped:
            self._stop(self._stopped)
        for entry in self._admitted:
            if entry.allocation:  # it moves to another type
                self._give_back((entry,))
        pools = self._free.pools
        for entry, kind in self._admitted.items():
            allocation = entry.placer.choose(pools[kind], entry.gpus)
            assert allocation is not None, "placers that never wait place whatever fits"
            self._place(entry, kind, allocation)
        self._join(self._admitted)
        self._stopped, self._admitted = [], {}

    def _stop(self, stopped: Sequence[Entry]) -> None:
        """Let jobs that lose their GPUs wait."""
        if not self._at_once:
            self._give_back(stopped)
        for entry in stopped:
            entry.allocation = NOTHING
            entry.attained_gpu_s += entry.gpus * (self._now_s - entry.since_s)
            if self._by_service:
                entry.key = (entry.attained_gpu_s,)
        self._wait(stopped)
        self._changes[1].extend([entry.id for entry in stopped])

    def _give_back(self, entries: Sequence[Entry]) -> None:
        """Mark the GPUs of jobs as free."""
        self._free.give_back([held for entry in entries if entry.shape is None for held in entry.allocation])
        for entry in entries:
            if entry.shape is not None:
                self._free.give_back(entry.allocation, entry.shape)

    def _admit(self, entry: Entry, types: tuple[int, ...]) -> bool:
        """Admit a job to the first of `types` that has room, else to one on which enough jobs yield."""
        for kind in types:
            if self._running[kind].budget >= entry.gpus and self._admit_on(entry, kind):
                return True
        if self._preempts:
            for kind in self._by_urgency(entry, types) if types[1:] else types:
                if self._clear(entry, kind):
                    return True
        return False

    def _admit_on(self, entry: Entry, kind: int) -> bool:
        """Admit a job to a type with the budget, unless it must be placed at once and its placer refuses."""
        if self._at_once:
            return self._place_on(entry, kind, self._free.choose_of(kind, entry.placer, entry.gpus))
        self._running[kind].budget -= entry.gpus
        self._admitted[entry] = kind
        return True

    def _place_on(self, entry: Entry, kind: int, allocation: Allocation | None) -> bool:
        if allocation is None:
            return False
        self._running[kind].budget -= entry.gpus
        self._place(entry, kind, allocation)
        self._join((entry,))
        return True

    def _reconsider(self, entry: Entry) -> None:
        """Let jobs that yielded more than needed keep running while there is room."""
        own = self._running[entry.on]
        if entry.gpus <= own.budget:
            if not self._at_once or self._free.holds(entry.allocation, entry.shape):
                own.budget -= entry.gpus
                if self._at_once:
                    self._free.take(entry.allocation, entry.shape)
                self._join((entry,))
                return
            if self._admit_on(entry, entry.on):
                return
        if not self._admit(entry, tuple(kind for kind in entry.types if kind != entry.on)):
            self._stopped.append(entry)

    def _clear(self, entry: Entry, kind: int) -> bool:
        """Make less urgent jobs of a type yield to a job, if that makes room for it."""
        missing = entry.gpus - self._running[kind].budget
        if missing > 0:
            yielding = self._pop_less_urgent(entry, kind, missing)
            if not yielding:
                return False
            self._preempt(yielding)
            if not self._at_once:
                self._running[kind].budget -= entry.gpus
                self._admitted[entry] = kind
                return True
            if self._admit_on(entry, kind):
                return True
        return self._at_once and self._place_on(entry, kind, self._clear_nodes(entry, kind))

    def _by_urgency(self, entry: Entry, types: tuple[int, ...]) -> list[int]:
        """Order types by the jobs that would yield there, the least urgent first."""
        ranked: list[tuple[tuple[Key, int], int]] = []
        unranked: list[int] = []
        for kind in types:
            missing = entry.gpus - self._running[kind].budget
            yielding = self._pop_less_urgent(entry, kind, missing) if missing > 0 else []
            for item in yielding:
                insort(self._running[kind].items, item)  # fresh keys may rise where a job moved to slower GPUs
            if yielding:
                ranked.append((yielding[-1][:2], kind))
            elif missing <= 0:  # there is room, but not where the placer wants it
                unranked.append(kind)
        return [kind for _, kind in sorted(ranked, key=itemgetter(0), reverse=True)] + unranked

    def _pop_less_urgent(self, entry: Entry, kind: int, missing: int) -> list[Item]:
        """Take out the least urgent running jobs of a type that hold `missing` GPUs; none if they hold too few."""
        running = self._running[kind].items
        yielding: list[Item] = []
        while missing > 0 and running:
            if self._fresh_key is not None:
                self._refresh_last(running, self._fresh_key)
            last = running[-1]
            if last[:2] <= (entry.key, entry.number):
                break
            missing -= last[3].gpus
            yielding += running[-1:]
            del running[-1]
        if missing > 0:
            for item in yielding:
                insort(running, item)
            return []
        return yielding

    def _clear_nodes(self, entry: Entry, kind: int) -> Allocation | None:
        """Make less urgent jobs yield on just the nodes that a placer would choose if none of them ran."""
        on = self._running[kind]
        if self._fresh_key is not None:
            for item in list(on.items):
                self.rekey(item[3].id, self._fresh_key(item[3].id))
        less_urgent = on.items[on.place_of(entry) :]
        without = self._free.copy()
        for item in less_urgent:
            without.give_back(item[3].allocation, item[3].shape)
        allocation = without.choose_of(kind, entry.placer, entry.gpus)
        if allocation is None:
            return None
        for item in reversed(less_urgent):
            short = [one[0] for one in allocation if not self._free.holds((one,), entry.shape)]
            if not short:
                break
            other = item[3]
            if any(node in short for node, _ in other.allocation):
                del on.items[on.place_of(other)]
                self._preempt((item,))
        return allocation

    def _refresh_last(self, running: list[Item], fresh_key: Callable[[str], Key]) -> None:
        """Update the key of the least urgent running job, which may then no longer be the last."""
        while True:
            last = running[-1][3]
            key = fresh_key(last.id)
            if key == last.key:
                return
            self.rekey(last.id, key)

    def _preempt(self, items: Iterable[Item]) -> None:
        """Queue preempted jobs, with their GPUs still recorded, to be reconsidered in their turn."""
        for item in items:
            entry, on = item[3], self._running[item[3].on]
            on.gpus -= entry.gpus
            on.budget += entry.gpus
            if self._at_once:
                self._free.give_back(entry.allocation, entry.shape)
        self._heads += items
        heapq.heapify(self._heads)

    def _place(self, entry: Entry, kind: int, allocation: Allocation) -> None:
        self._free.take(allocation, entry.shape)
        if not entry.allocation:  # it does not just move
            self._waiting_jobs -= 1
            entry.since_s = self._now_s
        entry.allocation, entry.on = allocation, kind
        self._changes[0][entry.id] = allocation

    def _wait(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self._version += 1
            entry.version = self._version
            self._waiting_jobs += 1
            heapq.heappush(self._waiting[entry.kind], (entry.key, entry.number, entry.version, entry))

    def _join(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self._version += 1
            entry.version = self._version
            on = self._running[entry.on]
            on.gpus += entry.gpus
            insort(on.items, (entry.key, entry.number, entry.version, entry))

    def _look_again(self, view: View) -> None:
        """Read who holds what from the view, after the nodes change or at the first decision."""
        self._free = Capacity.of(view)
        entries = [entry for job_id, entry in self._entries.items() if job_id in view.jobs]
        self._entries = {entry.id: entry for entry in entries}
        self._waiting, self._running = Waiting(list), [Running() for _ in self._free.types]
        self._waiting_jobs = 0
        for entry in entries:
            job = view.jobs[entry.id]
            entry.allocation, entry.attained_gpu_s, entry.since_s = job.allocation, job.attained_gpu_s, view.now_s
            if entry.allocation:
                entry.on = self._free.type_of(entry.allocation)
                self._join((entry,))
            else:
                self._wait((entry,))
