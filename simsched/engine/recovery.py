"""What a job can fall back to, and what failures have cost it.

A job that runs for the checkpoint interval pauses while it writes a checkpoint, which counts once it is written. One
that is preempted by plan saves its state too. Where a node is lost, or the job fails by itself, its progress falls back
to what was saved last. All times here are in ticks.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Protocol

from simsched.engine.clock import Clock
from simsched.model import AttemptPlan, Running


class Recoverable(Protocol):
    """The state of a job, as far as it can be saved and lost; the engine's own job state is one."""

    clock: Clock
    gpus: int
    running: Running | None
    rate: float
    progress: float
    epoch: int


@dataclass(slots=True, eq=False)
class Recovery:
    """The last checkpoint of one job, and what it has lost."""

    #: Ticks of running between checkpoints, infinite for none, and those that one takes.
    _interval: float
    cost: float
    #: How the job fails by itself, and the ticks that each attempt still runs.
    _plan: AttemptPlan
    _left: list[float]
    _attempt: int = 0
    _unsaved: float = 0
    _unsaved_gpu: float = 0
    #: Ticks spent on checkpoints.
    checkpointing: float = 0
    #: Whether a checkpoint is being written, and whether the next interruption is a failure of the job itself.
    writing: bool = False
    fails_next: bool = False
    #: The progress saved last, and its epoch.
    saved: float = 0.0
    saved_epoch: int = 0
    #: Running time whose progress was lost, the same in GPU-ticks, and the failures of nodes met.
    lost: float = 0
    lost_gpu: float = 0
    failures: int = 0

    @property
    def attempts(self) -> int:
        """Return how often the job was tried."""
        return self._attempt + 1

    @property
    def gives_up(self) -> bool:
        """Return whether the job ends with the attempt that has just failed."""
        return self._plan.gives_up and self._attempt == len(self._left) - 1

    @property
    def keeps(self) -> bool:
        """Return whether an attempt that fails by itself keeps its progress."""
        return self._plan.keeps

    def settle(self, job: Recoverable, ticks: float) -> None:
        """Take note of time passed in the way in which the job was until now."""
        if self.writing:
            self.checkpointing += ticks
        elif job.running is not None:
            self._unsaved += ticks
            self._unsaved_gpu += ticks * job.gpus
            if self._attempt < len(self._left):
                self._left[self._attempt] -= ticks * self._pace(job)

    def interruption(self, job: Recoverable) -> float:
        """Return the ticks until a checkpoint is due or the job fails by itself, whichever is first."""
        due = max(self._interval - self._unsaved, 0)
        failing = inf
        if self._attempt < len(self._left):
            failing = max(self._left[self._attempt] / self._pace(job), 0)
            if not job.clock.continuous:
                failing = round(failing)
        self.fails_next = failing <= due
        return min(due, failing)

    def save(self, job: Recoverable) -> None:
        """Save a job as it is."""
        self.writing = False
        self.saved, self.saved_epoch = job.progress, job.epoch
        self._unsaved = self._unsaved_gpu = 0

    def fall_back(self, job: Recoverable) -> None:
        """Set a job back to its last checkpoint."""
        self.writing = False
        self.lost += self._unsaved
        self.lost_gpu += self._unsaved_gpu
        self._unsaved = self._unsaved_gpu = 0
        job.progress, job.epoch = self.saved, self.saved_epoch

    def retry(self) -> None:
        """Begin another attempt."""
        self._attempt += 1

    def _pace(self, job: Recoverable) -> float:
        """Return how fast an attempt runs out: with the work of a job that is replayed, or with time."""
        return job.rate if self._plan.keeps else 1.0
