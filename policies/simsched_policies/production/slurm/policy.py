"""Slurm as clusters run it: jobs by multifactor priority, and backfill on the time limits that users gave.

Idea: the waiting jobs are ordered by priority; those at the head start, and later ones start too if, by everyone's time
limits, they delay no job that has a reservation (SchedMD, "Scheduling Configuration Guide", backfill, "Multifactor
Priority Plugin" and "Preemption"; EASY: Mu'alem and Feitelson, TPDS 2001). Deviations from Slurm: GPUs alone are
counted, not processors or memory; there are no reservations of the administrator; usage for fair share is updated at
the first decision after `update_s`; a requeued job resumes where it was unless asked otherwise, and a reservation does
not foresee that suspended jobs come back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from simsched.model import Allocation, Capacity, JobRequest, Tenant
from simsched.policy import (
    CANCEL,
    TIME_LIMITS,
    Action,
    Becomes,
    Decision,
    JobView,
    Place,
    Policy,
    Stop,
    Traits,
    View,
    Wants,
)
from simsched.toolkit import PLACERS, PlacerName
from simsched_policies.production.slurm.backfill import Ints
from simsched_policies.production.slurm.longest_run import LongestRun
from simsched_policies.production.slurm.multifactor import relative_factor, size_factor
from simsched_policies.production.slurm.options import Backfill, Limits, Partition, PreemptionRules, Priority
from simsched_policies.production.slurm.preemption import Changes, Claim, Preemption, Running
from simsched_policies.production.slurm.usage import Usage
from simsched_policies.production.slurm.waiting import Held, Numbers, TypePool, WaitingJob, first_units

#: The tier of jobs that may preempt others: above all partitions.
_PREEMPTS = 1 << 40
#: More GPUs than any cluster has.
_NO_LIMIT = 1 << 40
#: What a partition is that nothing is said of.
_ANY = Partition()


@dataclass
class SlurmBackfill(Policy):
    """Starts jobs by priority and backfills the others around reservations.

    `backfill` says how, `priority` in which order, `preemption` what becomes of jobs that others stop, and `limits`
    which partitions and qualities of service there are, and what they allow. Jobs of a partition that has no GPU type
    wait for the type that is least in demand. `tenants` are the accounts: their weights are shares of fair share, and
    none holds more than its `max_gpus`.
    """

    name: ClassVar[str] = "slurm-backfill"
    traits: ClassVar[Traits] = Traits(reads_tenants=True)

    backfill: Backfill = field(default_factory=Backfill)
    priority: Priority = field(default_factory=Priority)
    preemption: PreemptionRules = field(default_factory=PreemptionRules)
    limits: Limits = field(default_factory=Limits)
    placement: PlacerName = "fragments"
    tenants: Mapping[str, Tenant] = field(default_factory=dict)
    _pools: list[TypePool] = field(default_factory=list, init=False, repr=False)
    _free: Capacity = field(default_factory=lambda: Capacity((), (), ()), init=False, repr=False)
    _total: int = field(default=0, init=False, repr=False)
    _held: dict[str, Held] = field(default_factory=dict, init=False, repr=False)
    _tenants: dict[str, int] = field(default_factory=dict, init=False, repr=False)
    _used: list[int] = field(default_factory=list, init=False, repr=False)
    _most: list[int] = field(default_factory=list, init=False, repr=False)
    _usage: Usage = field(init=False, repr=False)
    _in_order: bool = field(default=True, init=False, repr=False)
    #: Job arrays by number; jobs of none have negative ones.
    _units: dict[str, int] = field(default_factory=dict, init=False, repr=False)
    _alone: int = field(default=0, init=False, repr=False)
    _qos: dict[str, str] = field(default_factory=dict, init=False, repr=False)
    _stops: Preemption = field(init=False, repr=False)
    _changed: bool = field(default=True, init=False, repr=False)
    _longest: LongestRun = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Open the books."""
        qualities = self.limits.qos
        preempts = {name: qos.preempts for name, qos in qualities.items()}
        self._qos_priorities = {name: qos.priority for name, qos in qualities.items() if qos.priority}
        self._partition_priorities = {name: one.priority for name, one in self.limits.partitions.items()}
        self._stops = Preemption(self.preemption.mode, preempts, self._qos_priorities, self.preemption.grace_s)
        self._usage = Usage(self.tenants, self.priority.half_life_s)
        self._longest = LongestRun(self.limits.max_time_h)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Start what may start now."""
        self._look(view)
        now = math.floor(view.now_s)
        if self.priority.fair_share:
            self._usage.update(view.now_s, self.priority.update_s)
        changes = Changes({}, {}, {})
        for job_id in self._longest.over(view.now_s):
            self._let_go(job_id, self._held.pop(job_id), view.now_s)
            changes.cancel[job_id] = None
        if self._stops.on:
            self._preempt(view, changes)
        backfills = self._backfills(view.now_s)
        kept = self._stops.keep_back(self._free) if self._stops.on else ()
        for kind, pool in enumerate(self._pools):
            if len(pool.waiting) and self._free.total_of(kind) >= int(pool.waiting.gpus.min()):
                self._start(kind, pool, now, view.now_s, changes.start, backfills=backfills)
        self._free.give_back(kept)
        wake = self._wake(view.now_s)
        jobs: dict[str, Allocation | Action] = {**changes.start}
        if changes.stop:
            saved = not (self.preemption.requeue_loses and self.preemption.mode == "requeue")
            jobs |= {name: Place(at, saved=saved) for name, at in changes.start.items() if name in changes.stop}
            jobs = {name: Stop(saved=saved) for name in changes.stop if name not in jobs} | jobs
        return Decision(jobs | dict.fromkeys(changes.cancel, CANCEL), "stays", wake)

    def _backfills(self, now_s: float) -> bool:
        """Say whether this decision runs backfill, or looks at the head of the queue alone."""
        due = not self.backfill.interval_s or now_s % self.backfill.interval_s == 0
        self._changed = not due or bool(self.priority.weighs)
        return due

    def _wake(self, now_s: float) -> float | None:
        """Return when to be asked next: for a pass that may find something, or at the end of a grace."""
        times = [claim.at_s for claim in self._stops.claims.values()]
        times += [] if self._longest.next_s is None else [self._longest.next_s]
        if self.backfill.interval_s and self._changed and any(len(pool.waiting) for pool in self._pools):
            times.append((now_s // self.backfill.interval_s + 1) * self.backfill.interval_s)
        return min(times, default=None)

    def _preempt(self, view: View, changes: Changes) -> None:
        """Start the jobs that may stop others, resume suspended ones, and stop those whose grace is over."""
        now_s, stops = view.now_s, self._stops
        for name in [name for name, claim in stops.claims.items() if claim.at_s <= now_s]:
            for victim in stops.claims.pop(name).victims:
                self._stop(victim, view, changes)
        for kind, pool in enumerate(self._pools):
            order = [place for place in self._order(pool, now_s).tolist() if pool.waiting.tiers[place] >= _PREEMPTS]
            gone = [place for place in order[: self.backfill.max_jobs] if self._takes(kind, pool, place, view, changes)]
            if gone:
                pool.waiting.remove(gone)
        for job_id, allocation in list(stops.suspended.items()):
            if self._free.holds(allocation) and all(view.up[node] for node, _ in allocation):
                del stops.suspended[job_id]
                self._resume(view.jobs[job_id], allocation, view, changes)

    def _takes(self, kind: int, pool: TypePool, place: int, view: View, changes: Changes) -> bool:
        """Start a job on free GPUs or on those of victims, or give these notice; say whether it started."""
        waiting, stops = pool.waiting, self._stops
        job_id, gpus, tenant = waiting.ids[place], int(waiting.gpus[place]), int(waiting.tenants[place])
        if self._used[tenant] + gpus > self._most[tenant]:
            return False

        def fitting() -> Allocation | None:
            return self._free.choose_of(kind, PLACERS[self.placement], gpus)

        allocation = fitting()
        if allocation is None and job_id not in stops.claims:
            held = ((name, one) for name, one in self._held.items() if one.pool == kind and name not in changes.start)
            running = [Running(name, one.qos, one.start_s, one.allocation) for name, one in held]
            victims = stops.victims(view.jobs[job_id].request.qos, running, self._free, lambda: fitting() is not None)
            if victims and stops.waits_s:
                stops.claims[job_id] = Claim(view.now_s + stops.waits_s, tuple(one.id for one in victims))
                return False
            for victim in victims:
                self._stop(victim.id, view, changes)
            allocation = fitting()
        if allocation is None:
            return False
        stops.claims.pop(job_id, None)
        self._free.take(allocation)
        self._begin(place, kind, pool, allocation, view.now_s)
        changes.start[job_id] = allocation
        return True

    def _stop(self, job_id: str, view: View, changes: Changes) -> None:
        """Take a victim's GPUs away, as the mode of preemption has it."""
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
            self._add(view.jobs[job_id])
            self._in_order = False

    def _resume(self, job: JobView, allocation: Allocation, view: View, changes: Changes) -> None:
        kind = self._free.type_of(allocation)
        pool = self._pools[kind]
        self._add(job)
        self._free.take(allocation)
        self._begin(len(pool.waiting) - 1, kind, pool, allocation, view.now_s)
        pool.waiting.remove([len(pool.waiting) - 1])
        changes.stop.pop(job.id, None)
        changes.start[job.id] = allocation

    def _begin(self, place: int, kind: int, pool: TypePool, allocation: Allocation, now_s: float) -> None:
        """Note that a waiting job holds GPUs from now on."""
        waiting = pool.waiting
        job_id, limit = waiting.ids[place], int(waiting.limits[place])
        gpus, tenant, user = int(waiting.gpus[place]), int(waiting.tenants[place]), int(waiting.keys[place])
        held = Held(kind, allocation, gpus, math.floor(now_s) + limit, tenant, user, now_s, self._qos.get(job_id, ""))
        self._hold(job_id, held, now_s)

    def _start(
        self, kind: int, pool: TypePool, now: int, now_s: float, start: dict[str, Allocation], *, backfills: bool
    ) -> None:
        waiting, gone = pool.waiting, list[int]()
        for place in self._chosen(kind, pool, now, now_s, self.backfill.kind if backfills else "none").tolist():
            gpus, tenant = int(waiting.gpus[place]), int(waiting.tenants[place])
            if self._used[tenant] + gpus > self._most[tenant]:
                continue
            allocation = self._free.choose_of(kind, PLACERS[self.placement], gpus)
            if allocation is None:
                continue
            self._free.take(allocation)
            self._begin(place, kind, pool, allocation, now_s)
            self._stops.claims.pop(waiting.ids[place], None)
            start[waiting.ids[place]] = allocation
            gone.append(place)
        if gone:
            waiting.remove(gone)

    def _order(self, pool: TypePool, now_s: float) -> Ints:
        """Return the places of waiting jobs in the order of priority, without those whose tenant has its fill."""
        waiting = pool.waiting
        places: Ints = np.arange(len(waiting), dtype=np.int64)
        if self.priority.weighs or not self._in_order:
            value = self._priorities(pool, now_s)
            places = np.lexsort((places, waiting.submitted_s, -value, -waiting.tiers)).astype(np.int64)
        if self.tenants:
            room = np.array(self._most) - np.array(self._used)
            places = places[(waiting.gpus <= room[waiting.tenants])[places]]
        return places

    @property
    def counts_on(self) -> Wants:
        """Return time limits where there is backfill."""
        if self.backfill.kind == "none":
            return {}
        return {
            TIME_LIMITS: Becomes(
                f"takes every job to run for backfill.default_limit_s ({self.backfill.default_limit_s:g} s)"
            )
        }

    def _priorities(self, pool: TypePool, now_s: float) -> Numbers:
        waiting = pool.waiting
        value = waiting.fixed.copy()
        if self.priority.age:
            value += self.priority.age * np.minimum((now_s - waiting.submitted_s) / self.priority.max_age_s, 1.0)
        if self.priority.fair_share:
            value += self.priority.fair_share * self._usage.factors()[waiting.keys]
        return value

    def _tested(self, pool: TypePool, order: Ints, most: int) -> Ints:
        """Return the first of an order, as many jobs as a pass looks at, an array counting as one."""
        if not self._units:
            return order[:most]
        return order[first_units(pool.waiting.units[order], most)]

    def _chosen(self, kind: int, pool: TypePool, now: int, now_s: float, how: str) -> Ints:
        free = self._free.total_of(kind)
        if (
            len(pool.waiting) == 1
            and pool.waiting.gpus[0] <= free
            and min(self.backfill.max_jobs, self.backfill.queue_depth) > 0
        ):
            return np.zeros(1, dtype=np.int64)  # nobody else is there to wait for
        order = self._order(pool, now_s)
        if how == "conservative":
            order = self._tested(pool, order, self.backfill.max_jobs)
        elif self.backfill.interval_s and how == "none":
            order = self._tested(pool, order, self.backfill.queue_depth)
        as_they_stand = self._in_order and not (self.priority.weighs or self.tenants or self._units)
        places = slice(len(order)) if as_they_stand else order
        gpus, limits = pool.waiting.gpus[places], pool.waiting.limits[places]
        starts: Ints | np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
        if how == "none":
            starts = np.cumsum(gpus) <= free
        elif how == "easy":
            starts = pool.releases.easy(free, now, gpus, limits)
        else:
            most, window = len(order), self.backfill.window_s
            starts = pool.releases.conservative(free, now, gpus, limits, max_jobs=most, window=window) == now
        return np.asarray(order[starts], dtype=np.int64)

    def _look(self, view: View) -> None:
        """Take note of what came, ended, was lost, and of nodes that went down or came up."""
        lost = {job.id for job in view.lost}
        for job_id in [*view.finished, *sorted(lost)]:
            held = self._held.pop(job_id, None)
            if held is not None:
                self._let_go(job_id, held, view.now_s)
        if lost or view.up != self._free.up:
            if not self._pools:
                self._open(view)
            self._free = Capacity.of(view)
        for job in [*(view.jobs[one] for one in sorted(lost) if one in view.jobs), *view.arrived]:
            if job.id not in lost or job.id in view.jobs:
                self._add(job)
        self._in_order = self._in_order and not lost

    def _open(self, view: View) -> None:
        by_type: dict[str, int] = {}
        for node in view.nodes:
            by_type[node.gpu_type] = by_type.get(node.gpu_type, 0) + node.gpus
        self._pools = [TypePool(gpus) for gpus in by_type.values()]
        self._total = sum(by_type.values())

    def _add(self, job: JobView) -> None:
        request = job.request
        kind = self._pool_of(job)
        pool = self._pools[kind]
        asked_s = self._longest.limit_s(request.time_limit_s or self.backfill.default_limit_s)
        left_s = asked_s - self._stops.ran_s.get(job.id, 0.0)
        limit = max(1, math.ceil(left_s / self.backfill.resolution_s)) * self.backfill.resolution_s
        tenant = self._tenants.setdefault(request.tenant, len(self._tenants))
        if tenant == len(self._used):
            self._used.append(0)
            known = self.tenants.get(request.tenant)
            self._most.append(_NO_LIMIT if known is None or known.max_gpus is None else known.max_gpus)
        user = self._usage.number(request.tenant, request.user)
        tier = _PREEMPTS * self._stops.may(request.qos) + self.limits.partitions.get(request.queue, _ANY).tier
        unit = self._unit(request)
        fixed, submit_s = self._fixed(job), request.submit_time_s
        pool.waiting.add(WaitingJob(job.id, job.num_gpus, limit, user, tenant, submit_s, fixed, tier, unit))
        pool.demand += job.num_gpus
        self._in_order = self._in_order and not tier
        if self._stops.on:
            self._qos[job.id] = request.qos

    def _unit(self, request: JobRequest) -> int:
        """Number a job's array, or itself, once there are arrays."""
        if not request.group:
            self._alone -= 1
            return self._alone
        return self._units.setdefault(f"{request.user} {request.group}", len(self._units))

    def _fixed(self, job: JobView) -> float:
        """Return the part of a job's priority that does not change while it waits."""
        if not self.priority.weighs:
            return 0.0
        priorities = self._partition_priorities
        partition = relative_factor(priorities.get(job.request.queue, 0.0), priorities)
        quality = min(max(job.request.priority / self.priority.highest, 0.0), 1.0)
        if self._qos_priorities:
            quality = relative_factor(self._qos_priorities.get(job.request.qos, 0.0), self._qos_priorities)
        size = size_factor(job.num_gpus, self._total, favour_small=self.priority.favour_small)
        return self.priority.size * size + self.priority.partition * partition + self.priority.qos * quality

    def _pool_of(self, job: JobView) -> int:
        if len(self._pools) == 1:
            return 0
        bound = self.limits.partitions.get(job.request.queue, _ANY).gpu_type
        if bound in self._free.types:
            return self._free.types.index(bound)
        large = [kind for kind in self._free.fitting(job.facts) if self._pools[kind].capacity >= job.num_gpus]
        return min(large, key=lambda kind: self._pools[kind].demand / self._pools[kind].capacity, default=0)

    def _hold(self, job_id: str, held: Held, now_s: float) -> None:
        self._held[job_id] = held
        self._longest.begin(job_id, now_s)
        self._pools[held.pool].releases.add(held.end, held.gpus)
        self._used[held.tenant] += held.gpus
        self._usage.begin(held.user, held.gpus, now_s)

    def _let_go(self, job_id: str, held: Held, now_s: float) -> None:
        self._longest.end(job_id)
        pool = self._pools[held.pool]
        pool.releases.remove(held.end, held.gpus)
        pool.demand -= held.gpus
        self._used[held.tenant] -= held.gpus
        self._usage.end(held.user, held.gpus, now_s)
        self._free.give_back(held.allocation)
