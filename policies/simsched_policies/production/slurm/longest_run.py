"""The longest time for which a job may run, whatever it asked for: the MaxTime of Slurm's partitions."""

from __future__ import annotations

import heapq


class LongestRun:
    """When the jobs that run will have run for as long as any may."""

    def __init__(self, most_h: float | None) -> None:
        """Let jobs run for `most_h` hours at most (None: as long as they like)."""
        self.most_s = None if most_h is None else most_h * 3600
        self._ends: list[tuple[float, str]] = []
        self._end_of: dict[str, float] = {}

    def limit_s(self, asked_s: float) -> float:
        """Return the run time that a job is planned with that asked for one."""
        return asked_s if self.most_s is None else min(asked_s, self.most_s)

    def begin(self, job_id: str, now_s: float) -> None:
        """Note that a job begins to run."""
        if self.most_s is not None:
            self._end_of[job_id] = now_s + self.most_s
            heapq.heappush(self._ends, (now_s + self.most_s, job_id))

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
