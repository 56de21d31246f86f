"""Chronus: jobs with deadlines reserve leases before they are admitted; the others run on the remaining GPUs.

Idea: Gao et al., Chronus, SoCC'21. Time is cut into leases. A job with a deadline is admitted if enough leases can be
reserved for it before its deadline, in addition to those of the jobs admitted earlier (a mixed-integer program,
`simsched.toolkit.programs.leases`); during its leases nothing preempts it. Jobs without a deadline, and those that are
not admitted, run on unreserved GPUs, in short slots.

Published (artifact): leases of 60 minutes, slots of 5 minutes. Deviations: jobs without a lease run in order of
remaining GPU-time (no available source gives the order); remaining work is an oracle (from memory: the paper profiles
jobs beforehand); a job is charged a restart in every lease, which overestimates consecutive leases; an admitted job
that can no longer meet its deadline loses its leases and runs on the remaining GPUs; plans look at most
`horizon_leases` ahead; the program is solved only if reserving the earliest leases by deadline fails, and only while it
is small. With several GPU types it runs on each separately.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from simsched.model import Allocation
from simsched.policy import REMAINING_WORK, Becomes, Decision, Decline, JobView, Policy, Traits, View
from simsched.policy.physics import DEADLINES
from simsched.toolkit import TypePool, available_gpus, run_in_order, type_pools
from simsched.toolkit.programs import reserve, usable_seconds


@dataclass
class Chronus(Policy):
    """Reserves leases for jobs with deadlines, and gives the remaining GPUs to the others slot by slot."""

    name: ClassVar[str] = "chronus"
    traits: ClassVar[Traits] = Traits(
        interval="slot_s",
        needs={REMAINING_WORK},
        wants={DEADLINES: Becomes("gives no job a lease: the least remaining GPU-time goes first, in slots")},
    )

    lease_s: int = 3600
    slot_s: int = 300
    horizon_leases: int = 48
    _admitted: dict[str, bool] = field(default_factory=dict, init=False, repr=False)
    _holders: set[str] = field(default_factory=set, init=False, repr=False)
    _began_s: float = field(default=-1, init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse leases that are not a whole number of slots."""
        if self.slot_s < 1 or self.lease_s < self.slot_s or self.lease_s % self.slot_s or self.horizon_leases < 1:
            raise ValueError(f"lease_s ({self.lease_s}) must be a multiple of slot_s ({self.slot_s}), both at least 1")

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Renew the leases at the start of a period, admit or decline new jobs, and fill the remaining GPUs."""
        for job_id in view.finished:
            self._admitted.pop(job_id, None)
        began_s = view.now_s // self.lease_s * self.lease_s
        self._holders = (
            {job_id for job_id in self._holders if job_id in view.jobs} if began_s == self._began_s else set()
        )
        renewed, self._began_s = began_s != self._began_s, began_s
        allocations: dict[str, Allocation] = {}
        declined: list[str] = []
        for pool in type_pools(view, rigid=True):
            new = [job for job in pool.jobs.values() if _has_deadline(job) and job.id not in self._admitted]
            if new or renewed:
                declined += self._plan(pool, new)
            first = [job for job in pool.jobs.values() if job.id in self._holders]
            rest = [job for job in pool.jobs.values() if job.id not in self._holders]
            rest.sort(key=_service_left)
            allocations |= run_in_order([*first, *rest], pool.view, score=_service_left)
        return Decision(allocations | {job_id: Decline(allocations.get(job_id, ())) for job_id in declined})

    def _plan(self, pool: TypePool, new: Sequence[JobView]) -> list[str]:
        """Decide which jobs are admitted and which hold the current lease; return the declined ones."""
        admitted = [job for job in pool.jobs.values() if self._admitted.get(job.id, False)]
        kept, plan = admitted, self._reserved(admitted, pool)
        if plan is None:
            kept, plan, late = self._admit([], admitted, pool)
            self._admitted.update(dict.fromkeys((job.id for job in late), False))
        kept, plan, declined = self._admit(kept, new, pool, plan)
        self._admitted.update({job.id: job in kept for job in new})
        self._holders |= {job_id for job_id, leases in plan.items() if leases[0]}
        return [job.id for job in declined]

    def _admit(
        self,
        before: Sequence[JobView],
        others: Sequence[JobView],
        pool: TypePool,
        plan: Mapping[str, NDArray[np.bool_]] | None = None,
    ) -> tuple[list[JobView], Mapping[str, NDArray[np.bool_]], list[JobView]]:
        """Admit, in turn, the jobs for which leases can be reserved; return the admitted jobs, the plan, the rest."""
        admitted, declined, plan = list(before), [], plan or {}
        for job in others:
            found = self._reserved([*admitted, job], pool)
            if found is None:
                declined.append(job)
            else:
                plan = found
                admitted.append(job)
        return admitted, plan, declined

    def _reserved(self, jobs: Sequence[JobView], pool: TypePool) -> Mapping[str, NDArray[np.bool_]] | None:
        """Return the leases of each job, the current one first; None if a job cannot meet its deadline."""
        if not jobs:
            return {}
        view = pool.view
        order = sorted(jobs, key=_deadline_s)
        last_s = max(map(_deadline_s, order))
        count = min(max(int(-((self._began_s - last_s) // self.lease_s)), 1), self.horizon_leases)
        begin = [max(self._began_s + lease * self.lease_s, view.now_s) for lease in range(count)]
        end = [self._began_s + (lease + 1) * self.lease_s for lease in range(count)]
        loss = [
            view.restart_delay_s if job.facts.restart_delay_s is None else job.facts.restart_delay_s for job in order
        ]
        usable = usable_seconds(begin, end, [_deadline_s(job) for job in order], loss)
        need = np.array([job[REMAINING_WORK].seconds for job in order])
        room = np.full(count, available_gpus(view))
        for at, job in enumerate(order):
            if job.id in self._holders:  # it holds the current lease until that ends, whatever is planned
                need[at] -= max(min(end[0], _deadline_s(job)) - view.now_s, 0) + 1
                room[0] -= job.num_gpus
                usable[at, 0] = 0
        room[0] = max(room[0], 0)
        held = reserve(need, np.array([job.num_gpus for job in order]), usable, room)
        return None if held is None else {job.id: leases for job, leases in zip(order, held, strict=True)}


def _service_left(job: JobView) -> float:
    return job[REMAINING_WORK].seconds * job.num_gpus


def _has_deadline(job: JobView) -> bool:
    return job.request.deadline_s is not None


def _deadline_s(job: JobView) -> float:
    return job.request.submit_time_s + (job.request.deadline_s or 0.0)
