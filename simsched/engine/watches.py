"""Events after a time with GPUs: watched thresholds of service, and time limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from simsched.engine.clock import Appointment, Clock, Phase
from simsched.engine.ledger import Ledger, Lifecycle
from simsched.engine.rows import TIME_LIMIT
from simsched.engine.state import JobState


@dataclass(eq=False)
class _Dated(Lifecycle):
    """Events that are due only while a job holds GPUs."""

    _clock: Clock
    _due: dict[str, Appointment] = field(default_factory=dict, init=False)

    def released(self, job: JobState) -> None:
        """Pause until the job has GPUs again."""
        due = self._due.pop(job.request.id, None)
        if due is not None:
            due.callbacks = []


@dataclass(eq=False)
class Watches(_Dated):
    """Notifies the policy when a job's attained service reaches a threshold."""

    _on_threshold: Callable[[JobState], None]
    _gpu_ticks: dict[str, float] = field(default_factory=dict, init=False)

    def watch(self, job: JobState, attained_gpu_s: float) -> None:
        """Watch a threshold, replacing the previous one."""
        self._gpu_ticks[job.request.id] = threshold = self._clock.ticks(attained_gpu_s)
        if job.allocation:
            self.released(job)
            self._appoint(job, threshold)

    def placed(self, job: JobState) -> None:
        """Schedule the threshold."""
        threshold = self._gpu_ticks.get(job.request.id)
        if threshold:
            self._appoint(job, threshold)

    def _appoint(self, job: JobState, threshold: float) -> None:
        if not job.gpus:
            return  # without GPUs it attains no service
        missing = threshold - job.attained_gpu
        ticks = missing / job.gpus if self._clock.continuous else -(-missing // job.gpus)
        self._due[job.request.id] = self._clock.at(self._clock.now + ticks, Phase.THRESHOLD, partial(self._reach, job))

    def _reach(self, job: JobState, due: object) -> None:
        del self._gpu_ticks[job.request.id], self._due[job.request.id]
        self._on_threshold(job)

    def completed(self, job: JobState) -> None:
        """Drop a completed job."""
        self._gpu_ticks.pop(job.request.id, None)


@dataclass(eq=False)
class TimeLimits(_Dated):
    """Ends jobs that have held GPUs for their time limit."""

    _ledger: Ledger

    def placed(self, job: JobState) -> None:
        """Schedule the end of the job's time."""
        limit_s = job.request.time_limit_s
        if limit_s is not None:
            end = self._clock.now + max(self._clock.ticks(limit_s) + job.limit_from - job.settled_held, 0)
            self._due[job.request.id] = self._clock.at(
                end, Phase.FAILURE, partial(self._ledger.complete, job, TIME_LIMIT)
            )
