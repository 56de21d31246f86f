"""What strikes when a job has had its GPUs for so long: thresholds that a policy watches, and time limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from simsched.engine.clock import Appointment, Clock, Phase
from simsched.engine.job_record import TIME_LIMIT
from simsched.engine.ledger import Ledger, Lifecycle
from simsched.engine.state import JobState


@dataclass(eq=False)
class Watches(Lifecycle):
    """Has the policy told when the attained service of a job reaches a threshold."""

    _clock: Clock
    _on_threshold: Callable[[JobState], None]
    _gpu_ticks: dict[str, float] = field(default_factory=dict)
    _due: dict[str, Appointment] = field(default_factory=dict)

    def watch(self, job: JobState, attained_gpu_s: float) -> None:
        """Watch for a threshold, in place of the one before."""
        self._gpu_ticks[job.request.id] = threshold = self._clock.ticks(attained_gpu_s)
        if job.gpus:
            self.released(job)
            self._appoint(job, threshold)

    def placed(self, job: JobState) -> None:
        """Appoint when the threshold will be reached."""
        threshold = self._gpu_ticks.get(job.request.id)
        if threshold:
            self._appoint(job, threshold)

    def _appoint(self, job: JobState, threshold: float) -> None:
        missing = threshold - job.attained_gpu
        ticks = missing / job.gpus if self._clock.continuous else -(-missing // job.gpus)
        self._due[job.request.id] = self._clock.at(self._clock.now + ticks, Phase.THRESHOLD, partial(self._reach, job))

    def _reach(self, job: JobState) -> None:
        del self._gpu_ticks[job.request.id], self._due[job.request.id]
        self._on_threshold(job)

    def released(self, job: JobState) -> None:
        """Wait until the job has GPUs again."""
        due = self._due.pop(job.request.id, None)
        if due is not None:
            due.cancel()

    def completed(self, job: JobState) -> None:
        """Forget a job that is done."""
        self._gpu_ticks.pop(job.request.id, None)


@dataclass(eq=False)
class TimeLimits(Lifecycle):
    """Ends jobs that have had GPUs for as long as their time limit."""

    _clock: Clock
    _ledger: Ledger
    _due: dict[str, Appointment] = field(default_factory=dict)

    def placed(self, job: JobState) -> None:
        """Appoint the end of its time."""
        limit_s = job.request.time_limit_s
        if limit_s is not None:
            end = self._clock.now + max(self._clock.ticks(limit_s) + job.limit_from - job.settled_held, 0)
            self._due[job.request.id] = self._clock.at(
                end, Phase.FAILURE, partial(self._ledger.complete, job, TIME_LIMIT)
            )

    def released(self, job: JobState) -> None:
        """Stop counting."""
        due = self._due.pop(job.request.id, None)
        if due is not None:
            due.cancel()
