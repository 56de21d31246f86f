"""Limits of users, accounts, qualities of service and partitions, their usage, and preemption by quality of service.

The first limit given for a user or an account applies, in this order: the quality of service of the
partition, that of the job, the user, the account, the accounts above it. Group limits hold for all accounts above at
once, unless a quality of service sets one. Source: Slurm, "Resource Limits", hierarchy of limits.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simsched.model import Allocation, Capacity, JobRequest, NodeShape
from simsched.model.cluster import Tenant
from simsched_policies.production.slurm.options import AMOUNTS, Account, Caps, Limits, Mode, Partition, Qos

Ints = npt.NDArray[np.int64]
#: More than any cluster has of anything.
NO_LIMIT = 1 << 60
_JOBS, _SUBMITTED = AMOUNTS.index("jobs"), AMOUNTS.index("submitted")
_NO_QOS = Qos()
_NO_ACCOUNT = Account()
#: The default partition.
ANY_PARTITION = Partition()


class Book:
    """What is held and submitted within each limit; jobs with the same limits are of one class."""

    def __init__(self, limits: Limits, tenants: Mapping[str, Tenant]) -> None:
        """Start with nothing held; a tenant's `max_gpus` is the group limit of its account."""
        self._limits = limits
        self._accounts = dict(limits.accounts)
        for name, tenant in tenants.items():
            known = self._accounts.get(name, Account(parent=tenant.parent))
            group = known.group if known.group.gpus is not None else known.group.with_gpus(tenant.max_gpus)
            self._accounts[name] = replace(known, parent=known.parent or tenant.parent, group=group)
        #: Whether there are limits of amounts, and of run times.
        self.any = bool(limits.qos or limits.users or self._accounts)
        timed = [limits.max_time_h, *(one.max_time_h for one in limits.partitions.values())]
        self.times = any(one is not None for one in (*timed, *(qos.max_time_h for qos in limits.qos.values())))
        self._classes: dict[tuple[str, str, str, str], int] = {}
        self._counters: dict[Hashable, int] = {}
        self._used = np.zeros((8, len(AMOUNTS)), dtype=np.int64)
        #: The counters of all classes and their limits, concatenated, and the offset of each class.
        self._counter_of: list[int] = []
        self._caps: list[Ints] = []
        self._begins: list[int] = []
        self._flat: tuple[Ints, Ints, Ints] | None = None

    def class_of(self, request: JobRequest) -> int:
        """Return the class of a job."""
        key = (request.tenant, request.user, request.qos, request.queue)
        known = self._classes.get(key)
        if known is None:
            known = self._classes[key] = len(self._classes)
            self._flat = None
            self._begins.append(len(self._caps))
            for counter, cap in self._scopes(*key):
                self._counter_of.append(self._counters.setdefault(counter, len(self._counters)))
                self._caps.append(cap)
            while len(self._used) < len(self._counters):
                self._used = np.concatenate([self._used, np.zeros_like(self._used)])
        return known

    def _scopes(self, account: str, user: str, qos: str, queue: str) -> Iterator[tuple[Hashable, Ints]]:
        """Yield the counters of a class with their limits, each once."""
        qualities = self._qualities(qos, queue)
        chain = list(self._chain(account))
        own = self._limits.users.get(f"{account}/{user}", self._limits.users.get(user, Caps()))
        found: dict[Hashable, Ints] = {(): np.full(len(AMOUNTS), NO_LIMIT)}
        mine = [(("qos", name, user), one.per_user) for name, one in qualities]
        mine += [(("user", account, user), caps) for caps in (own, *(one.per_user for _, one in chain))]
        theirs = [(("qos", name, "account", account), one.per_account) for name, one in qualities]
        groups = [(("qos", name), one.group) for name, one in qualities]
        for amount in range(len(AMOUNTS)):
            for levels in (mine, theirs, groups):
                first = next(((key, caps[amount]) for key, caps in levels if caps[amount] is not None), None)
                if first is not None:
                    _allow(found, first[0], amount, first[1])
            if all(caps[amount] is None for _, caps in groups):
                for name, one in chain:
                    _allow(found, ("account", name), amount, one.group[amount])
        yield from found.items()

    def _qualities(self, qos: str, queue: str) -> list[tuple[str, Qos]]:
        """List the qualities of service of a job: that of its partition, then its own."""
        names = (self._limits.partitions.get(queue, ANY_PARTITION).qos, qos)
        return [(name, self._limits.qos.get(name, _NO_QOS)) for name in dict.fromkeys(names) if name]

    def _chain(self, account: str) -> Iterator[tuple[str, Account]]:
        """Yield an account and those above it."""
        seen: set[str] = set()
        while account and account not in seen:
            seen.add(account)
            one = self._accounts.get(account, _NO_ACCOUNT)
            yield account, one
            account = one.parent

    def refuses(self, request: JobRequest, amounts: Ints) -> bool:
        """Return whether a job submitted now may never run: too large for one job, or one submission too many."""
        partition = self._limits.partitions.get(request.queue, ANY_PARTITION)
        levels = [one.per_job for _, one in self._qualities(request.qos, request.queue)]
        levels += [one.per_job for _, one in self._chain(request.tenant)]
        for amount, wanted in enumerate(amounts.tolist()):
            cap = next((caps[amount] for caps in levels if caps[amount] is not None), None)
            if cap is not None and wanted > cap:
                return True
        if partition.max_nodes is not None and amounts[AMOUNTS.index("nodes")] > partition.max_nodes:
            return True
        return bool(self.any and self.room()[self.class_of(request), _SUBMITTED] < 1)

    def longest_s(self, request: JobRequest) -> float | None:
        """Return the longest time for which a job may run, None without a limit."""
        hours = [self._limits.max_time_h, self._limits.partitions.get(request.queue, ANY_PARTITION).max_time_h]
        hours += [one.max_time_h for _, one in self._qualities(request.qos, request.queue)]
        least = min((one for one in hours if one is not None), default=None)
        return None if least is None else least * 3600

    def room(self) -> Ints:
        """Return what each class may still take, by row."""
        if self._flat is None:
            begins = np.array(self._begins, dtype=np.int64)
            self._flat = np.array(self._counter_of, dtype=np.int64), np.array(self._caps, dtype=np.int64), begins
        counters, caps, begins = self._flat
        left: Ints = np.minimum.reduceat(caps - self._used[counters], begins, axis=0)
        return left

    def fits(self, number: int, amounts: Ints) -> bool:
        """Return whether a job of a class is within its limits."""
        return bool((amounts <= self.room()[number]).all())

    def hold(self, number: int, amounts: Ints, sign: int = 1) -> None:
        """Count what a job of a class takes when it starts, or releases with a `sign` of -1."""
        end = self._begins[number + 1] if number + 1 < len(self._begins) else len(self._caps)
        for place in range(self._begins[number], end):
            self._used[self._counter_of[place]] += sign * amounts

    def submit(self, number: int, sign: int = 1) -> None:
        """Count a job of a class as submitted, or with a `sign` of -1 as gone."""
        amounts = np.zeros(len(AMOUNTS), dtype=np.int64)
        amounts[_SUBMITTED] = 1
        self.hold(number, amounts, sign)


