"""The search for a lower bound of the makespan: what each job's progress is worth."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog

from simsched.bounds.check import least_makespan
from simsched.bounds.jobs import Floats, Ints, RelaxedJobs

#: The most jobs, and jobs times units, for which sets of jobs side by side are considered; and the rounds of doing so.
_MOST_JOBS, _MOST_ROOM, _ROUNDS = 64, 1 << 14, 60
#: The worth of what runs at a time after the last release, and the least by which a set is worth more than it may.
_PARTS, _LEAST = 1 << 30, 1e-7


def worth_of(jobs: RelaxedJobs) -> tuple[tuple[int, ...], bool]:
    """Return values of the jobs' progress that prove a makespan, and whether they do for sets that fit side by side.

    The candidates are one job alone; the capacity that jobs take, without those that may be done by some release; and
    for few jobs of fixed widths the dual of the program that shares out time among sets of jobs.
    """
    capacity = jobs.capacity * jobs.cost_parts
    alone = np.zeros(len(jobs), dtype=np.int64)
    alone[np.argmax(jobs.release + jobs.shortest)] = 1
    candidates = [(alone, False), (_work_values(jobs), False)]
    if jobs.whole and len(jobs) <= _MOST_JOBS and len(jobs) * capacity <= _MOST_ROOM:
        candidates.append((_set_values(jobs), True))
    rows = list(zip(*(jobs.plain[name] for name in ("release", "work", "rates", "costs")), strict=True))

    def proved(candidate: tuple[Ints, bool]) -> float:
        values, packed = candidate
        return float(least_makespan(rows, values.tolist(), capacity, jobs.costs[:, 0].tolist() if packed else []))

    values, packed = max(candidates, key=proved)
    return tuple(values.tolist()), packed


def _work_values(jobs: RelaxedJobs) -> Ints:
    """Return the least capacity of progress, and 0 for jobs that may be done before the work that counts."""
    after = np.cumsum(jobs.area[::-1])[::-1]
    best, since = 0.0, 0
    for tick in np.unique(jobs.release[np.argsort(-(jobs.release + after / jobs.capacity), kind="stable")[:64]]):
        done = np.maximum(0.0, tick - jobs.release) / jobs.shortest
        found = tick + float((jobs.area * np.maximum(0.0, 1 - done)).sum()) / jobs.capacity
        if found > best:
            best, since = found, int(tick)
    cheapest = np.where(jobs.rates > 0, jobs.costs, np.iinfo(np.int64).max).min(axis=1)
    return np.where(jobs.release + jobs.shortest > since, cheapest, 0)


def _set_values(jobs: RelaxedJobs) -> Ints:
    """Return values of a tick of each job, such that sets are worth little before the last release and 1 after it.

    Values and worths of sets are the dual of a linear program over the time that sets run between releases; its rows
    are generated as they are found to be violated.
    """
    widths = jobs.costs[:, 0]
    releases, first = np.unique(jobs.release, return_index=True)
    counts = np.append(first[1:], len(jobs))  # released jobs, by interval
    spans = np.diff(releases).astype(np.float64)
    costs = np.concatenate([-jobs.work.astype(np.float64), spans])
    limits = np.zeros((0, len(costs)))
    right: list[float] = []
    values: Floats = widths / jobs.capacity
    most = np.zeros(len(counts))
    for _ in range(_ROUNDS):
        rows = []
        for k, chosen in enumerate(_dearest(values, widths, jobs.capacity, counts)):
            if values[chosen].sum() > most[k] + _LEAST:
                row = np.zeros(len(costs))
                row[chosen] = 1.0
                row[len(jobs) + k : len(jobs) + k + 1] = -1.0  # nothing after the last release, where sets are worth 1
                rows.append(row)
                right.append(float(k == len(spans)))
        if not rows:
            break
        limits = np.vstack([limits, rows])
        solved = np.asarray(linprog(costs, A_ub=limits, b_ub=right, bounds=(0, 1)).x)
        values, most = solved[: len(jobs)], np.append(solved[len(jobs) :], 1.0)
    return np.rint(values * _PARTS).astype(np.int64)


def _dearest(values: Floats, widths: Ints, room: int, counts: Ints) -> list[Ints]:
    """Return the dearest set that fits of the first `counts` jobs, for each of these."""
    best = np.zeros(room + 1)
    taken = np.zeros((len(values), room + 1), dtype=bool)
    found = []
    for job, (value, width) in enumerate(zip(values, widths, strict=True)):
        with_it = best[: room + 1 - width] + value
        taken[job, width:] = with_it > best[width:]
        best[width:] = np.maximum(with_it, best[width:])
        if job + 1 in counts:
            chosen, left = [], room
            for one in range(job, -1, -1):
                if taken[one, left]:
                    chosen.append(one)
                    left -= int(widths[one])
            found.append(np.array(chosen, dtype=np.int64))
    return found
