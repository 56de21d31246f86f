"""Checkpoints of a job, and what failures cost it. Times are in ticks.

A job pauses for a checkpoint at intervals of running, and planned preemption saves too. When a node or the job fails,
progress falls back to the last completed save.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Protocol

from simsched.engine.clock import Clock
from simsched.model.application import Running
from simsched.model.outages import AttemptPlan


class Recoverable(Protocol):
    """The part of a job's state that can be saved and lost."""

    clock: Clock
    gpus: int
    running: Running | None
    rate: float
    progress: float
    epoch: int


@dataclass(slots=True, eq=False)
class Recovery:
    """The last checkpoint of a job, and its losses."""

    #: Ticks of running between checkpoints (infinite for none), and the ticks each takes.
    _interval: float
    cost: float
    #: The failures of the job itself, and the remaining ticks of each attempt.
    plan: AttemptPlan
    _left: list[float]
    #: The attempts that have failed.
    attempt: int = 0
    _unsaved: float = 0
    _unsaved_gpu: float = 0
    #: Ticks spent on checkpoints.
    checkpointing: float = 0
    #: Whether a checkpoint is being written, and whether the next interruption is a failure of the job itself.
    writing: bool = False
    fails_next: bool = False
    #: The last saved progress and its epoch.
    saved: float = 0.0
    saved_epoch: int = 0
    #: Lost running time in ticks and in GPU-ticks, and the node failures met.
    lost: float = 0
    lost_gpu: float = 0
    failures: int = 0

    @property
    def gives_up(self) -> bool:
        """Return whether the attempt that just failed was the last."""
        return self.plan.gives_up and self.attempt == len(self._left) - 1

    def settle(self, job: Recoverable, ticks: float) -> None:
        """Account for time passed in the current configuration."""
        if self.writing:
            self.checkpointing += ticks
        elif job.running is not None:
            self._unsaved += ticks
            self._unsaved_gpu += ticks * job.gpus
            if self.attempt < len(self._left):
                self._left[self.attempt] -= ticks * self._pace(job)

    def interruption(self, job: Recoverable) -> float:
        """Return the ticks until the next checkpoint or own failure."""
        due = max(self._interval - self._unsaved, 0)
        failing = inf
        if self.attempt < len(self._left):
            failing = max(self._left[self.attempt] / self._pace(job), 0)
            if not job.clock.continuous:
                failing = round(failing)
        self.fails_next = failing <= due
        return min(due, failing)

    def save(self, job: Recoverable) -> None:
        """Save a job's current progress."""
        self.writing = False
        self.saved, self.saved_epoch = job.progress, job.epoch
        self._unsaved = self._unsaved_gpu = 0

    def fall_back(self, job: Recoverable) -> None:
        """Roll a job back to its last checkpoint."""
        self.writing = False
        self.lost += self._unsaved
        self.lost_gpu += self._unsaved_gpu
        self._unsaved = self._unsaved_gpu = 0
        job.progress, job.epoch = self.saved, self.saved_epoch

    def _pace(self, job: Recoverable) -> float:
        """Return the rate at which an attempt runs out: that of a replayed job's work, or of time."""
        return job.rate if self.plan.keeps else 1.0
