"""The longest time for which a job may run, whatever it asked for: the MaxTime of Slurm's partitions."""

from __future__ import annotations

import heapq


class LongestRun:
    """When the jobs that run will have run for as long as they may."""

    def __init__(self) -> None:
        self._ends: list[tuple[float, str]] = []
        self._end_of: dict[str, float] = {}

    def begin(self, job_id: str, now_s: float, most_s: float | None) -> None:
        """Note that a job begins to run, for `most_s` at most (None: as long as it likes)."""
        if most_s is not None:
            self._end_of[job_id] = now_s + most_s
            heapq.heappush(self._ends, (now_s + most_s, job_id))

    def end(self, job_id: str) -> None:
        """Note that a job runs no longer."""
        self._end_of.pop(job_id, None)

    def over(self, now_s: float) -> list[str]:
        """Return the jobs whose time is over, and forget them."""
        found = []
        while self._ends and (self._ends[0][0] <= now_s or self._end_of.get(self._ends[0][1]) != self._ends[0][0]):
            end_s, job_id = heapq.heappop(self._ends)
            if self._end_of.get(job_id) == end_s:
                del self._end_of[job_id]
                found.append(job_id)
        return found

    @property
    def next_s(self) -> float | None:
        """Return when the next job's time is over, None if there is none; call after `over`."""
        return self._ends[0][0] if self._ends else None
