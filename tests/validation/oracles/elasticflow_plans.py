"""ElasticFlow's simulator under ElasticFlow itself, in plain loops, as an oracle of its replay.

Written from a description of the published simulator (pkusys/ElasticFlow, Apache-2.0) alone. It gives every row of the
recorded logs and every grant of spare GPUs.
"""

from __future__ import annotations

import math
from itertools import pairwise

from tests.validation.oracles.elasticflow import (
    GPUS,
    LEVELS,
    RESTART_EVERY,
    RESTART_S,
    SLOT_S,
    Job,
    Row,
    aligned,
    logged,
    stand_still_s,
)

#: The most GPUs where they are fewer than for EDF, by model and batch size.
FEWER = {
    ("gpt2", 128): 16, ("gpt2", 256): 32, ("bert", 64): 8, ("bert", 128): 16, ("inception3", 64): 16,
    ("inception3", 128): 32, ("resnet50", 64): 32, ("vgg16", 64): 32,
}  # fmt: skip
#: GPUs from which time on: of a plan, or those that are free.
Steps = dict[float, int]
#: A plan, its end in whole slots and its real end.
Planned = tuple[Steps, float, float]


def level(gpus: int, most: int) -> int:
    return max((one for one in LEVELS if one <= min(gpus, most)), default=0)


def at(steps: Steps, time_s: float) -> int:
    return steps[max(one for one in steps if one <= time_s)]


def changed(free: Steps, plan: Steps, end: float, sign: int) -> Steps:
    """What is free with (-1) or without (+1) a plan; runs of equal values are one step."""
    found: Steps = {}
    gpus = held = 0
    last: int | None = None
    for time_s in sorted({*free, end, *(one for one in plan if one < end)}):
        gpus, held = free.get(time_s, gpus), plan.get(time_s, held)
        now = gpus + sign * held if time_s < end else gpus
        if now != last:
            found[time_s] = last = now
    return found


def least_plan(job: Job, free: Steps, now: float, beyond: int) -> Planned:
    """The plan with the least cap that is in time, else with all that the job can use, and `beyond` after all steps."""
    due = aligned(now, job.deadline_s)
    steps = dict(free)
    if due > now and due not in steps:
        steps[due] = at(steps, due)
    times = sorted(steps)
    ends = dict(zip(times, [*times[1:], math.inf], strict=True))
    before = [time_s for time_s in times if time_s < due]
    smaller = 0
    for cap in [one for one in LEVELS if one <= job.most_gpus]:
        done = 0.0
        for first in reversed(before):
            gpus = level(steps[first], cap)
            until = job.deadline_s if first == before[-1] else ends[first]
            done += job.rates[gpus] * (until - first) if gpus else 0
            if done >= job.left:
                wanted = {time_s: level(steps[time_s], cap if time_s >= first else smaller) for time_s in times}
                return walk(job, wanted, ends, before)
        smaller = cap
    wanted = {time_s: level(steps[time_s], job.most_gpus) for time_s in times[:-1]}
    return walk(job, {**wanted, times[-1]: beyond}, ends, before)


def walk(job: Job, wanted: Steps, ends: dict[float, float], before: list[float]) -> Planned:
    left, plan = job.left, dict.fromkeys(before, 0)
    for time_s, gpus in wanted.items():
        plan[time_s] = gpus
        if gpus and left <= job.rates[gpus] * (ends[time_s] - time_s):
            rest = math.ceil(left / job.rates[gpus])
            return plan, time_s + SLOT_S * math.ceil(rest / SLOT_S), time_s + rest
        left -= job.rates[gpus] * (ends[time_s] - time_s) if gpus else 0
    raise AssertionError(f"job {job.id} never ends")


def plan_all(jobs: list[Job], now: float) -> tuple[dict[int, Planned], Steps]:
    """The least plan of each job on what earlier deadlines leave, and what all leave."""
    free, plans = {now: GPUS}, {}
    for job in sorted(jobs, key=lambda job: job.deadline_s):
        plans[job.id] = least_plan(job, free, now, job.most_gpus)
        free = changed(free, *plans[job.id][:2], -1)
    return plans, free


def changes(plan: Steps) -> list[float]:
    times = sorted(plan)
    return [time_s for before, time_s in pairwise(times) if plan[before] != plan[time_s]]


def larger_plan(job: Job, free: Steps, now: float, gpus: int) -> Planned:
    """So many GPUs until the next step of what is free without the job, then the least plan for what is left."""
    stop = min((time_s for time_s in free if time_s > now), default=aligned(now, job.deadline_s))
    rest = math.ceil(job.left / job.rates[gpus])
    if job.left <= job.rates[gpus] * (stop - now) and now + rest <= job.deadline_s:
        return {now: gpus}, now + SLOT_S * math.ceil(rest / SLOT_S), now + rest
    all_left = job.left
    job.left -= job.rates[gpus] * (stop - now)
    later = {time_s: one for time_s, one in free.items() if time_s >= stop} or {stop: at(free, stop)}
    plan, end, real = least_plan(job, later, stop, gpus)
    job.left = all_left
    return {now: gpus, **plan}, end, real


def gpu_time(planned: Planned) -> float:
    plan, end, _ = planned
    times = sorted(plan)
    return sum(plan[one] * (then - one) for one, then in zip(times, [*times[1:], max(end, times[-1])], strict=True))