def _allow(found: dict[Hashable, Ints], key: Hashable, amount: int, cap: int | None) -> None:
    if cap is not None:
        caps = found.setdefault(key, np.full(len(AMOUNTS), NO_LIMIT))
        caps[amount] = min(int(caps[amount]), cap)


def amounts_of(request: JobRequest) -> Ints:
    """Return what a running job takes of its limits, in the order of `AMOUNTS`."""
    shape, gpus = request.shape, request.num_gpus
    if shape is None:
        return np.array([gpus, 0, 0, 0, 1, 0], dtype=np.int64)
    times = max(shape.nodes, 1)
    return np.array(
        [gpus, times * shape.each.cpu_milli, times * shape.each.memory_mib, shape.nodes, 1, 0], dtype=np.int64
    )


class LongestRun:
    """The times at which running jobs reach their time limits."""

    def __init__(self) -> None:
        self._ends: list[tuple[float, str]] = []
        self._end_of: dict[str, float] = {}

    def begin(self, job_id: str, now_s: float, most_s: float | None) -> None:
        """Add a starting job that may run for `most_s` (None: no limit)."""
        if most_s is not None:
            self._end_of[job_id] = now_s + most_s
            heapq.heappush(self._ends, (now_s + most_s, job_id))

    def end(self, job_id: str) -> None:
        """Remove a job that no longer runs."""
        self._end_of.pop(job_id, None)

    def over(self, now_s: float) -> list[str]:
        """Remove and return the jobs whose time is over."""
        found = []
        while self._ends and (self._ends[0][0] <= now_s or self._end_of.get(self._ends[0][1]) != self._ends[0][0]):
            end_s, job_id = heapq.heappop(self._ends)
            if self._end_of.get(job_id) == end_s:
                del self._end_of[job_id]
                found.append(job_id)
        return found

    @property
    def next_s(self) -> float | None:
        """Return when the next job's time is over, None if there is none; call after `over`."""
        return self._ends[0][0] if self._ends else None


