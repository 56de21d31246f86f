"""Priority levels by attained service, with a way back up against starvation (Tiresias, sections 3.2 and 3.3)."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import count, pairwise
from math import ceil

from simsched.policy import JobView, View


class _Standing:
    __slots__ = ("base_gpu_s", "base_held_s", "level", "version")

    def __init__(self) -> None:
        self.level = 0
        self.base_gpu_s: float = 0
        self.base_held_s: float = 0
        self.version = 0


class Levels:
    """The level of every active job: 0 for a new one, plus one for each limit that its service reaches.

    `limits_gpu_s` are the ascending limits between levels, in GPU-seconds. With `promote_knob`, a job that has waited
    `promote_knob` times as long as it has run returns to level 0, with service and time reset to 0.
    """

    def __init__(self, limits_gpu_s: Sequence[int], promote_knob: float | None) -> None:
        """Start without jobs; raises `ValueError` for limits or a knob out of range."""
        limits = list(limits_gpu_s)
        if any(low >= high for low, high in pairwise([0, *limits])):
            raise ValueError(f"queue_thresholds_gpu_s must be positive and ascending, not {limits}")
        if promote_knob is not None and not 0 < promote_knob < float("inf"):
            raise ValueError(f"promote_knob must be above 0, or none to switch promotion off, not {promote_knob}")
        self.limits_gpu_s = limits
        self._knob = promote_knob
        self._standings: dict[str, _Standing] = {}
        self._due: list[tuple[float, int, str]] = []
        self._versions = count(1)

    @property
    def promotes(self) -> bool:
        """Return whether jobs that have waited return to level 0."""
        return self._knob is not None

    def __contains__(self, job_id: str) -> bool:
        """Return whether a job is known."""
        return job_id in self._standings

    def enter(self, job_id: str) -> None:
        """Take in a new job."""
        self._standings[job_id] = _Standing()

    def leave(self, job_id: str) -> None:
        """Forget a job."""
        self._standings.pop(job_id, None)

    def level(self, job_id: str) -> int:
        """Return the level of a job."""
        return self._standings[job_id].level

    def counted_gpu_s(self, job_id: str, attained_gpu_s: float) -> float:
        """Return the service that counts: what was attained since the last promotion."""
        return attained_gpu_s - self._standings[job_id].base_gpu_s

    def limit_gpu_s(self, job_id: str) -> float | None:
        """Return the attained service at which a job drops a level, None on the last."""
        standing = self._standings[job_id]
        if standing.level == len(self.limits_gpu_s):
            return None
        return standing.base_gpu_s + self.limits_gpu_s[standing.level]

    def demote(self, job_id: str, attained_gpu_s: float) -> bool:
        """Lower a job to the level of its service, and return whether that changed it."""
        standing = self._standings[job_id]
        before = standing.level
        counted = attained_gpu_s - standing.base_gpu_s
        while standing.level < len(self.limits_gpu_s) and counted >= self.limits_gpu_s[standing.level]:
            standing.level += 1
        return standing.level != before

    def started(self, job_id: str) -> None:
        """Record that a job runs and no longer waits."""
        self._standings[job_id].version = 0

    def stopped(self, job_id: str, now_s: float, held_s: float) -> None:
        """Record that a job that has held GPUs for `held_s` seconds starts to wait."""
        standing = self._standings[job_id]
        if self._knob is None or not standing.level:
            return
        standing.version = next(self._versions)
        patience_s = max(1, ceil(self._knob * (held_s - standing.base_held_s)))
        heapq.heappush(self._due, (now_s + patience_s, standing.version, job_id))

    def _promoted(self, now_s: float) -> list[str]:
        ready: list[str] = []
        while (due_s := self.next_promotion_s()) is not None and due_s <= now_s:
            job_id = heapq.heappop(self._due)[2]
            self._standings[job_id].version = 0
            ready.append(job_id)
        return ready

    def promote_all(self, view: View) -> list[str]:
        """Lift the jobs that have waited long enough to level 0 with a clean slate, and return them."""
        lifted = self._promoted(view.now_s)
        for job_id in lifted:
            standing, job = self._standings[job_id], view.jobs[job_id]
            standing.level = 0
            standing.base_gpu_s, standing.base_held_s = job.attained_gpu_s, job.held_s
        return lifted

    def next_promotion_s(self) -> float | None:
        """Return when the next job will have waited long enough, None if there is none."""
        while self._due:
            due_s, version, job_id = self._due[0]
            standing = self._standings.get(job_id)
            if standing is not None and standing.version == version:
                return due_s
            heapq.heappop(self._due)
        return None


def start_order(job: JobView, *, runs: bool) -> tuple[float, float]:
    """Order jobs of one level: those that have run before those that have not, by first start then by arrival.

    `runs` marks a job that starts now, which the view shows only after the decision.
    """
    first_s = job.first_start_s
    if first_s is not None:
        return (0, first_s)
    return (0, job.request.submit_time_s + job.age_s) if runs else (1, job.request.submit_time_s)
