"""EASY backfill from its definition, on counts of GPUs.

Lifka, "The ANL/IBM SP scheduling system" (JSSPP 1995), as Mu'alem and Feitelson state it (IEEE TPDS 12(6), 2001): jobs
start in the order of arrival while they fit. The first that does not fit gets the one reservation: at the
shadow time, by which enough running jobs will have reached their estimates; what is then left over are the extra GPUs.
A later job may start if it fits now and either ends, by its estimate, by the shadow time, or uses no more than the
extra GPUs.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple


class Job(NamedTuple):
    """When a job comes, for how many GPUs, how long it runs and how long its user says, in whole seconds."""

    submit_s: int
    gpus: int
    runs_s: int
    estimate_s: int


def textbook_easy(jobs: Sequence[Job], gpus: int, *, backfill: bool = True) -> list[int]:
    """Return when each job ends; without `backfill` first come, first served. Jobs come in order of submission."""
    ends_s = [0] * len(jobs)
    running: list[tuple[int, int]] = []  # end and job
    queue: list[int] = []
    free, coming = gpus, 0

    def start(number: int, now_s: int) -> None:
        nonlocal free
        free -= jobs[number].gpus
        ends_s[number] = now_s + jobs[number].runs_s
        heapq.heappush(running, (ends_s[number], number))

    while coming < len(jobs) or running:
        now_s = min([one.submit_s for one in jobs[coming : coming + 1]] + [end_s for end_s, _ in running[:1]])
        while running and running[0][0] == now_s:
            free += jobs[heapq.heappop(running)[1]].gpus
        while coming < len(jobs) and jobs[coming].submit_s == now_s:
            queue.append(coming)
            coming += 1
        while queue and jobs[queue[0]].gpus <= free:
            start(queue.pop(0), now_s)
        if not (backfill and queue and free):
            continue
        at_shadow, shadow_s = free, now_s
        estimated = sorted((ends_s[n] - jobs[n].runs_s + jobs[n].estimate_s, jobs[n].gpus) for _, n in running)
        for place, (by_s, held) in enumerate(estimated):
            at_shadow, shadow_s = at_shadow + held, by_s
            last = place + 1 == len(estimated) or estimated[place + 1][0] > by_s
            if last and at_shadow >= jobs[queue[0]].gpus:
                break
        extra = at_shadow - jobs[queue[0]].gpus
        for number in queue[1:]:
            wanted = jobs[number].gpus
            in_time = now_s + jobs[number].estimate_s <= shadow_s
            if wanted <= free and (in_time or wanted <= extra):
                extra -= 0 if in_time else wanted
                queue.remove(number)
                start(number, now_s)
    return ends_s