def share(jobs: list[Job], plans: dict[int, Planned], free: Steps, now: float, *, later: bool) -> list[Job]:
    """Give spare GPUs to the jobs whose GPU time grows most; the order that is left."""
    gains = {job.id: -math.inf for job in jobs}
    while True:
        spare = GPUS - sum(job.gpus for job in jobs)
        larger: dict[int, tuple[Steps, Planned]] = {}
        for job in jobs:
            after = 2 * job.gpus if job.gpus else 1
            if after > job.most_gpus:
                continue
            gains[job.id] = -math.inf
            if after - job.gpus <= spare:
                without = changed(free, *plans[job.id][:2], 1)
                found = larger_plan(job, without, now, after)
                larger[job.id] = without, found
                growth = gpu_time(found) - gpu_time(plans[job.id])
                gains[job.id] = growth / (after - job.gpus) if job.gpus else math.inf
        if not larger:
            return jobs
        jobs = sorted(jobs, key=lambda job: -gains[job.id])
        best = next(job for job in jobs if job.id in larger)
        without, (plan, end, real) = larger[best.id]
        plans[best.id] = plan, end, real if later else plans[best.id][2]
        free = changed(without, plan, end, -1)
        best.gpus = plan[now]


def ranges(jobs: list[Job]) -> dict[int, tuple[int, int]]:
    """First GPU and number: whole nodes for the large, then node sets by what is left of them, the least used first."""
    found, node = {}, 0
    for job in sorted((job for job in jobs if job.gpus >= 8), key=lambda job: -job.gpus):
        found[job.id] = (8 * node, job.gpus)
        node += job.gpus // 8
    used: dict[int, int] = {}
    filed: dict[int, list[int]] = {size: [] for size in LEVELS}
    for size in (4, 2, 1):
        for job in (job for job in jobs if job.gpus == size):
            sources = [size, *sorted((one for one in LEVELS if one > size), reverse=True)]
            source = next((one for one in sources if filed[one] and 8 - used[filed[one][0]] >= size), None)
            if source is None:
                chosen, node = node, node + 1
                used[chosen] = 0
            else:
                chosen = filed[source].pop(0)
            found[job.id] = (8 * chosen + used[chosen], size)
            used[chosen] += size
            left = 8 - used[chosen]
            place = filed[max(one for one in LEVELS if left % one == 0) if left else size]
            place.append(chosen)
            place.sort(key=used.__getitem__)
    return found


def train(job: Job, now: float, last: float, real: float) -> None:
    if job.gpus == 0:
        return
    rate = job.rates[job.gpus]
    trained_s = max(0, now - last - max(0, now - real) - job.overhead_s)
    if job.left <= trained_s * rate and job.end_s > now:
        job.end_s = last + math.ceil(job.left / rate)
    job.left -= trained_s * rate


def stand(jobs: list[Job], stood: set[tuple[int, int]], now: float, *, restart: bool) -> None:
    """Start jobs, and put their ends off by what they stand still; `stood` is where some job ever stood."""
    if restart:
        stood.clear()
    places = ranges(jobs)
    for job in jobs:
        job.overhead_s = 0
        if job.gpus:
            job.start_s = now if job.start_s is None else job.start_s
            job.overhead_s = (2 if places[job.id] in stood else stand_still_s(job.gpus)) + (RESTART_S if restart else 0)
            job.end_s += job.overhead_s
    stood |= set(places.values())


def replay(jobs: list[Job], *, spare: bool = True, later: bool = False) -> list[Row]:
    """What is logged of the jobs that are not declined; `later` is the version of 2024."""
    coming, present, rows = list(jobs), list[Job](), list[Row]()
    plans: dict[int, Planned] = {}
    now = last = float(jobs[0].submit_s)
    decisions, stood = 0, set[tuple[int, int]]()
    while True:
        for job in present:
            train(job, now, last, plans[job.id][2])
        ended = [job for job in present if job.end_s <= now]
        for job in sorted(ended, key=lambda job: -job.gpus):
            rows.append(logged(job, now, (job.start_s or 0) - job.submit_s))
        present = [job for job in present if job not in ended]
        arrived = [job for job in coming if job.submit_s <= now]
        coming = coming[len(arrived) :]
        tried, _ = plan_all(present + arrived, now)
        if arrived and all(tried[job.id][2] <= job.deadline_s for job in present + arrived):
            present = present + arrived
        present.sort(key=lambda job: job.deadline_s)
        plans, free = plan_all(present, now)
        for job in present:
            job.gpus = plans[job.id][0][now]
        if spare:
            present = share(present, plans, free, now, later=later)
        for job in present:
            job.end_s = plans[job.id][1]
        first = min([job.submit_s for job in coming] + [job.end_s for job in present], default=math.inf)
        steps = [one for job in present for one in changes(plans[job.id][0]) if now < one < first]
        stand(present, stood, now, restart=decisions > 0 and decisions % RESTART_EVERY == 0)
        decisions += 1
        times = sorted({job.submit_s for job in coming} | {job.end_s for job in present} | set(steps))
        if not times:
            return rows
        last, now = now, now + SLOT_S if len(times) > 1 and times[0] <= now + SLOT_S else times[0]
