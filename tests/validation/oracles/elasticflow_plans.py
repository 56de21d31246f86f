"""ElasticFlow's simulator without spare GPUs: its least plans, admission, stand-stills and training, in plain loops.

Written from a description of the published simulator (pkusys/ElasticFlow, Apache-2.0), which has the figures of this
variant but no log. Of the readings tried only one gives them: the steps of plans are no events. How spare GPUs are
given is not here; no reading that was tried gives all rows of the recorded logs.
"""

from __future__ import annotations

import math

from tests.validation.oracles.elasticflow import (
    GPUS,
    LEVELS,
    RESTART_EVERY,
    RESTART_S,
    SLOT_S,
    Job,
    aligned,
    stand_still_s,
)

#: Steps of free GPUs: from which time on how many are free.
Steps = list[tuple[float, int]]
Plan = list[tuple[float, int]]


def level(gpus: int, most: int) -> int:
    return max((one for one in LEVELS if one <= min(gpus, most)), default=0)


def least_plan(job: Job, free: Steps, now: float) -> tuple[Plan, float, float]:
    """The plan with the least cap that is in time, its end in whole slots and its real end."""
    due = aligned(now, job.deadline_s)
    steps = list(free)
    if due > now and due not in dict(steps):
        steps = sorted([*steps, (due, [gpus for time_s, gpus in steps if time_s < due][-1])])
    ends = [time_s for time_s, _ in steps[1:]] + [math.inf]
    before = [index for index, (time_s, _) in enumerate(steps) if time_s < due]
    smaller = 0
    for cap in [one for one in LEVELS if one <= job.most_gpus]:
        done = 0.0
        for index in reversed(before):
            until = job.deadline_s if index == before[-1] else ends[index]
            gpus = level(steps[index][1], cap)
            done += job.rates[gpus] * (until - steps[index][0]) if gpus else 0
            if done >= job.left:
                return walk(job, steps, ends, [cap if at >= index else smaller for at in range(len(steps))])
        smaller = cap
    return walk(job, steps, ends, [job.most_gpus] * len(steps))


def walk(job: Job, steps: Steps, ends: list[float], caps: list[int]) -> tuple[Plan, float, float]:
    left, plan = job.left, []
    for (time_s, free), end_s, cap in zip(steps, ends, caps, strict=True):
        gpus = level(free, min(cap, job.most_gpus))
        plan.append((time_s, gpus))
        if gpus and left <= job.rates[gpus] * (end_s - time_s):
            rest = math.ceil(left / job.rates[gpus])
            return plan, time_s + SLOT_S * math.ceil(rest / SLOT_S), time_s + rest
        left -= job.rates[gpus] * (end_s - time_s) if gpus else 0
    raise AssertionError(f"job {job.id} never ends")


def plan_all(jobs: list[Job], now: float) -> dict[int, tuple[Plan, float, float]]:
    """The least plan of each job on what earlier deadlines leave."""
    free: Steps = [(now, GPUS)]
    plans = {}
    for job in sorted(jobs, key=lambda job: job.deadline_s):
        plan, end, _ = plans[job.id] = least_plan(job, free, now)
        times = sorted({time_s for time_s, _ in free} | {time_s for time_s, _ in plan} | {end})
        rest: Steps = []
        for time_s in times:
            gpus = [one for at, one in free if at <= time_s][-1]
            taken = [one for at, one in plan if at <= time_s][-1] if time_s < end else 0
            if not rest or rest[-1][1] != gpus - taken:
                rest.append((time_s, gpus - taken))
        free = rest
    return plans


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


def ends_without_spare(jobs: list[Job]) -> dict[int, float]:
    """When the jobs end that are not declined."""
    coming, present, ends = list(jobs), list[Job](), {}
    real: dict[int, float] = {}
    now = last = float(jobs[0].submit_s)
    decisions, stood = 0, set()
    while True:
        for job in present:
            if job.gpus:
                rate = job.rates[job.gpus]
                trained_s = max(0, now - last - max(0, now - real[job.id]) - job.overhead_s)
                if job.left <= trained_s * rate and job.end_s > now:
                    job.end_s = last + math.ceil(job.left / rate)
                job.left -= trained_s * rate
        ends |= {job.id: job.end_s for job in present if job.gpus and job.end_s <= now}
        present = [job for job in present if job.id not in ends]
        arrived = [job for job in coming if job.submit_s <= now]
        coming = coming[len(arrived) :]
        tried = plan_all(present + arrived, now)
        if arrived and all(tried[job.id][2] <= job.deadline_s for job in present + arrived):
            present = present + arrived
        present.sort(key=lambda job: job.deadline_s)
        for job in present:
            plan, job.end_s, real[job.id] = plan_all(present, now)[job.id]
            job.gpus = plan[0][1]
        restart = decisions > 0 and decisions % RESTART_EVERY == 0
        stood = set() if restart else stood
        places = ranges(present)
        for job in (job for job in present if job.gpus):
            job.overhead_s = (2 if places[job.id] in stood else stand_still_s(job.gpus)) + (RESTART_S if restart else 0)
            job.end_s += job.overhead_s
        stood |= set(places.values())
        decisions += 1
        times = sorted({job.submit_s for job in coming} | {job.end_s for job in present})
        if not times:
            return ends
        last, now = now, now + SLOT_S if len(times) > 1 and times[0] <= now + SLOT_S else times[0]
