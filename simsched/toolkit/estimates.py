"""Durations expected from finished jobs, as QSSF (Helios, SC'21), Horus and Lucid (ASPLOS'23) order their queues.

A job is expected to last as long as finished jobs of the same user, name and size; true durations of active jobs are
never read.
"""

from __future__ import annotations

import re
import statistics
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from simsched.errors import input_error
from simsched.policy import JobView, View

_DIGITS = re.compile(r"\d+")
_Key = tuple[str, ...]


@dataclass
class DurationHistory:
    """Durations of finished jobs by user, name and GPUs.

    An estimate is the mean of the last `window` durations of the most specific group that has any: user, name and GPUs;
    user and name; user and GPUs; user; GPUs; everybody. Before any job has finished, it is `prior_s`.
    """

    prior_s: float = 3600.0
    window: int = 100
    _groups: dict[_Key, deque[float]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.window < 1:
            raise input_error("window", f"is {self.window}", "give the number of durations kept, at least 1")

    def finished(self, user: str, name: str, gpus: int, duration_s: float) -> None:
        """Learn from a job that has just finished."""
        for key in _keys(user, name, gpus):
            self._groups.setdefault(key, deque(maxlen=self.window)).append(duration_s)

    def expected_s(self, user: str, name: str, gpus: int) -> float:
        """Return the expected duration of a job, in seconds."""
        found = (self._groups[key] for key in _keys(user, name, gpus) if key in self._groups)
        return next(map(statistics.fmean, found), self.prior_s)

    def gpu_time_gpu_s(self, user: str, name: str, gpus: int) -> float:
        """Return expected duration x GPUs: the key by which QSSF and Lucid serve jobs, smallest first."""
        return gpus * self.expected_s(user, name, gpus)


class LearnedDurations:
    """Durations learned from the jobs that have finished in this run.

    The application stands for a job's name. A duration is the time for which the job held GPUs.
    """

    def __init__(self, history: DurationHistory) -> None:
        """Store what the run teaches in `history`."""
        self._history = history
        self._running: dict[str, tuple[str, str, int, float]] = {}

    def learn(self, view: View) -> None:
        """Learn from the jobs that have finished since the last decision."""
        for job_id in view.finished:
            if job_id in self._running:
                user, name, gpus, began_s = self._running.pop(job_id)
                self._history.finished(user, name, gpus, view.now_s - began_s)

    def started(self, job: JobView, now_s: float) -> None:
        """Record that a job starts now, or resumes after a pause that does not count."""
        request = job.request
        self._running[job.id] = (request.user, request.application, request.num_gpus, now_s - job.held_s)

    def gpu_time_gpu_s(self, job: JobView) -> float:
        """Return the expected duration of a job times the GPUs that it asks for."""
        request = job.request
        return self._history.gpu_time_gpu_s(request.user, request.application, request.num_gpus)


def stem(name: str) -> str:
    """Return a job's name without its numbers: `train_01` and `train_02` are runs of the same job."""
    return _DIGITS.sub("#", name.strip().lower())


def _keys(user: str, name: str, gpus: int) -> Iterable[_Key]:
    size = str(gpus)
    if name:
        yield "user name gpus", user, stem(name), size
        yield "user name", user, stem(name)
    yield "user gpus", user, size
    yield "user", user
    yield "gpus", size
    yield ("all",)