class Conditions:
    """Dependencies between jobs, running tasks of each array, and licences in use."""

    def __init__(self, licences: Mapping[str, int]) -> None:
        """Start with nothing running; unnamed licences are not counted."""
        self._left = Counter(licences)
        self._counted = frozenset(licences)
        self._tasks: Counter[tuple[str, str]] = Counter()
        self._missing: dict[str, set[str]] = {}
        self._followers: dict[str, list[str]] = {}
        #: The jobs that have an array or licences to wait for.
        self._bound: dict[str, JobRequest] = {}
        #: Whether the end of a job may matter here.
        self.binds = False

    @property
    def any(self) -> bool:
        """Return whether any job has such constraints."""
        return bool(self._bound)

    def note(self, request: JobRequest) -> None:
        """Add the constraints of a waiting job."""
        if request.terms is not None and (request.terms.group_limit or request.terms.licences):
            self._bound[request.id], self.binds = request, True

    def must_wait(self, request: JobRequest, active: Collection[str]) -> bool:
        """Return whether a new job waits for others to end, and record it."""
        first = {one for one in request.terms.after if one in active} if request.terms is not None else set()
        if first:
            self._missing[request.id], self.binds = first, True
            for one in first:
                self._followers.setdefault(one, []).append(request.id)
        return bool(first)

    def ended(self, job_id: str) -> list[str]:
        """Return the jobs whose last dependency this end resolves."""
        found = []
        self._bound.pop(job_id, None)
        for one in self._followers.pop(job_id, ()):
            self._missing[one].discard(job_id)
            if not self._missing[one]:
                del self._missing[one]
                found.append(one)
        return found

    def allows(self, job_id: str) -> bool:
        """Return whether a waiting job may start."""
        request = self._bound.get(job_id)
        return request is None or self.allow(request)

    def allow(self, request: JobRequest) -> bool:
        """Return whether a job may start: its array has a place, and its licences are free."""
        terms = request.terms
        if terms is None:
            return True
        full = 0 < terms.group_limit <= self._tasks[request.user, request.group]
        return not full and all(self._left[name] >= count for name, count in terms.licences if name in self._counted)

    def count(self, request: JobRequest, sign: int) -> None:
        """Add a starting job, or remove one with a `sign` of -1."""
        terms = request.terms
        if terms is not None:
            self._tasks[request.user, request.group] += sign
            for name, count in terms.licences:
                self._left[name] -= sign * count


class Running(NamedTuple):
    """A job that holds GPUs, as preemption sees it."""

    id: str
    qos: str
    start_s: float
    allocation: Allocation
    shape: NodeShape | None = None


