"""ElasticFlow's rules for jobs with deadlines: minimum satisfactory share, admission, scaling by marginal return.

Source: ElasticFlow (ASPLOS'23, section 4). A plan gives a job's GPUs, a power of two, in each slot from now on. A job
is admitted if it and all jobs admitted before can meet their deadlines. Plans pay for restarts: a job makes no progress
while it restarts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]

#: Work counts as done when less than this share of it is left.
_SLACK = 1e-9
#: A shortage below this fraction of a slot does not break a promise: whole slots end before the deadline.
_NEARLY = 0.05
#: A number of GPUs that nobody holds: whatever the job gets next costs it a restart.
_MOVED = -1


@dataclass(frozen=True)
class DeadlineJob:
    """A job that must finish `work` iterations within `slots` slots.

    `rate(gpus)` is in iterations per slot, 0 for none; GPUs beyond `max_gpus` are of no use, nor are fewer than
    `least`, a power of two. Each change from the `held` GPUs costs `restart_slots`. New plans reserve time for
    `spare_restarts` more restarts, in case other jobs displace it.
    """

    id: str
    work: float
    slots: int
    max_gpus: int
    rate: Callable[[int], float]
    held: int = 0
    restart_slots: float = 0.0
    spare_restarts: int = 0
    least: int = 1

    @property
    def sizes(self) -> list[int]:
        """List the numbers of GPUs that it can use, ascending."""
        return [size for size in sizes(self.max_gpus) if size >= self.least]

    def larger(self, gpus: int) -> int:
        """Return the next size after `gpus`, of the powers of two from `least` on."""
        return 2 * gpus if gpus else self.least

    def moved(self) -> DeadlineJob:
        """Return the job as if it left its GPUs to others and restarted in the next slot."""
        return replace(self, held=_MOVED)


def sizes(most: int) -> list[int]:
    """List the powers of two up to `most`, ascending."""
    return [1 << power for power in range(most.bit_length()) if 1 << power <= most]


def done_by(job: DeadlineJob, plan: Sequence[int] | Counts) -> float:
    """Return the iterations that a plan does, net of restarts; a run shorter than its restart counts negative."""
    counts = np.asarray(plan, dtype=np.int64)
    kinds, at = np.unique(counts, return_inverse=True)
    rates = np.array([job.rate(int(count)) for count in kinds])[at]
    return float(rates.sum() - job.restart_slots * rates[counts != np.concatenate(([job.held], counts[:-1]))].sum())


def in_time(job: DeadlineJob, plan: Sequence[int] | Counts) -> bool:
    """Return whether a plan finishes a job within its slots."""
    return done_by(job, plan[: max(job.slots, 0)]) >= job.work * (1 - _SLACK)


def satisfactory_share(job: DeadlineJob, free: Sequence[int] | Counts) -> Counts | None:
    """Return the plan with the smallest share of GPUs that meets the deadline, None if there is none.

    `free[t]` GPUs are unplanned in slot t. For shares of 1, 2, 4 ... GPUs, the job takes the share, or the largest free
    size below it, in every slot from its deadline backwards until its work is done.
    """
    plan = np.zeros(len(free), dtype=np.int64)
    last = max(min(job.slots, len(free)), 0)
    room = np.asarray(free, dtype=np.int64)[:last]
    for share in job.sizes:
        taken = _latest(job, room, share)
        if taken is not None:
            plan[:last] = taken
            return plan
    return None


def _latest(job: DeadlineJob, room: Counts, share: int) -> Counts | None:
    """Return the latest plan that holds `share`, or the largest free size below it, from its start on."""
    if not len(room):
        return room if job.work <= 0 else None
    below = np.array([1 << count.bit_length() >> 1 for count in range(share + 1)])
    below[: job.least] = 0
    known = np.zeros(len(below))
    for size in (one for one in job.sizes if one <= share):
        known[size] = job.rate(size)
    taken = below[np.clip(room, 0, share)]
    rates = known[taken]
    begun = rates * (1 - job.restart_slots)  # in a slot with which the job (re)starts
    running = np.where(taken == np.concatenate(([job.held], taken[:-1])), rates, begun)
    after = np.concatenate((np.cumsum(running[::-1])[::-1][1:], [0.0]))
    from_slot = after + begun
    from_slot[0] = after[0] + running[0]
    spare = job.spare_restarts * job.restart_slots * known[below[-1]]
    enough = np.flatnonzero(from_slot >= job.work * (1 - _SLACK) + spare)
    if not len(enough):
        return None
    taken[: enough[-1] if job.work > 0 else len(taken)] = 0
    return taken


def plan_all(jobs: Sequence[DeadlineJob], gpus: int) -> dict[str, Counts] | None:
    """Plan the minimum satisfactory share of every job, the earliest deadline first; None if one would be late."""
    free = np.full(max((job.slots for job in jobs), default=0), gpus)
    plans: dict[str, Counts] = {}
    for job in sorted(jobs, key=lambda job: (job.slots, job.id)):
        plan = satisfactory_share(job, free)
        if plan is None:
            return None
        plans[job.id] = plan
        free -= plan
    return plans


def keep_promises(
    jobs: Sequence[DeadlineJob], plans: Mapping[str, Counts], gpus: int
) -> tuple[list[DeadlineJob], dict[str, Counts]]:
    """Return the jobs whose promise can be kept, and their plans.

    Replans all jobs if everyone then meets its deadline, without spare time if necessary; otherwise plans stand. A job
    whose plan broke because GPUs were lost is replanned around the others, earliest deadline first, or given up.
    """
    hurried = [replace(job, spare_restarts=0) for job in jobs]
    found = plan_all(jobs, gpus)
    if found is None:
        found = plan_all(hurried, gpus)
    if found is None:
        found = _going_on(hurried, plans, gpus)
        for job in sorted(hurried, key=lambda job: (job.slots, job.id)):
            plan = None if job.id in found else plan_beside(found, job, gpus)
            if plan is not None:
                found[job.id] = plan
    return [job for job in jobs if job.id in found], found


def _going_on(jobs: Sequence[DeadlineJob], plans: Mapping[str, Counts], gpus: int) -> dict[str, Counts]:
    """Return the plans that still hold, the earliest deadline first; one may miss by a few seconds of its slot."""
    found: dict[str, Counts] = {}
    free = np.full(max((job.slots for job in jobs), default=0), gpus)
    for job in sorted(jobs, key=lambda job: (job.slots, job.id)):
        plan = plans.get(job.id, free[:0])[: max(job.slots, 0)]
        missing = job.work - done_by(job, plan)
        fits = bool((plan <= free[: len(plan)]).all())
        if fits and missing <= _NEARLY * job.rate(int(plan.max(initial=0))):
            found[job.id] = plan
            free[: len(plan)] -= plan
    return found


def plan_beside(plans: Mapping[str, Counts], job: DeadlineJob, gpus: int) -> Counts | None:
    """Plan a job on what the plans of others leave of `gpus` GPUs; None if it would be late."""
    return satisfactory_share(job, unplanned(plans, job.slots, gpus))


def unplanned(plans: Mapping[str, Counts], slots: int, gpus: int) -> Counts:
    """Count the GPUs that plans leave free in each of `slots` slots."""
    free = np.full(slots, gpus)
    for plan in plans.values():
        used = plan[:slots]
        free[: len(used)] -= used
    return free


def scale_up(
    jobs: Sequence[DeadlineJob], plans: Mapping[str, Counts], gpus: int, *, least_return: bool = False
) -> dict[str, int]:
    """Return every job's GPUs in the slot that starts now, with spare GPUs where they save most.

    Jobs start from their plan's first slot and, if restarts cost anything, keep the extra GPUs they hold while there is
    room, in the order of `jobs`. Each further step goes to the job with the greatest marginal return (GPU-slots saved
    per extra GPU) while it fits and saves any; ties in the order of `jobs`. A running job grows only if it then ends
    sooner, and never if the rest of its plan would then be late. `least_return` prefers the least marginal return, even
    if nothing is saved, as the published simulator does.
    """
    now = {job.id: int(plans[job.id][0]) if len(plans[job.id]) else 0 for job in jobs}
    _keep(jobs, now, plans, gpus)
    later = {job.id: plans[job.id][1:] for job in jobs}
    returns = {job.id: marginal_return(job, now[job.id], later[job.id]) for job in jobs}
    known = {job.id: job for job in jobs}
    left = gpus - sum(now.values())
    choose = min if least_return else max
    while True:
        useful = {
            one: value
            for one, value in returns.items()
            if value is not None and (value > 0 or least_return) and known[one].larger(now[one]) - now[one] <= left
        }
        if not useful:
            return now
        best = choose(useful, key=useful.__getitem__)
        larger = known[best].larger(now[best])
        left -= larger - now[best]
        now[best] = larger
        returns[best] = marginal_return(known[best], now[best], later[best])


def _keep(jobs: Sequence[DeadlineJob], now: dict[str, int], plans: Mapping[str, Counts], gpus: int) -> None:
    left = gpus - sum(now.values())
    for job in jobs:
        more = job.held - now[job.id]
        fits = 0 < more <= left and job.held <= job.max_gpus
        if job.restart_slots > 0 and fits and _is_safe(job, job.held, plans[job.id][1:]):
            now[job.id] = job.held
            left -= more


def share_out(jobs: Sequence[DeadlineJob], gpus: int) -> dict[str, int]:
    """Return the GPUs of jobs without a promise: the least of each, then what they hold, then doublings in turn.

    Always in the order of `jobs`, while any fits. A job that would have to restart grows only if it then ends sooner.
    """
    counts, left = dict.fromkeys((job.id for job in jobs), 0), gpus
    for job in jobs:
        if job.least <= left:
            counts[job.id] = job.least
            left -= job.least
    for job in jobs:
        more = min(job.held, job.max_gpus) - counts[job.id]
        if job.restart_slots > 0 and counts[job.id] and 0 < more <= left:
            counts[job.id] += more
            left -= more
    grown = True
    while grown:
        grown = False
        for job in jobs:
            have = counts[job.id]
            fits = have <= left and 2 * have <= job.max_gpus and job.rate(2 * have) > job.rate(have)
            if fits and not _grows_in_vain(job, have, 2 * have):
                counts[job.id] += have
                left -= have
                grown = True
    return counts


def _is_safe(job: DeadlineJob, gpus: int, later: Counts) -> bool:
    return job.restart_slots <= 0 or in_time(job, np.concatenate(([gpus], later)))


def _grows_in_vain(job: DeadlineJob, gpus: int, larger: int) -> bool:
    """Return whether a job that runs would end no sooner on more GPUs, because of the restart."""
    if gpus != job.held or job.restart_slots <= 0:
        return False
    before, after = job.rate(gpus), job.rate(larger)
    return before > 0 and (after <= 0 or job.work / after + job.restart_slots >= job.work / before)


def marginal_return(job: DeadlineJob, gpus: int, later: Counts) -> float | None:
    """Return GPU-slots saved later per extra GPU now, when a job goes from `gpus` to the next size in this slot.

    Work done now shortens `later` from its last slot backwards. None if the next size is too large for the job, or
    makes it restart in vain or late.
    """
    larger = job.larger(gpus)
    if larger > job.max_gpus or _grows_in_vain(job, gpus, larger) or not _is_safe(job, larger, later):
        return None
    return (_needed(job, gpus, later) - _needed(job, larger, later)) / (larger - gpus)


def _needed(job: DeadlineJob, gpus: int, later: Counts) -> float:
    """Return the GPU-slots that a job still needs after a slot on `gpus` GPUs, with the last slot counted in part."""
    left = job.work - job.rate(gpus)
    spent = 0.0
    begins = np.flatnonzero(np.diff(later, prepend=_MOVED)).tolist()
    for begin, end in zip(begins, [*begins[1:], len(later)], strict=False):
        count = int(later[begin])
        rate = job.rate(count)
        if left <= 0:
            break
        if rate > 0:
            spent += count * min(float(end - begin), left / rate)
            left -= (end - begin) * rate
    return spent
