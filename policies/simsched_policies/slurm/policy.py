"""Slurm as clusters run it: jobs by multifactor priority, and backfill on the time limits that users gave.

Idea: the waiting jobs are ordered by priority; those at the head start, and later ones start too where, by the time
limits of everyone, they delay no job that has a reservation (SchedMD, "Scheduling Configuration Guide", backfill, and
"Multifactor Priority Plugin"; EASY: Mu'alem and Feitelson, TPDS 2001). Deviations from Slurm: backfill runs whenever a
job comes or goes instead of every 30 s; GPUs alone are counted, not processors or memory; there are no reservations of
the administrator, no preemption and no job arrays as units; usage for fair share is brought up to date at the first
decision after `update_s`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from simsched.model.placement import Allocation
from simsched.policy import Decision, Policy, View
from simsched.policy.placers import PLACERS, FreeGpus, PlacerName
from simsched.policy.tenants import Tenant
from simsched.policy.view import JobView
from simsched_policies.slurm.backfill import MAX_JOBS, WINDOW_S, Ints
from simsched_policies.slurm.multifactor import HALF_LIFE_S, MAX_AGE_S, UPDATE_S, relative_factor, size_factor
from simsched_policies.slurm.usage import Usage
from simsched_policies.slurm.waiting import Numbers, TypePool


class _Held(NamedTuple):
    pool: int
    allocation: Allocation
    gpus: int
    end: int
    tenant: int
    user: int
    limit: int


@dataclass
class SlurmBackfill(Policy):
    """Starts jobs by priority and backfills the others around reservations, without preemption.

    `backfill` is `easy` (the first job that must wait gets a reservation), `conservative` (each of the first
    `max_jobs` that would start within `window_s` gets one, as Slurm does for the jobs that it tests) or `none` (the
    first job that must wait blocks the rest). Jobs without a time limit count as `default_limit_s` long. The weights
    are those of Slurm's factors, all 0 by default, which leaves first come, first served; the factor of quality of
    service is a job's priority over `highest_priority`. `partitions` binds queues to GPU types; other jobs wait for the
    type that is least in demand. `tenants` are the accounts: their weights are shares of fair share, and none holds
    more than its `max_gpus`.
    """

    name: ClassVar[str] = "slurm-backfill"

    backfill: Literal["easy", "conservative", "none"] = "easy"
    max_jobs: int = MAX_JOBS
    window_s: int = WINDOW_S
    default_limit_s: float = 7 * 86400.0
    weight_age: float = 0.0
    weight_fair_share: float = 0.0
    weight_size: float = 0.0
    weight_partition: float = 0.0
    weight_qos: float = 0.0
    max_age_s: float = MAX_AGE_S
    half_life_s: float = HALF_LIFE_S
    update_s: float = UPDATE_S
    favour_small: bool = False
    highest_priority: float = 1000.0
    partition_priorities: Mapping[str, float] = field(default_factory=dict)
    partitions: Mapping[str, str] = field(default_factory=dict)
    placement: PlacerName = "fragments"
    tenants: Mapping[str, Tenant] = field(default_factory=dict)
    _pools: list[TypePool] = field(default_factory=list, init=False, repr=False)
    _free: FreeGpus = field(default_factory=lambda: FreeGpus((), (), ()), init=False, repr=False)
    _up: list[bool] = field(default_factory=list, init=False, repr=False)
    _total: int = field(default=0, init=False, repr=False)
    _held: dict[str, _Held] = field(default_factory=dict, init=False, repr=False)
    _tenants: dict[str, int] = field(default_factory=dict, init=False, repr=False)
    _used: list[int] = field(default_factory=list, init=False, repr=False)
    _most: list[int] = field(default_factory=list, init=False, repr=False)
    _usage: Usage = field(init=False, repr=False)
    _in_order: bool = field(default=True, init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse what cannot be counted."""
        if self.default_limit_s <= 0 or self.max_age_s <= 0:
            raise ValueError("default_limit_s and max_age_s must be above 0")
        self._usage = Usage(self.tenants, self.half_life_s)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Start what may start now."""
        self._look(view)
        now = math.floor(view.now_s)
        self._charge(view.now_s)
        start: dict[str, Allocation] = {}
        for kind, pool in enumerate(self._pools):
            if len(pool.waiting) and self._free.total_of(kind) >= int(pool.waiting.gpus.min()):
                self._start(kind, pool, now, view.now_s, start)
        return Decision.change(start)

    def _start(self, kind: int, pool: TypePool, now: int, now_s: float, start: dict[str, Allocation]) -> None:
        order = self._order(pool, now_s)
        chosen = self._chosen(kind, pool, now, order)
        waiting = pool.waiting
        gone: list[int] = []
        for place in chosen.tolist():
            gpus, limit, tenant = int(waiting.gpus[place]), int(waiting.limits[place]), int(waiting.tenants[place])
            if self._used[tenant] + gpus > self._most[tenant]:
                continue
            allocation = self._free.choose_of(kind, PLACERS[self.placement], gpus)
            if allocation is None:
                continue
            self._free.take(allocation)
            held = _Held(kind, allocation, gpus, now + limit, tenant, int(waiting.keys[place]), limit)
            self._hold(waiting.ids[place], held, now_s)
            start[waiting.ids[place]] = allocation
            gone.append(place)
        if gone:
            waiting.remove(gone)

    def _order(self, pool: TypePool, now_s: float) -> Ints:
        """Return the places of waiting jobs in the order of priority, without those whose tenant has its fill."""
        waiting = pool.waiting
        places = np.arange(len(waiting), dtype=np.int64)
        if self._weighs or not self._in_order:
            value = self._priorities(pool, now_s)
            places = np.lexsort((places, waiting.submitted_s, -value)).astype(np.int64)
        if self.tenants:
            room = np.array(self._most) - np.array(self._used)
            places = places[(waiting.gpus <= room[waiting.tenants])[places]]
        return places

    @property
    def _weighs(self) -> bool:
        return bool(
            self.weight_age or self.weight_fair_share or self.weight_size or self.weight_partition or self.weight_qos
        )

    def _priorities(self, pool: TypePool, now_s: float) -> Numbers:
        waiting = pool.waiting
        value = waiting.fixed.copy()
        if self.weight_age:
            value += self.weight_age * np.minimum((now_s - waiting.submitted_s) / self.max_age_s, 1.0)
        if self.weight_fair_share:
            value += self.weight_fair_share * self._usage.factors()[waiting.keys]
        return value

    def _chosen(self, kind: int, pool: TypePool, now: int, order: Ints) -> Ints:
        free = self._free.total_of(kind)
        gpus, limits = pool.waiting.gpus[order], pool.waiting.limits[order]
        starts: Ints | np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
        if self.backfill == "none":
            starts = np.cumsum(gpus) <= free
        elif self.backfill == "easy":
            starts = pool.releases.easy(free, now, gpus, limits)
        else:
            most, window = self.max_jobs, self.window_s
            starts = pool.releases.conservative(free, now, gpus, limits, max_jobs=most, window=window) == now
        chosen: Ints = order[starts]
        return chosen

    def _look(self, view: View) -> None:
        """Take note of what came, ended, was lost, and of nodes that went down or came up."""
        lost = {job.id for job in view.lost}
        up = list(view.up)
        for job_id in [*view.finished, *sorted(lost)]:
            held = self._held.pop(job_id, None)
            if held is not None:
                self._let_go(job_id, held, view.now_s)
        if up != self._up or lost:
            if not self._pools:
                self._open(view)
            self._up, self._free = up, FreeGpus(view.nodes, up, view.free)
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
        limit = max(1, math.ceil(request.time_limit_s or self.default_limit_s))
        tenant = self._tenants.setdefault(request.tenant, len(self._tenants))
        if tenant == len(self._used):
            self._used.append(0)
            known = self.tenants.get(request.tenant)
            self._most.append(self._total if known is None or known.max_gpus is None else known.max_gpus)
        user = self._usage.number(request.tenant, request.user)
        pool.waiting.add(job.id, job.num_gpus, limit, user, tenant, request.submit_time_s, self._fixed(job))
        pool.demand += job.num_gpus

    def _fixed(self, job: JobView) -> float:
        """Return the part of a job's priority that does not change while it waits."""
        priorities = self.partition_priorities
        partition = relative_factor(priorities.get(job.request.queue, 0.0), priorities)
        quality = min(max(job.request.priority / self.highest_priority, 0.0), 1.0)
        size = size_factor(job.num_gpus, self._total, favour_small=self.favour_small)
        return self.weight_size * size + self.weight_partition * partition + self.weight_qos * quality

    def _pool_of(self, job: JobView) -> int:
        bound = self.partitions.get(job.request.queue)
        if bound in self._free.types:
            return self._free.types.index(str(bound))
        large = [kind for kind in self._free.fitting(job.facts) if self._pools[kind].capacity >= job.num_gpus]
        return min(large, key=lambda kind: self._pools[kind].demand / self._pools[kind].capacity, default=0)

    def _hold(self, job_id: str, held: _Held, now_s: float) -> None:
        self._held[job_id] = held
        self._pools[held.pool].releases.add(held.end, held.gpus)
        self._used[held.tenant] += held.gpus
        self._usage.begin(held.user, held.gpus, now_s)

    def _let_go(self, job_id: str, held: _Held, now_s: float) -> None:
        pool = self._pools[held.pool]
        pool.releases.remove(held.end, held.gpus)
        pool.demand -= held.gpus
        self._used[held.tenant] -= held.gpus
        self._usage.end(held.user, held.gpus, now_s)
        self._free.give_back(held.allocation)

    def _charge(self, now_s: float) -> None:
        if self.weight_fair_share:
            self._usage.update(now_s, self.update_s)
