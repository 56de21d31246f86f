"""What has happened to jobs since the policy was last asked."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from simsched.engine.live_view import LiveView
from simsched.engine.state import JobState


class News:
    """Jobs that arrived, are gone, have reached a threshold or were lost since the last decision."""

    __slots__ = ("_arrived", "_gone", "_lost", "_reached")

    def __init__(self) -> None:
        """Start with nothing to tell."""
        self._arrived: list[JobState] = []
        self._gone: list[str] = []
        self._reached: dict[str, JobState] = {}
        self._lost: dict[str, JobState] = {}

    def arrive(self, job: JobState) -> None:
        """Note a job that was submitted."""
        self._arrived.append(job)

    def go(self, job_id: str) -> None:
        """Note a job that has ended; nothing else is told of it."""
        self._reached.pop(job_id, None)
        self._lost.pop(job_id, None)
        self._gone.append(job_id)

    def reach(self, job: JobState) -> None:
        """Note a job that has attained the service watched for."""
        self._reached[job.request.id] = job

    def lose(self, jobs: Iterable[JobState]) -> None:
        """Note jobs that lost their GPUs without the policy's doing."""
        self._lost.update((job.request.id, job) for job in jobs)

    def tell(self, view: LiveView, active: Collection[str]) -> None:
        """Show it all in a view, without arrivals that are no longer `active`, and begin anew."""
        view.arrived = [job.view for job in self._arrived if job.request.id in active] if self._arrived else ()
        view.finished = self._gone
        view.reached_threshold = [job.view for job in self._reached.values()] if self._reached else ()
        view.lost = [job.view for job in self._lost.values()] if self._lost else ()
        self._arrived, self._gone = [], []
        if self._reached:
            self._reached = {}
        if self._lost:
            self._lost = {}
