"""ElasticFlow's rules for jobs with deadlines: minimum satisfactory share, admission, scaling by marginal return.

Source: ElasticFlow (ASPLOS'23, section 4). Time is cut into slots from now on; a plan says how many GPUs a job holds in
each slot. Sizes are powers of two. A job is admitted if it and everybody admitted before can still be in time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]

#: Work that is done but for this share of it counts as done.
_SLACK = 1e-9

#: GPUs of a job in each slot from now on.
Plan = tuple[int, ...]


@dataclass(frozen=True)
class DeadlineJob:
    """A job that must finish `work` iterations within `slots` slots.

    `rate(gpus)` is iterations in a slot on so many GPUs, 0 for none; more than `max_gpus` are of no use. It runs on
    `held` GPUs, and loses `restart_slots` where that changes.
    """

    id: str
    work: float
    slots: int
    max_gpus: int
    rate: Callable[[int], float]
    held: int = 0
    restart_slots: float = 0.0


def sizes(most: int) -> list[int]:
    """List the powers of two up to `most`, ascending."""
    return [1 << power for power in range(most.bit_length()) if 1 << power <= most]


def satisfactory_share(job: DeadlineJob, free: Sequence[int] | Counts) -> Plan | None:
    """Return the plan with the smallest share of GPUs that is in time, None if there is none.

    `free[t]` GPUs are unplanned in slot t. For a share of 1, 2, 4 ... GPUs the job takes in every slot, from the last
    before its deadline backwards, the share or the largest size below it that is free, until its work is done.
    """
    last = max(min(job.slots, len(free)), 0)
    room = np.asarray(free, dtype=np.int64)[:last]
    for share in sizes(job.max_gpus):
        taken = _latest(job, room, share)
        if taken is not None:
            return (*taken.tolist(), *(0 for _ in range(len(free) - last)))
    return None


def _latest(job: DeadlineJob, room: Counts, share: int) -> Counts | None:
    below = np.array([0, *(1 << count.bit_length() - 1 for count in range(1, share + 1))])
    rates = np.zeros(share + 1)
    for size in sizes(share):
        rates[size] = job.rate(size)
    taken = below[np.clip(room, 0, share)][::-1].copy()
    done = np.cumsum(rates[taken])
    enough = job.work * (1 - _SLACK)
    if enough > (done[-1] if len(done) else 0.0):
        return None
    taken[np.searchsorted(done, enough) + 1 if enough > 0 else 0 :] = 0
    return taken[::-1]


def plan_all(jobs: Sequence[DeadlineJob], gpus: int) -> dict[str, Plan] | None:
    """Plan the minimum satisfactory share of every job, the earliest deadline first; None if one cannot be in time."""
    free = np.full(max((job.slots for job in jobs), default=0), gpus)
    plans: dict[str, Plan] = {}
    for job in sorted(jobs, key=lambda job: (job.slots, job.id)):
        plan = satisfactory_share(job, free)
        if plan is None:
            return None
        plans[job.id] = plan
        free -= np.array(plan, dtype=np.int64)
    return plans


def admits(admitted: Sequence[DeadlineJob], new: DeadlineJob, gpus: int) -> bool:
    """Say whether `new` can be in time on a cluster of `gpus` GPUs without making an admitted job late."""
    return plan_all([*admitted, new], gpus) is not None


def scale_up(jobs: Sequence[DeadlineJob], plans: Mapping[str, Plan], gpus: int) -> dict[str, int]:
    """Return the GPUs of every job in the slot that starts now, when those left over go where they save most.

    Every job starts with its plan's first slot; where restarts cost anything, it keeps what it holds beyond that while
    there is room, in the order of `jobs`, and grows only if it ends sooner for it. Then the step to the next size goes
    to the job with the greatest marginal return, GPU-slots saved per GPU more, while it fits and saves any; equals in
    the order of `jobs`.
    """
    now = {job.id: plans[job.id][0] if plans[job.id] else 0 for job in jobs}
    _keep(jobs, now, gpus)
    later = {job.id: _runs(plans[job.id][1:]) for job in jobs}
    returns = {job.id: _marginal(job, now[job.id], later[job.id]) for job in jobs}
    known = {job.id: job for job in jobs}
    left = gpus - sum(now.values())
    while True:
        useful = [one for one, value in returns.items() if value > 0 and _more(now[one]) <= left]
        if not useful:
            return now
        best = max(useful, key=returns.__getitem__)
        left -= _more(now[best])
        now[best] += _more(now[best])
        returns[best] = _marginal(known[best], now[best], later[best])


def _keep(jobs: Sequence[DeadlineJob], now: dict[str, int], gpus: int) -> None:
    left = gpus - sum(now.values())
    for job in jobs:
        more = job.held - now[job.id]
        if job.restart_slots > 0 and 0 < more <= left and job.held <= job.max_gpus:
            now[job.id] = job.held
            left -= more


def _grows_in_vain(job: DeadlineJob, gpus: int, larger: int) -> bool:
    """Tell whether a job that runs would end no sooner on more GPUs, because it has to restart."""
    if gpus != job.held or not gpus or job.restart_slots <= 0:
        return False
    before, after = job.rate(gpus), job.rate(larger)
    return before > 0 and (after <= 0 or job.work / after + job.restart_slots >= job.work / before)


def marginal_return(job: DeadlineJob, gpus: int, plan: Plan) -> float:
    """Return GPU-slots saved later per GPU more now, when a job goes from `gpus` to the next size in this slot.

    What is done now need not be done later, where the plan's GPUs are given back from its last slot on; 0 where the
    next size is larger than the job can use.
    """
    return _marginal(job, gpus, _runs(plan[1:]))


def _marginal(job: DeadlineJob, gpus: int, later: Sequence[tuple[int, int]]) -> float:
    larger = gpus + _more(gpus)
    if larger > job.max_gpus or _grows_in_vain(job, gpus, larger):
        return 0.0
    return (_needed(job, gpus, later) - _needed(job, larger, later)) / (larger - gpus)


def later_gpu_slots(job: DeadlineJob, gpus: int, plan: Plan) -> float:
    """Return the GPU-slots that a job still needs after a slot on `gpus` GPUs, the last counted by the part used."""
    return _needed(job, gpus, _runs(plan[1:]))


def _runs(plan: Plan) -> list[tuple[int, int]]:
    """Return GPUs and successive slots of a plan, the slots without GPUs left out."""
    return [(count, len(list(run))) for count, run in groupby(plan) if count]


def _needed(job: DeadlineJob, gpus: int, later: Sequence[tuple[int, int]]) -> float:
    left = job.work - job.rate(gpus)
    spent = 0.0
    for count, slots in later:
        rate = job.rate(count)
        if left <= 0:
            break
        if rate > 0:
            spent += count * min(float(slots), left / rate)
            left -= slots * rate
    return spent


def _more(gpus: int) -> int:
    """Count the GPUs that the next power of two adds."""
    return max(gpus, 1)
