"""Slurm as clusters run it: jobs by multifactor priority, and backfill on the time limits of users.

Idea: the waiting jobs are ordered by priority; those at the head start, and later ones start too if, by all time
limits, they delay no job that has a reservation (SchedMD, "Scheduling Configuration Guide", backfill, "Multifactor
Priority Plugin", "Preemption" and "Resource Limits"; EASY: Mu'alem and Feitelson, TPDS 2001). If jobs have shapes,
nodes have cores or partitions, or there are reservations, it plans on nodes; otherwise it counts GPUs by type.
Deviations from Slurm: usage for fair share is updated at the first decision after `update_s`; a requeued job resumes
where it was unless asked otherwise; a backfill reservation holds what a job needs of nodes rather than whole nodes, and
does not foresee that suspended jobs resume.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from simsched.model import Allocation, Capacity, JobRequest
from simsched.model.cluster import Tenant
from simsched.policy import (
    CANCEL,
    Action,
    Becomes,
    Decision,
    JobView,
    Place,
    Policy,
    Reasons,
    Signal,
    Stop,
    Traits,
    View,
    Wants,
    Why,
)
from simsched.policy.physics import TIME_LIMITS
from simsched.policy.signals import PLANNED_OUTAGES
from simsched.toolkit import PLACERS, PlacerName
from simsched_policies.production.slurm.backfill import NEVER, Cycle, Ints, greedy
from simsched_policies.production.slurm.limits import (
    ANY_PARTITION,
    Book,
    Changes,
    Claim,
    Conditions,
    LongestRun,
    Preemption,
    Running,
    amounts_of,
)
from simsched_policies.production.slurm.machines import Machines
from simsched_policies.production.slurm.nodes import EASY, EMPTIEST, EVERYBODY, FIRST, FULLEST, NOBODY, STRICT, Manner
from simsched_policies.production.slurm.options import Backfill, Limits, PreemptionRules, Priority, Reservation
from simsched_policies.production.slurm.usage import Usage
from simsched_policies.production.slurm.waiting import (
    Held,
    Order,
    TypePool,
    Waiting,
    WaitingJob,
    first_of_each,
    first_units,
)

#: The tier of jobs that may preempt others: above all partitions.
_PREEMPTS = 1 << 40
_HOW = {"none": STRICT, "easy": EASY, "conservative": EVERYBODY, "greedy": NOBODY}
#: Which nodes a placement takes first; by default the fullest, since jobs of a log run equally fast anywhere.
_FIRST = {"most-free": EMPTIEST, "any": FIRST}
#: Indices, in a pool's queue, of starting jobs, with their nodes if these are planned.
_Chosen = list[tuple[int, Allocation | None]]


@dataclass
class SlurmBackfill(Policy):
    """Starts jobs by priority and backfills the others around reservations.

    `backfill` configures the backfill, `priority` the order, `preemption` the fate of preempted jobs, and `limits` the
    partitions and qualities of service with their limits. Jobs of a partition without a GPU type wait for the type
    least in demand. `tenants` are the accounts: their weights are fair-share shares, and none holds more than its
    `max_gpus`.
    """

    name: ClassVar[str] = "slurm-backfill"
    traits: ClassVar[Traits] = Traits(reads_tenants=True, forgets=True)

    backfill: Backfill = field(default_factory=Backfill)
    priority: Priority = field(default_factory=Priority)
    preemption: PreemptionRules = field(default_factory=PreemptionRules)
    limits: Limits = field(default_factory=Limits)
    placement: PlacerName = "fragments"
    tenants: Mapping[str, Tenant] = field(default_factory=dict)
    _pools: list[TypePool] = field(default_factory=list, init=False, repr=False)
    #: The nodes if jobs are planned on them; there is then one pool.
    _machines: Machines | None = field(default=None, init=False, repr=False)
    _free: Capacity = field(default_factory=lambda: Capacity((), (), ()), init=False, repr=False)
    _shown_up: Sequence[bool] = field(default=(), init=False, repr=False)
    _total: int = field(default=0, init=False, repr=False)
    _held: dict[str, Held] = field(default_factory=dict, init=False, repr=False)
    _numbers: dict[str, int] = field(default_factory=dict, init=False, repr=False)
    _book: Book = field(init=False, repr=False)
    _conditions: Conditions = field(init=False, repr=False)
    _usage: Usage = field(init=False, repr=False)
    _order: Order = field(init=False, repr=False)
    #: Job arrays by index; negative for jobs without an array.
    _units: dict[str, int] = field(default_factory=dict, init=False, repr=False)
    _alone: int = field(default=0, init=False, repr=False)
    _reserved: tuple[Reservation, ...] = field(default=(), init=False, repr=False)
    _stops: Preemption = field(init=False, repr=False)
    #: When the next backfill pass may find more than this one: until then, unchanged jobs give the same result.
    _ripens_s: float = field(default=math.inf, init=False, repr=False)
    _cycle: Cycle = field(init=False, repr=False)
    #: How many jobs backfill tests in this decision, None if it does not run.
    _depth: int | None = field(default=None, init=False, repr=False)
    _longest: LongestRun = field(default_factory=LongestRun, init=False, repr=False)
    #: Whether it asks to be called between arrivals and completions even if it only counts GPUs.
    _wakes: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        """Start the accounting."""
        accounts = {name: Tenant(weight=one.shares, parent=one.parent) for name, one in self.limits.accounts.items()}
        self._cycle, self._depth = Cycle(self.backfill), self.backfill.max_jobs
        self._reserved = self.limits.reservations
        self._usage = Usage(accounts | dict(self.tenants), self.priority.half_life_s)
        self._order = Order(self.priority, self.limits, self._usage)
        self._book = Book(self.limits, self.tenants)
        self._conditions = Conditions(self.limits.licences)
        rules = self.preemption
        preempts, rank = {name: qos.preempts for name, qos in self.limits.qos.items()}, self._order.of_qualities
        if rules.by == "partition_prio":
            tiers = {name: one.tier for name, one in self.limits.partitions.items()}
            preempts = {name: tuple(one for one in tiers if tiers[one] < tier) for name, tier in tiers.items()}
            rank = {name: float(tier) for name, tier in tiers.items()}
        self._stops = Preemption(rules.mode, preempts, rank, rules.grace_s, rules.youngest_first)
        self._wakes = bool(self.backfill.interval_s or self._book.times or self._stops.on)

    @property
    def forgets(self) -> bool:
        """Return whether there is no usage history and no reservation with fixed times."""
        return not (self.priority.fair_share or self.limits.reservations or self.limits.drains)

    @property
    def signals(self) -> frozenset[Signal]:
        """Return the announced outages, if nodes are drained for them."""
        return frozenset((PLANNED_OUTAGES,)) if self.limits.drains else frozenset()

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Start the jobs that may start now."""
        changes, now_s = Changes({}, {}, {}), view.now_s
        self._look(view, now_s, changes)
        if self.priority.fair_share:
            self._usage.update(now_s, self.priority.update_s)
        for job_id in self._longest.over(now_s) if self._book.times else ():
            self._let_go(job_id, self._held.pop(job_id), now_s)
            changes.cancel[job_id] = None
        if self._stops.on:
            self._preempt(view, changes)
        kept = self._stops.keep_back(self._free) if self._stops.on else ()
        self._ripens_s = math.inf
        if self.backfill.interval_s:
            self._at_intervals(view, changes)
        else:
            self._pass(view, changes.start, self.backfill.kind)
        if view.reasons is not None:
            self._tell(view, view.reasons)
        if kept:
            self._free.give_back(kept)
        wake = self._wake(now_s) if self._wakes or self._machines is not None else None
        if wake is None and not (changes.stop or changes.cancel):
            return Decision.change(changes.start)
        jobs: dict[str, Allocation | Action] = {**changes.start}
        if changes.stop:
            saved = not (self.preemption.requeue_loses and self.preemption.mode == "requeue")
            jobs |= {name: Place(at, saved=saved) for name, at in changes.start.items() if name in changes.stop}
            jobs = {name: Stop(saved=saved) for name in changes.stop if name not in jobs} | jobs
        return Decision(jobs | dict.fromkeys(changes.cancel, CANCEL), "stays", wake)

    def _at_intervals(self, view: View, changes: Changes) -> None:
        """Test the head of the queue if a job arrived or left, and later jobs if backfill runs."""
        changed = bool(view.arrived or view.finished or view.lost)
        waiting_jobs = sum(len(pool.waiting) for pool in self._pools)
        self._depth = self._cycle.depth(view.now_s, waiting_jobs, changed=changed)
        if self._depth is None or changed:
            self._pass(view, changes.start, "none")
        if self._depth is not None:
            self._pass(view, changes.start, self.backfill.kind)
        if self._depth is None or self.priority.drifts or self.backfill.from_pass or changes.start or changes.stop:
            self._ripens_s = view.now_s

    def _wake(self, now_s: float) -> float | None:
        """Return the next decision time: of a pass that may find something, or the end of a grace period."""
        times = [claim.at_s for claim in self._stops.claims.values()]
        times += [] if self._longest.next_s is None else [self._longest.next_s]
        if any(len(pool.waiting) for pool in self._pools):
            change_s = None if self._machines is None else self._machines.next_change_s(now_s)
            times += [] if change_s is None else [change_s]
            times += [] if self._cycle.next_s is None else [self._cycle.next_s]
            every_s, off_s = self.backfill.interval_s, self.backfill.offset_s
            if every_s and self._ripens_s < math.inf:
                passes = max((now_s - off_s) // every_s + 1, math.ceil((self._ripens_s - off_s) / every_s))
                times.append(passes * every_s + off_s)
        return min(times, default=None)

    def _preempt(self, view: View, changes: Changes) -> None:
        """Start jobs that may preempt, resume suspended ones, and stop those whose grace period is over."""
        now_s, stops = view.now_s, self._stops
        for name in [name for name, claim in stops.claims.items() if claim.at_s <= now_s]:
            for victim in stops.claims.pop(name).victims:
                self._stop(victim, view, changes)
        for kind, pool in enumerate(self._pools):
            tiers = pool.waiting.columns.tiers
            order = [place for place in self._in_order(pool, now_s).tolist() if tiers[place] >= _PREEMPTS]
            gone = [p for p in order[: self.backfill.max_jobs] if self._takes(kind, pool, p, view, changes)]
            if gone:
                pool.waiting.remove(gone)
        for job_id, allocation in list(stops.suspended.items()):
            shape = view.jobs[job_id].request.shape
            if self._free.holds(allocation, shape) and all(view.up[node] for node, _ in allocation):
                del stops.suspended[job_id]
                self._resume(view.jobs[job_id], allocation, view, changes)

    def _takes(self, kind: int, pool: TypePool, place: int, view: View, changes: Changes) -> bool:
        """Start a job on free GPUs or on those of victims, or give these notice; return whether it started."""
        waiting, stops = pool.waiting, self._stops
        job_id = waiting.jobs[place].id
        request = view.jobs[job_id].request
        if not self._allows(request):
            return False

        def fitting() -> Allocation | None:
            return self._room_for(kind, place, view.now_s)

        allocation = fitting()
        if allocation is None and job_id not in stops.claims:
            held = ((name, one) for name, one in self._held.items() if one.pool == kind and name not in changes.start)
            running = [
                Running(name, self._rank_of(one.request), one.start_s, one.allocation, one.request.shape)
                for name, one in held
            ]
            victims = stops.victims(self._rank_of(request), running, self._free, lambda: fitting() is not None)
            if victims and stops.waits_s:
                stops.claims[job_id] = Claim(view.now_s + stops.waits_s, tuple(one.id for one in victims))
                return False
            for victim in victims:
                self._stop(victim.id, view, changes)
            allocation = fitting()
        if allocation is None:
            return False
        self._begin(request, place, kind, allocation, view.now_s)
        changes.start[job_id] = allocation
        return True

    def _rank_of(self, request: JobRequest) -> str:
        """Return what a job preempts by: its quality of service or its partition."""
        return request.queue if self.preemption.by == "partition_prio" else request.qos

    def _stop(self, job_id: str, view: View, changes: Changes) -> None:
        """Take a victim's GPUs, according to the mode of preemption."""
        held = self._held.pop(job_id, None)
        if held is None:
            return
        self._let_go(job_id, held, view.now_s)
        if self.preemption.mode == "cancel":
            changes.cancel[job_id] = None
            return
        changes.stop[job_id] = None
        self._stops.note_run(job_id, view.now_s - held.start_s, anew=self.preemption.requeue_loses)
        if self.preemption.mode == "suspend":
            self._stops.suspended[job_id] = held.allocation
        else:
            self._line_up(view.jobs[job_id])
            self._order.as_added = False

    def _resume(self, job: JobView, allocation: Allocation, view: View, changes: Changes) -> None:
        kind = 0 if self._machines is not None else self._free.type_of(allocation)
        waiting = self._pools[kind].waiting
        self._line_up(job)
        self._begin(job.request, len(waiting) - 1, kind, allocation, view.now_s)
        waiting.remove([len(waiting) - 1])
        changes.stop.pop(job.id, None)
        changes.start[job.id] = allocation

    def _begin(self, request: JobRequest, place: int, kind: int, allocation: Allocation, now_s: float) -> None:
        """Record that a waiting job now holds GPUs."""
        job_id, gpus, limit, user, number = self._pools[kind].waiting.jobs[place][:5]
        self._stops.claims.pop(job_id, None)
        self._free.take(allocation, request.shape)
        end = math.floor(now_s) + limit
        held = self._held[job_id] = Held(kind, allocation, gpus, end, number, user, now_s, request)
        if self._book.times:
            self._longest.begin(job_id, now_s, self._book.longest_s(request))
        self._count(held, now_s, 1)

    def _pass(self, view: View, start: dict[str, Allocation], how: str) -> None:
        """Test the waiting jobs of all pools."""
        for kind, pool in enumerate(self._pools):
            waiting = pool.waiting
            if not waiting.jobs:
                continue
            if self._machines is not None or self.backfill.interval_s or len(waiting.jobs) > 1:
                if self._machines is not None or self._free.total_of(kind) >= waiting.least_gpus:
                    self._start(kind, pool, view, start, how)
            elif self._allows(view.jobs[waiting.jobs[0].id].request) and self._starts(kind, 0, None, view, start):
                waiting.remove((0,))

    def _start(self, kind: int, pool: TypePool, view: View, start: dict[str, Allocation], how: str) -> None:
        """Start the jobs that may start; if a start takes others beyond their limits, plan the rest without them."""
        waiting, gone, stuck = pool.waiting, list[int](), set[int]()
        order = self._looked_at(pool, view, how)
        while len(order):
            for place, planned in self._chosen(kind, pool, order, math.floor(view.now_s), how):
                if not self._starts(kind, place, planned, view, start):
                    if self._machines is None:
                        continue
                    # GPUs are free, but not on nodes that it may use together: plan again, and leave it out at last.
                    order = order[~np.isin(order, [*gone, place] if place in stuck else gone)]
                    stuck.add(place)
                    break
                gone.append(place)
                if not (self._book.any or self._conditions.any):  # a start takes no job beyond its limits
                    continue
                at = int(np.flatnonzero(order == place)[0])
                behind = self._within(pool, order[at + 1 :])
                changed = len(behind) < len(order) - at - 1
                order = np.concatenate([order[:at], behind])  # those before it keep their reservations in this pass
                if changed:
                    break
            else:
                break
        if gone:
            waiting.remove(gone)

    def _starts(
        self, kind: int, place: int, planned: Allocation | None, view: View, start: dict[str, Allocation]
    ) -> bool:
        """Start a job on its planned nodes, or where its placer finds room; return whether it started."""
        request = view.jobs[self._pools[kind].waiting.jobs[place].id].request
        allocation = planned or self._room_for(kind, place, view.now_s)
        if allocation is not None:
            self._begin(request, place, kind, allocation, view.now_s)
            start[request.id] = allocation
        return allocation is not None

    def _room_for(self, kind: int, place: int, now_s: float) -> Allocation | None:
        """Return where a waiting job has room now, whatever is planned; None without room."""
        waiting = self._pools[kind].waiting
        if self._machines is None:
            return self._free.choose_of(kind, PLACERS[self.placement], waiting.jobs[place].gpus)
        now, one, columns = math.floor(now_s), slice(place, place + 1), waiting.columns
        state, manner = self._machines.begin(self._free, alone=True), self._manner("none")._replace(step=1)
        _, found = state.plan(now, columns.wants[one], columns.limits[one], now, manner)
        return found[0][1] if found else None

    def _looked_at(self, pool: TypePool, view: View, how: str) -> Ints:
        """Return the indices of the jobs that a pass tests, in order of priority, without those beyond limits.

        Jobs beyond their limits count towards the depth.
        """
        options, order = self.backfill, self._order.places(pool.waiting, view.now_s)
        if how == "conservative":
            if options.max_jobs_per_user:
                order = order[first_of_each(pool.waiting.columns.keys[order], options.max_jobs_per_user)]
            order = self._tested(pool, order, self._depth or 0)
        elif options.interval_s and how == "none":
            order = self._tested(pool, order, options.queue_depth)
        return self._within(pool, order)

    def _tell(self, view: View, reasons: Reasons) -> None:
        """Return the order of waiting jobs, and for those with enough free GPUs what keeps them waiting."""
        for kind, pool in enumerate(self._pools):
            waiting, head = pool.waiting, ""
            places = self._order.places(waiting, view.now_s)
            scores = self._order.scores(waiting, view.now_s)
            reasons.order({waiting.jobs[place].id: scores[place] for place in places.tolist()})
            within = set(self._in_order(pool, view.now_s).tolist())
            free = self._free.total_of(kind) if self._machines is None else self._free.total
            for place in places.tolist():
                job = waiting.jobs[place]
                if place not in within or not self._allows(view.jobs[job.id].request):
                    reasons.wait(job.id, Why.OVER_QUOTA, "a limit of its account, user, QOS, partition or licence")
                elif head and job.gpus <= free:
                    reasons.wait(job.id, Why.RESERVED, f"{free} GPUs are free, and {head} waits before it")
                head = head or job.id

    def _allows(self, request: JobRequest) -> bool:
        """Return whether limits, licences and its array let a job start."""
        if self._book.any and not self._book.fits(self._book.class_of(request), amounts_of(request)):
            return False
        return request.terms is None or self._conditions.allow(request)

    def _in_order(self, pool: TypePool, now_s: float) -> Ints:
        """Return the indices of waiting jobs in order of priority, without those beyond their limits."""
        return self._within(pool, self._order.places(pool.waiting, now_s))

    def _within(self, pool: TypePool, places: Ints) -> Ints:
        """Return the indices of those jobs that limits, licences and their arrays let start."""
        waiting = pool.waiting
        if self._book.any:
            columns, amounts = waiting.columns, np.zeros((len(waiting), 6), dtype=np.int64)
            amounts[:, 0], amounts[:, 4] = columns.gpus, 1
            if self._machines is not None:
                amounts[:, 1:4] = self._machines.amounts[columns.wants]
            within: np.ndarray[tuple[int, ...], np.dtype[np.bool_]] = amounts <= self._book.room()[columns.numbers]
            places = places[np.all(within, axis=1)[places]]
        if self._conditions.any:
            allow = self._conditions.allows
            places = np.array([place for place in places.tolist() if allow(waiting.jobs[place].id)], dtype=np.int64)
        return places

    @property
    def counts_on(self) -> Wants:
        """Return the signal of time limits if there is backfill."""
        if self.backfill.kind == "none":
            return {}
        limit_s = self.backfill.default_limit_s
        return {TIME_LIMITS: Becomes(f"takes every job to run for backfill.default_limit_s ({limit_s:g} s)")}

    def _tested(self, pool: TypePool, order: Ints, most: int) -> Ints:
        """Return the first jobs of an order, as many as a pass tests, an array counting as one."""
        if not self._units:
            return order[:most]
        return order[first_units(pool.waiting.columns.units[order], most)]

    def _chosen(self, kind: int, pool: TypePool, order: Ints, now: int, how: str) -> _Chosen:
        """Return the indices of the jobs in an order that start now."""
        options, machines, columns = self.backfill, self._machines, pool.waiting.columns
        if machines is not None:
            return self._on_nodes(pool.waiting, machines, order, now, how)
        free, gpus = self._free.total_of(kind), columns.gpus[order]
        if len(order) == 1:  # no other job to wait for
            return [(int(order[0]), None)] if gpus[0] <= free else []
        limits = columns.limits[order]
        starts: Ints | np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
        if how == "none":
            starts = np.cumsum(gpus) <= free
        elif how == "easy":
            starts = pool.releases.easy(free, now, gpus, limits)
        elif how == "greedy":
            starts = greedy(free, gpus)
        else:
            most, window = len(order), options.window_s
            planned = pool.releases.conservative(free, now, gpus, limits, max_jobs=most, window=window)
            starts = planned == now
            if (planned == NEVER).any():  # one beyond the window may move into it
                self._ripens_s = now
        return [(place, None) for place in order[starts].tolist()]

    def _on_nodes(self, waiting: Waiting, machines: Machines, order: Ints, now: int, how: str) -> _Chosen:
        """Return the indices of the jobs in an order that start now, with their nodes."""
        options, wants = self.backfill, waiting.columns.wants
        able = np.ones(len(machines.amounts), dtype=np.bool_)
        if not self._reserved:
            rooms = {want: machines.place_now(want, self._free) for want in sorted(waiting.kinds)}
            rooms = {want: place for want, place in rooms.items() if place is not None}
            if (len(order) == 1 and self._first == FULLEST) or not rooms:
                return [(place, rooms[want]) for place in order for want in rooms if wants[place] == want]
            # Jobs behind the last one that fits cannot start now, whatever is planned.
            able[:] = False
            able[list(rooms)] = True
            order = order[: np.flatnonzero(np.append(True, able[wants[order]]))[-1]]
        limits, horizon = waiting.columns.limits[order], now + options.window_s
        state, by_count = machines.begin(self._free), options.counts == "gpus" and how != "none"
        state = machines.counted(state, able) if by_count else state
        planned, begun = state.plan(now, wants[order], limits, horizon, self._manner(how))
        beyond = planned[planned < NEVER]
        if len(beyond):
            self._ripens_s = min(self._ripens_s, -int(beyond.max()) - options.window_s)
        return [(int(order[job]), None if by_count else at) for job, at in begun]

    @property
    def _first(self) -> int:
        return _FIRST.get(self.placement, FULLEST)

    def _manner(self, how: str) -> Manner:
        one = self.backfill
        together = one.holders == "cluster" and how == "easy"
        return Manner(_HOW[how], one.resolution_s, one.from_pass, one.whole_nodes, self._first, together)

    def _look(self, view: View, now_s: float, changes: Changes) -> None:
        """Record arrivals, completions and losses, and nodes that went down or came up."""
        finished, arrived = view.finished, view.arrived
        lost = sorted({job.id for job in view.lost}) if view.lost else []
        for job_id in [*finished, *lost] if lost else finished:
            held = self._held.pop(job_id, None)
            if held is not None:
                self._let_go(job_id, held, now_s)
            elif job_id not in view.jobs:  # a user withdrew it
                for waiting in (pool.waiting for pool in self._pools):
                    for place in [place for place, job in enumerate(waiting.jobs) if job.id == job_id]:
                        waiting.remove([place])
        up = view.up
        if lost or ((up is not self._shown_up or type(up) is list) and up != self._free.up):
            if not self._pools:
                self._open(view)
            self._free = Capacity.of(view)
        self._shown_up = up
        if self._machines is None:
            for job in arrived:
                if job.request.shape is not None:
                    self._plan_nodes(view)
                    break
        again = list(lost)
        for job_id in finished if self._numbers or self._conditions.binds else ():
            again += self._leave(job_id)
        for job_id in again:
            if job_id in view.jobs:
                self._line_up(view.jobs[job_id])
        for job in arrived:
            if job.id not in lost:
                self._arrive(job, view, changes)
        if again:
            self._order.as_added = False

    def _leave(self, job_id: str) -> list[str]:
        """Remove a finished job, and return those that waited for it."""
        number = self._numbers.pop(job_id, None)
        if number is not None:
            self._book.submit(number, -1)
        return self._conditions.ended(job_id)

    def _arrive(self, job: JobView, view: View, changes: Changes) -> None:
        """Queue a submitted job, or refuse it if it may never run."""
        request = job.request
        if self._book.any or self.limits.partitions:
            number = self._book.class_of(request)
            if self._book.refuses(request, amounts_of(request)):
                changes.cancel[job.id] = None
                return
            self._numbers[job.id] = number
            self._book.submit(number)
        if request.terms is None or not self._conditions.must_wait(request, view.jobs):
            self._line_up(job)

    def _open(self, view: View) -> None:
        by_type: dict[str, int] = {}
        for node in view.nodes:
            by_type[node.gpu_type] = by_type.get(node.gpu_type, 0) + node.gpus
        self._pools = [TypePool(gpus) for gpus in by_type.values()]
        self._total = sum(by_type.values())
        if self.limits.drains:
            ahead = (
                Reservation(math.floor(one.down_s), math.ceil(one.up_s), (one.node,)) for one in view[PLANNED_OUTAGES]
            )
            self._reserved += tuple(ahead)
        if view.beside is not None or self._reserved or any(node.partitions for node in view.nodes):
            self._plan_nodes(view)

    def _plan_nodes(self, view: View) -> None:
        """Switch to planning on nodes: merge the jobs of all pools into one."""
        waiting = [job_id for pool in self._pools for job_id in (one.id for one in pool.waiting.jobs)]
        self._machines = Machines(view.nodes, self._reserved)
        self._pools = [TypePool(self._total)]
        for job_id, held in self._held.items():
            self._held[job_id] = held._replace(pool=0)
            self._machines.hold(self._held[job_id])
        for job_id in waiting:
            self._line_up(view.jobs[job_id])
        self._order.as_added = self._order.as_added and not waiting

    def _line_up(self, job: JobView) -> None:
        """Add a job to the waiting ones."""
        request = job.request
        partition = self.limits.partitions.get(request.queue, ANY_PARTITION)
        want = 0 if self._machines is None else self._machines.want_of(job, partition, self._free)
        pool = self._pools[0] if len(self._pools) == 1 else self._pools[self._pool_of(job)]
        default_h = partition.default_time_h
        asked_s = request.time_limit_s or (self.backfill.default_limit_s if default_h is None else default_h * 3600)
        longest_s = self._book.longest_s(request) if self._book.times else None
        asked_s = asked_s if longest_s is None else min(asked_s, longest_s)
        step = 1 if self._machines is not None else self.backfill.resolution_s
        limit = max(1, math.ceil((asked_s - self._stops.ran_s.get(job.id, 0.0)) / step)) * step
        user = self._usage.number(request.tenant, request.user)
        tier = partition.tier + (_PREEMPTS if self._stops.on and self._stops.may(self._rank_of(request)) else 0)
        number, unit = self._book.class_of(request) if self._book.any else 0, self._unit(request)
        waited_s = request.terms.waited_s if request.terms is not None else 0
        fixed, submit_s = self._order.fixed(request, self._total), request.submit_time_s - waited_s
        one = WaitingJob(job.id, request.num_gpus, limit, user, number, submit_s, fixed, tier, unit, want)
        pool.waiting.add(one)
        self._conditions.note(request)
        pool.demand += request.num_gpus
        self._order.added(one)

    def _unit(self, request: JobRequest) -> int:
        """Return the index of a job's array, or of the job itself, once there are arrays."""
        if not request.group:
            self._alone -= 1
            return self._alone
        return self._units.setdefault(f"{request.user} {request.group}", len(self._units))

    def _pool_of(self, job: JobView) -> int:
        bound = self.limits.partitions.get(job.request.queue, ANY_PARTITION).gpu_type
        if bound in self._free.types:
            return self._free.types.index(bound)
        large = [kind for kind in self._free.fitting(job.facts) if self._pools[kind].capacity >= job.num_gpus]
        return min(large, key=lambda kind: self._pools[kind].demand / self._pools[kind].capacity, default=0)

    def _count(self, held: Held, now_s: float, sign: int) -> None:
        """Add a job that now holds GPUs, or remove it with a `sign` of -1."""
        if self._machines is not None:
            self._machines.hold(held, sign)
        elif sign > 0:
            self._pools[held.pool].releases.add(held.end, held.gpus)
        else:
            self._pools[held.pool].releases.remove(held.end, held.gpus)
        if self._book.any:
            self._book.hold(held.number, amounts_of(held.request), sign)
        if held.request.terms is not None:
            self._conditions.count(held.request, sign)
        if self.priority.fair_share:
            (self._usage.begin if sign > 0 else self._usage.end)(held.user, held.gpus, now_s)

    def _let_go(self, job_id: str, held: Held, now_s: float) -> None:
        if self._book.times:
            self._longest.end(job_id)
        self._pools[held.pool].demand -= held.gpus
        self._count(held, now_s, -1)
        self._free.give_back(held.allocation, held.request.shape)
