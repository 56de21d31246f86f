"""Jobs that run in leases: their agents grant time, the clock ends it, and a decision renews it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from simsched.engine.clock import Clock, Phase
from simsched.engine.ledger import Ledger, Lifecycle
from simsched.engine.state import JobState, Leasing


@dataclass(eq=False)
class Leases(Lifecycle):
    """Begins and ends the leases of jobs whose agents grant some, and tells when the last one under way has ended."""

    _clock: Clock
    _ledger: Ledger
    _on_over: Callable[[], None]
    #: Jobs whose lease is under way or about to begin.
    _leased: set[str] = field(default_factory=set)
    #: Jobs whose lease has ended, and which hold their GPUs until the next decision.
    _paused: dict[str, JobState] = field(default_factory=dict)

    def resumes(self, job: JobState) -> None:
        """Expect a lease of the job."""
        if job.leasing is not None:
            self._leased.add(job.request.id)

    def begins(self, job: JobState, ticks: float) -> bool:
        """Let the job run for as long as its agent grants."""
        leasing, now = job.leasing, self._clock.now
        if leasing is None:
            return False
        assert job.site is not None
        leasing.lease = leasing.agent.lease(job.site, job.progress, self._clock.now_s)
        leasing.began = now
        end = max(self._clock.ticks(leasing.lease.end_s), now)
        job.appointment = self._clock.at(end, Phase.PROGRESS, partial(self._end, job, leasing))
        return True

    def _end(self, job: JobState, leasing: Leasing) -> None:
        lease = leasing.lease
        assert lease is not None
        if leasing.began == self._clock.now:  # it did nothing, and still was its job's turn
            self._ledger.record_interval(job, job.progress)
        self._ledger.settle(job)
        job.progress = lease.progress(lease.end_s)
        job.running, job.appointment = None, None
        self.breaks(job)
        if lease.completes:
            self._ledger.complete(job)
        else:
            self._paused[job.request.id] = job
            leasing.paused = True
        if not self._leased:
            self._on_over()

    def breaks(self, job: JobState) -> None:
        """End a lease before its time."""
        if job.leasing is not None:
            job.leasing.lease = None
            self._leased.discard(job.request.id)

    def released(self, job: JobState) -> None:
        """Forget a lease that has ended."""
        if job.leasing is not None:
            job.leasing.paused = False
            self._paused.pop(job.request.id, None)

    def renew(self, cut_short: Iterable[JobState] = ()) -> None:
        """Have jobs whose lease has ended or is `cut_short`, and which kept their GPUs through a decision, run on."""
        for job in cut_short:
            if job.leasing is not None and job.leasing.lease is not None:
                self._ledger.break_off(job)
        paused, self._paused = self._paused, {}
        for job in paused.values():
            assert job.leasing is not None
            job.leasing.paused = False
            if job.agent.stale:
                self._ledger.tune(job)
            self._ledger.resume(job, self._clock.now)
