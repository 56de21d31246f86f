"""Backfill on the time limits of users: EASY and conservative, on a timeline of free GPUs.

A pool is a number of equal GPUs; a cluster of several types or partitions has a pool for each. Times are integer ticks,
limits at least one. With r running jobs and q waiting ones a pass costs O(q (r + q)) at worst, EASY only O(r + q) while
nothing is free; adding or removing a running job O(r), one memory move.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left

import numpy as np
import numpy.typing as npt

from simsched.jit import jit
from simsched_policies.production.slurm.options import Backfill

Ints = npt.NDArray[np.int64]
#: The number of starts found in a pass that serve as bounds for later jobs.
_BOUNDS = 32
#: The planned start of a job without one.
NEVER = -1
#: Slurm's defaults: the number of jobs that a pass tests, and its planning window in seconds.
MAX_JOBS = 500
WINDOW_S = 1440 * 60


class Releases:
    """The sorted times at which running jobs must release what they hold, by their limits: GPUs, or more per row."""

    def __init__(self, width: int = 1) -> None:
        self._ends = array("q")
        self._held = [array("q") for _ in range(width)]
        #: The sum of the first column of what is held.
        self._sum = 0

    @property
    def columns(self) -> tuple[Ints, Ints]:
        """Return the ends, ascending, and what each releases."""
        return np.array(self._ends, dtype=np.int64), np.array(self._held, dtype=np.int64).T.copy()

    def __len__(self) -> int:
        """Count the running jobs."""
        return len(self._ends)

    def add(self, end: int, *held: int) -> None:
        """Add a job that must end at `end`."""
        place = bisect_left(self._ends, end)
        self._ends.insert(place, end)
        for i, amount in enumerate(held):
            self._held[i].insert(place, amount)
        self._sum += held[0]

    def remove(self, end: int, *held: int) -> None:
        """Remove a job that was added with the same figures; raises `ValueError` if there is none."""
        ends, columns, place = self._ends, self._held, bisect_left(self._ends, end)
        while place < len(ends) and ends[place] == end:
            if columns[0][place] == held[0] and [column[place] for column in columns[1:]] == [*held[1:]]:
                for column in (ends, *columns):
                    column.pop(place)
                self._sum -= held[0]
                return
            place += 1
        raise ValueError(f"no job of {held[0]} GPUs ends at {end}")

    @property
    def _gpus(self) -> tuple[Ints, Ints]:
        """The ends and the first column of what each releases."""
        return np.array(self._ends, dtype=np.int64), np.array(self._held[0], dtype=np.int64)

    def easy(self, free: int, now: int, gpus: Ints, limits: Ints) -> npt.NDArray[np.bool_]:
        """Return which waiting jobs start now under EASY backfill.

        `gpus` and `limits` hold the waiting jobs in the order of priority. Those at the head start while they fit; the
        first that does not gets a reservation for the time at which, by the limits, it will fit. A later one starts if
        it fits and either ends by then or does not use that job's GPUs. A running job past its limit counts as ending
        at the next tick. Source: Mu'alem and Feitelson (TPDS 2001), section 2.
        """
        starts, taken = np.zeros(len(gpus), dtype=np.bool_), gpus.cumsum()
        head, ever = int(taken.searchsorted(free, "right")), free + self._sum
        if head == len(gpus):
            starts[:] = True
        elif gpus[head] > ever:  # delays no job
            fit = gpus <= ever
            starts[fit] = self.easy(free, now, gpus[fit], limits[fit])
        else:
            ends, held = self._gpus
            if head:
                starts[:head], free = True, free - int(taken[head - 1])
                ends, held = np.concatenate([ends, now + limits[:head]]), np.concatenate([held, gpus[:head]])
                order = ends.argsort(kind="stable")
                ends, held = ends[order], held[order]
            if free:
                self._backfill(starts[head:], free, now, gpus[head:], limits[head:], ends, held)
        return starts

    @staticmethod
    def _backfill(
        starts: npt.NDArray[np.bool_], free: int, now: int, gpus: Ints, limits: Ints, ends: Ints, held: Ints
    ) -> None:
        """Mark the jobs that start behind the first one, which must wait for running jobs to end."""
        levels = free + held.cumsum()
        shadow = max(int(ends[levels.searchsorted(gpus[0])]), now + 1)
        extra = int(levels[ends.searchsorted(shadow, "right") - 1]) - int(gpus[0])
        late = limits > shadow - now
        places = (gpus <= np.where(late, min(extra, free), free)).nonzero()[0]
        for place, wanted, is_late in zip(places.tolist(), gpus[places].tolist(), late[places].tolist(), strict=True):
            if wanted <= free and (not is_late or wanted <= extra):
                starts[place] = True
                free -= wanted
                extra -= wanted if is_late else 0

    def conservative(
        self, free: int, now: int, gpus: Ints, limits: Ints, *, max_jobs: int = MAX_JOBS, window: int | None = WINDOW_S
    ) -> Ints:
        """Plan the start of every waiting job, in the given order; none delays an earlier one.

        Returns the planned starts: `now` for those that start, `NEVER` for jobs after the first `max_jobs` and for
        those that would start more than `window` ticks ahead, which get no reservation. Slurm's backfill does so for
        the jobs that it tests.
        """
        starts = np.full(len(gpus), NEVER, dtype=np.int64)
        horizon = int(np.iinfo(np.int64).max) if window is None else now + window
        ends, amounts = self._gpus
        _plan(ends, amounts, free, now, gpus[:max_jobs], limits[:max_jobs], horizon, starts)
        return starts


def greedy(free: int, gpus: Ints) -> npt.NDArray[np.bool_]:
    """Return which waiting jobs start now if each takes free GPUs, in the given order."""
    starts = np.zeros(len(gpus), dtype=np.bool_)
    for place in np.flatnonzero(gpus <= free).tolist():
        if gpus[place] <= free:
            starts[place], free = True, free - int(gpus[place])
    return starts


@jit
def _find(ends: Ints, count: int, end: int) -> int:
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if ends[middle] < end:
            low = middle + 1
        else:
            high = middle
    return low


@jit
def _plan(ends: Ints, amounts: Ints, free: int, now: int, gpus: Ints, limits: Ints, horizon: int, starts: Ints) -> None:
    """Fill in planned starts."""
    times = np.empty(len(ends) + 2 * len(gpus) + 2, dtype=np.int64)
    levels = np.empty(len(ends) + 2 * len(gpus) + 2, dtype=np.int64)
    times[0], levels[0], count = now, free, 1
    for i in range(len(ends)):
        end = max(ends[i], now + 1)
        if end > times[count - 1]:
            times[count], levels[count] = end, levels[count - 1]
            count += 1
        levels[count - 1] += amounts[i]
    first = 0
    bounds, known = np.empty((_BOUNDS, 3), dtype=np.int64), 0
    for job in range(len(gpus)):
        while first < count - 1 and levels[first] <= 0:
            first += 1
        begin = max(first, _find(times, count, _bound(bounds, known, gpus[job], limits[job])))
        place = _earliest(times, levels, count, gpus[job], limits[job], begin)
        if place > begin:
            row = bounds[known % _BOUNDS]
            row[0], row[1], row[2] = gpus[job], limits[job], times[place]
            known += 1
        if place < 0 or times[place] > horizon:
            continue
        starts[job] = times[place]
        count = _reserve(times, levels, count, place, times[place] + limits[job], gpus[job])


@jit
def _bound(bounds: Ints, known: int, gpus: int, limit: int) -> int:
    """Return the latest start found in the pass for a job no larger and no longer, a lower bound for this one."""
    latest = 0
    for i in range(min(known, len(bounds))):
        if bounds[i, 0] <= gpus and bounds[i, 1] <= limit and bounds[i, 2] > latest:
            latest = bounds[i, 2]
    return latest


@jit
def _earliest(times: Ints, levels: Ints, count: int, gpus: int, limit: int, first: int) -> int:
    """Find the first step, not before `first`, after which `gpus` stay free for `limit`; -1 if there is none."""
    place, step = first, first
    while step < count:
        if levels[step] < gpus:
            place = step + 1
        elif step + 1 == count or times[step + 1] >= times[place] + limit:
            return place
        step += 1
    return -1


@jit
def _reserve(times: Ints, levels: Ints, count: int, place: int, end: int, gpus: int) -> int:
    """Take `gpus` off the steps from `place` to the time `end`, adding a step there; return the number of steps."""
    step = place
    while step < count and times[step] < end:
        levels[step] -= gpus
        step += 1
    if step == count or times[step] > end:
        for i in range(count, step, -1):
            times[i], levels[i] = times[i - 1], levels[i - 1]
        times[step], levels[step] = end, levels[step - 1] + gpus
        count += 1
    return count


class Cycle:
    """The state of a backfill cycle.

    It yields for `yield_s` after every `jobs_per_yield` jobs. If a job arrived or left meanwhile, it carries on with
    its list if it `continues`, and ends otherwise. Source: slurm.conf, bf_continue and bf_yield_interval.
    """

    def __init__(self, options: Backfill) -> None:
        self._options = options
        self._depth = 0
        #: When the cycle resumes, None if there is no current cycle.
        self.next_s: float | None = None

    def depth(self, now_s: float, waiting: int, *, changed: bool) -> int | None:
        """Return how many waiting jobs have been tested after this instant, None if backfill does not run.

        `changed`: a job has arrived or left since the last call.
        """
        options, going_on = self._options, self.next_s
        if changed and not options.continues:
            going_on = self.next_s = None
        if now_s % options.interval_s == options.offset_s:
            self._depth = 0
        elif going_on is None or now_s < going_on:
            return None
        self._depth += options.jobs_per_yield or options.max_jobs
        self.next_s = now_s + options.yield_s if self._depth < min(options.max_jobs, waiting) else None
        return min(self._depth, options.max_jobs)
