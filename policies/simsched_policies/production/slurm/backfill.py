"""When running jobs release what they hold, by the time limits of users, and when passes of backfill run.

Times are integer ticks, limits at least one.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left

import numpy as np
import numpy.typing as npt

from simsched_policies.production.slurm.options import Backfill

Ints = npt.NDArray[np.int64]
#: The planned start of a job without one.
NEVER = -1


class Releases:
    """The sorted times at which running jobs must release what they hold, by their limits: GPUs, or more per row."""

    def __init__(self, width: int = 1) -> None:
        self._ends = array("q")
        self._held = [array("q") for _ in range(width)]
        #: The sum of the first column of what is held.
        self.gpus = 0

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
        self.gpus += held[0]

    def remove(self, end: int, *held: int) -> None:
        """Remove a job that was added with the same figures; raises `ValueError` if there is none."""
        ends, columns, place = self._ends, self._held, bisect_left(self._ends, end)
        while place < len(ends) and ends[place] == end:
            if columns[0][place] == held[0] and [column[place] for column in columns[1:]] == [*held[1:]]:
                for column in (ends, *columns):
                    column.pop(place)
                self.gpus -= held[0]
                return
            place += 1
        raise ValueError(f"no job of {held[0]} GPUs ends at {end}")


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