class Changes(NamedTuple):
    """The jobs that a decision starts, stops and cancels."""

    start: dict[str, Allocation]
    stop: dict[str, None]
    cancel: dict[str, None]


class Claim(NamedTuple):
    """Victims that must leave by `at_s`, and the job for which they leave."""

    at_s: float
    victims: tuple[str, ...]


@dataclass
class Preemption:
    """The rules (`preempts`: quality of service -> those that it preempts) and the jobs under notice or suspended.

    `rank` orders the victims' qualities of service, the lowest first. Source: Slurm, preemption by QOS.
    """

    mode: Mode = "off"
    preempts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    rank: Mapping[str, float] = field(default_factory=dict)
    grace_s: float = 0.0
    youngest_first: bool = False
    claims: dict[str, Claim] = field(default_factory=dict)
    suspended: dict[str, Allocation] = field(default_factory=dict)
    #: Seconds for which stopped jobs have held GPUs, to compute their remaining time limits.
    ran_s: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse empty rules."""
        if self.on and not any(self.preempts.values()):
            raise ValueError(f"preemption '{self.mode}' needs 'limits.qos', as in {{urgent: {{preempts: [normal]}}}}")

    @cached_property
    def on(self) -> bool:
        """Return whether jobs may stop others."""
        return self.mode != "off"

    def may(self, qos: str) -> bool:
        """Return whether jobs of a quality of service preempt any other."""
        return bool(self.preempts.get(qos))

    @property
    def waits_s(self) -> float:
        """Return how long victims are left to run; suspending needs no grace."""
        return 0.0 if self.mode == "suspend" else self.grace_s

    def victims(self, qos: str, running: Iterable[Running], free: Capacity, fits: Callable[[], bool]) -> list[Running]:
        """Choose the jobs to stop to make `fits` true; an empty list if that is impossible.

        Victims of the lowest quality of service go first, of these on the fewest nodes unless `youngest_first`, of
        these the last started; unneeded ones are then spared, latest choice first. `free` is unchanged.
        """
        below, told = self.preempts.get(qos, ()), {name for claim in self.claims.values() for name in claim.victims}
        open_to = [one for one in running if one.qos in below and one.id not in told]
        open_to.sort(key=self._first)
        taken: list[Running] = []
        for one in open_to:
            free.give_back(one.allocation, one.shape)
            taken.append(one)
            if fits():
                break
        chosen = _needed(taken, free, fits) if taken and fits() else []
        for one in chosen or taken:
            free.take(one.allocation, one.shape)
        return chosen

    def _first(self, one: Running) -> tuple[float, int, float, str]:
        nodes = 0 if self.youngest_first else len(one.allocation)
        return self.rank.get(one.qos, 0.0), nodes, -one.start_s, one.id

    def note_run(self, job_id: str, seconds: float, *, anew: bool) -> None:
        """Count the seconds for which a victim ran against its time limit, unless it restarts from scratch."""
        if not (anew and self.mode == "requeue"):
            self.ran_s[job_id] = self.ran_s.get(job_id, 0.0) + seconds

    def keep_back(self, free: Capacity) -> Allocation:
        """Take the idle GPUs of suspended jobs out of `free` and return what was taken: no other job starts on them."""
        kept: dict[int, int] = {}
        for allocation in self.suspended.values():
            for node, gpus in allocation:
                kept[node] = kept.get(node, 0) + gpus
        taken = tuple((node, min(gpus, free.free[node])) for node, gpus in sorted(kept.items()) if free.free[node] > 0)
        free.take(taken)
        return taken


def _needed(taken: Sequence[Running], free: Capacity, fits: Callable[[], bool]) -> list[Running]:
    """Spare unneeded victims, from the last but one backwards; list the others."""
    kept = [taken[-1]]
    for one in reversed(taken[:-1]):
        free.take(one.allocation, one.shape)
        if not fits():
            free.give_back(one.allocation, one.shape)
            kept.append(one)
    return kept[::-1]
