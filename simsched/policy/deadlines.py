"""ElasticFlow's rules for jobs with deadlines: minimum satisfactory share, admission, scaling by marginal return.

Source: ElasticFlow (ASPLOS'23, section 4). Time is cut into slots from now on; a plan says how many GPUs a job holds in
each slot. Sizes are powers of two. A job is admitted if it and everybody admitted before can still be in time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

#: GPUs of a job in each slot from now on.
Plan = tuple[int, ...]


@dataclass(frozen=True)
class DeadlineJob:
    """A job that must finish `work` iterations within `slots` slots.

    `rate(gpus)` is iterations in a slot on so many GPUs, 0 for none; more than `max_gpus` are of no use.
    """

    id: str
    work: float
    slots: int
    max_gpus: int
    rate: Callable[[int], float]


def sizes(most: int) -> list[int]:
    """List the powers of two up to `most`, ascending."""
    return [1 << power for power in range(most.bit_length()) if 1 << power <= most]


def satisfactory_share(job: DeadlineJob, free: Sequence[int]) -> Plan | None:
    """Return the plan with the smallest share of GPUs that is in time, None if there is none.

    `free[t]` GPUs are unplanned in slot t. For a share of 1, 2, 4 ... GPUs the job takes in every slot, from the last
    before its deadline backwards, the share or the largest size below it that is free, until its work is done.
    """
    for share in sizes(job.max_gpus):
        plan = _latest(job, free, share)
        if plan is not None:
            return plan
    return None


def _latest(job: DeadlineJob, free: Sequence[int], share: int) -> Plan | None:
    left = job.work
    plan = [0] * len(free)
    for slot in range(min(job.slots, len(free)) - 1, -1, -1):
        if left <= 0:
            break
        plan[slot] = max((size for size in sizes(share) if size <= free[slot]), default=0)
        left -= job.rate(plan[slot])
    return tuple(plan) if left <= 1e-9 * job.work else None


def plan_all(jobs: Sequence[DeadlineJob], gpus: int) -> dict[str, Plan] | None:
    """Plan the minimum satisfactory share of every job, the earliest deadline first; None if one cannot be in time."""
    horizon = max((job.slots for job in jobs), default=0)
    free = [gpus] * horizon
    plans: dict[str, Plan] = {}
    for job in sorted(jobs, key=lambda job: (job.slots, job.id)):
        plan = satisfactory_share(job, free)
        if plan is None:
            return None
        plans[job.id] = plan
        free = [before - taken for before, taken in zip(free, plan, strict=True)]
    return plans


def admits(admitted: Sequence[DeadlineJob], new: DeadlineJob, gpus: int) -> bool:
    """Say whether `new` can be in time on a cluster of `gpus` GPUs without making an admitted job late."""
    return plan_all([*admitted, new], gpus) is not None


def scale_up(jobs: Sequence[DeadlineJob], plans: Mapping[str, Plan], gpus: int) -> dict[str, int]:
    """Return the GPUs of every job in the slot that starts now, when those left over go where they save most.

    Every job starts with its plan's first slot. Then the step to the next size goes to the job with the greatest
    marginal return, GPU-slots saved per GPU more, while it fits and saves any; equals in the order of `jobs`.
    """
    now = {job.id: plans[job.id][0] if plans[job.id] else 0 for job in jobs}
    left = gpus - sum(now.values())
    while True:
        steps = [(marginal_return(job, now[job.id], plans[job.id]), job) for job in jobs]
        useful = [step for step in steps if step[0] > 0 and _more(now[step[1].id]) <= left]
        if not useful:
            return now
        _, job = max(useful, key=lambda step: step[0])
        left -= _more(now[job.id])
        now[job.id] += _more(now[job.id])


def marginal_return(job: DeadlineJob, gpus: int, plan: Plan) -> float:
    """Return GPU-slots saved later per GPU more now, when a job goes from `gpus` to the next size in this slot.

    What is done now need not be done later, where the plan's GPUs are given back from its last slot on; 0 where the
    next size is larger than the job can use.
    """
    larger = gpus + _more(gpus)
    if larger > job.max_gpus:
        return 0.0
    before, after = later_gpu_slots(job, gpus, plan), later_gpu_slots(job, larger, plan)
    return (before - after) / (larger - gpus)


def later_gpu_slots(job: DeadlineJob, gpus: int, plan: Plan) -> float:
    """Return the GPU-slots that a job still needs after a slot on `gpus` GPUs, the last counted by the part used."""
    left = job.work - job.rate(gpus)
    spent = 0.0
    for count in plan[1:]:
        if left <= 0:
            break
        rate = job.rate(count)
        if rate > 0:
            spent += count * min(1.0, left / rate)
            left -= rate
    return spent


def _more(gpus: int) -> int:
    """Count the GPUs that the next power of two adds."""
    return max(gpus, 1)
