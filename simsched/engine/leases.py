"""Leases: agents grant run time, the clock ends it, a decision renews it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from simsched.engine.clock import Clock, Phase
from simsched.engine.ledger import Ledger, Lifecycle
from simsched.engine.state import JobState, Leasing


@dataclass(eq=False)
class Leases(Lifecycle):
    """Starts and ends leases, and reports when the last active one has ended."""

    _clock: Clock
    _ledger: Ledger
    _on_over: Callable[[], None]
    #: Jobs with an active or imminent lease.
    _leased: set[str] = field(default_factory=set)
    #: Jobs whose lease has ended and that hold their GPUs until the next decision.
    paused: dict[str, JobState] = field(default_factory=dict)

    def resumes(self, job: JobState) -> None:
        """Expect a lease for the job."""
        if job.leasing is not None:
            self._leased.add(job.request.id)

    def begins(self, job: JobState, ticks: float) -> bool:
        """Run the job for the time its agent grants."""
        leasing, now = job.leasing, self._clock.now
        if leasing is None:
            return False
        assert job.site is not None
        leasing.lease = leasing.agent.lease(job.site, job.progress, self._clock.now_s)
        leasing.began = now
        end = max(self._clock.ticks(leasing.lease.end_s), now)
        job.appointment = self._clock.at(end, Phase.PROGRESS, partial(self._end, job, leasing))
        return True

    def _end(self, job: JobState, leasing: Leasing, due: object) -> None:
        lease = leasing.lease
        assert lease is not None
        if leasing.began == self._clock.now:  # an idle lease still counts as a turn
            self._ledger.record_interval(job, job.progress)
        self._ledger.settle(job)
        job.progress = lease.progress(lease.end_s)
        job.running, job.appointment = None, None
        self.breaks(job)
        if lease.completes:
            self._ledger.complete(job)
        else:
            self.paused[job.request.id] = job
            leasing.paused = True
        if not self._leased:
            self._on_over()

    def breaks(self, job: JobState) -> None:
        """End a lease early."""
        if job.leasing is not None:
            job.leasing.lease = None
            self._leased.discard(job.request.id)

    def released(self, job: JobState) -> None:
        """Drop an ended lease."""
        if job.leasing is not None:
            job.leasing.paused = False
            self.paused.pop(job.request.id, None)

    def renew(self, cut_short: Iterable[JobState] = ()) -> None:
        """Resume jobs that kept their GPUs through a decision after their lease ended or was `cut_short`."""
        for job in cut_short:
            if job.leasing is not None and job.leasing.lease is not None:
                self._ledger.break_off(job)
        paused, self.paused = self.paused, {}
        for job in paused.values():
            assert job.leasing is not None
            job.leasing.paused = False
            if job.agent.stale:
                self._ledger.tune(job)
            self._ledger.resume(job, self._clock.now)
