"""Progress of jobs, grouping of events, and the three figures that Muri prints."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from tests.validation.oracles.muri_replay.inputs import Job


class Figures(NamedTuple):
    """Mean and 99th percentile of job completion time, and makespan, in seconds."""

    avg_jct_s: float
    makespan_s: float
    p99_jct_s: float


class Moment(NamedTuple):
    """Jobs to which the same thing happens at one time."""

    time_s: float
    jobs: list[Job]


def figures(jobs: Sequence[Job]) -> Figures:
    """Compute the figures of a finished replay; the percentile is element int(0.99 n) of the sorted times."""
    times = sorted(job.end_s - job.submit_s for job in jobs)
    total = 0.0
    for job in sorted(jobs, key=lambda job: job.end_s):
        total += job.end_s - job.submit_s
    return Figures(total / len(jobs), max(job.end_s for job in jobs), times[int(0.99 * len(times))])


def group(moments: Iterable[tuple[float, Job]], same: Callable[[float, float], bool]) -> list[Moment]:
    """Group jobs by time; the first group whose time is the same takes a job."""
    groups: list[Moment] = []
    for time_s, job in moments:
        found = next((moment for moment in groups if same(moment.time_s, time_s)), None)
        if found is None:
            groups.append(Moment(time_s, [job]))
        else:
            found.jobs.append(job)
    return groups


def nearly(one: float, other: float) -> bool:
    """Say whether two times agree to one part in 10^9."""
    return math.isclose(one, other, rel_tol=1e-9)


def arrivals(jobs: Sequence[Job]) -> list[Moment]:
    """Group the arrivals, earliest first."""
    return sorted(group(((job.submit_s, job) for job in jobs), nearly), key=lambda moment: moment.time_s)


def earliest_end(running: Iterable[Job], now_s: float, same: Callable[[float, float], bool] = nearly) -> Moment | None:
    """Predict the next completion, without the overhead that progress is charged."""
    ends = [(now_s + job.remaining * job.now_iteration_s, job) for job in running]
    first_s = min((time_s for time_s, _ in ends), default=0.0)
    # Later ends belong to later groups; only those that may be in the first one are compared.
    soon = [(time_s, job) for time_s, job in ends if time_s <= first_s + 1.0]
    return min(group(soon, same), key=lambda moment: moment.time_s, default=None)


def advance(job: Job, now_s: float) -> None:
    """Credit a running job with the time since it was last looked at, less one restart overhead at every look."""
    elapsed_s = now_s - job.checked_s
    job.checked_s = now_s
    job.executed_s += elapsed_s
    job.remaining -= max(elapsed_s - job.now_overhead_s, 0) / job.now_iteration_s


def start_or_stop(jobs: Iterable[Job], placed: set[Job], now_s: float) -> None:
    """Start the jobs in `placed` and stop the others."""
    for job in jobs:
        if job in placed:
            job.checked_s = now_s
            job.running = True
        else:
            job.running = False
