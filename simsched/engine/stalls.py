"""Stops runs that would never end, because no events are left or events bring no progress."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from simsched.engine.errors import StalledError, StuckError
from simsched.engine.ledger import Ledger
from simsched.engine.state import JobState

#: Consecutive events tolerated without progress of any job, and how many more for each job. Events are starts of jobs
#: and requests of nodes, which every cycle of failures, restarts or node changes contains, but not waiting: a policy
#: may decide every second for years. Planned stops keep progress, so slow runs that preempt often do progress. The run
#: stops once failures have set back a job ten thousand times without progress of any other: of runs whose last job
#: needs a thousand attempts on average, this stops one in twenty thousand (e to the power of -10).
MOST_HAPPENINGS = 10_000
MOST_FOR_EACH_JOB = 100


class _Work(NamedTuple):
    """A job's work: in total, safe from failures, and a value that changes at each setback."""

    live: float
    saved: float
    losses: tuple[float, float]

    @staticmethod
    def of(job: JobState) -> _Work:
        saved, lost = (0.0, 0.0) if job.recovery is None else (job.recovery.saved, job.recovery.lost)
        return _Work(job.live_progress, saved, (job.limit_from, lost))

    def is_beyond(self, before: _Work) -> bool:
        """Return whether a job after a setback has saved more, or any other job has done more."""
        return self.saved > before.saved or (self.losses == before.losses and self.live > before.live)


@dataclass(eq=False)
class StallDetector:
    """Detects stalls: counts idle rounds, and samples the progress of active jobs.

    Tolerates fewer than `_most_idle` consecutive idle rounds, or any number within `pause_s` seconds.
    """

    _policy: str
    _ledger: Ledger
    _most_idle: int
    pause_s: float = 0.0
    #: Consecutive decisions at which nothing runs and nothing is pending.
    idle_rounds: int = 0
    _idle_from_s: float = 0.0
    _work: dict[str, _Work] = field(default_factory=dict)
    _passed: tuple[int, int] = (0, 0)
    _begin_s: float = 0
    _happened: int = 0
    _failed: int = 0

    def idle(self) -> None:
        """Count an idle round; raises `StuckError` past the limit."""
        if not self.idle_rounds:
            self._idle_from_s = self._ledger.clock.now_s
        self.idle_rounds += 1
        if self.idle_rounds >= self._most_idle and self._ledger.clock.now_s - self._idle_from_s >= self.pause_s:
            raise self.stuck()

    def stuck(self) -> StuckError:
        """Return the error that names the policy and the waiting jobs."""
        return StuckError(
            f"policy '{self._policy}' at t={self._ledger.clock.now_s} s: nothing runs and nothing is due to happen, "
            f"but {len(self._ledger.active)} jobs wait: {_named(self._ledger.active)}"
        )

    def look(self, submitted: int, finished: int) -> None:
        """Sample the jobs' progress once enough has happened; raises `StalledError` if there is none.

        `submitted` and `finished` count jobs since the start of the run.
        """
        clock, cluster = self._ledger.clock, self._ledger.cluster
        happened = cluster.job_starts + cluster.node_starts
        most = MOST_HAPPENINGS + MOST_FOR_EACH_JOB * len(self._ledger.active)
        if happened - self._happened <= most:
            return
        work = {job.request.id: _Work.of(job) for job in self._ledger.active.values()}
        if self._passed == (submitted, finished) and not any(
            done.is_beyond(self._work[job_id]) for job_id, done in work.items()
        ):
            raise self._stalled()
        self._work, self._passed = work, (submitted, finished)
        self._begin_s, self._happened, self._failed = clock.now_s, happened, cluster.failures

    def _stalled(self) -> StalledError:
        cluster, active = self._ledger.cluster, self._ledger.active
        starts = cluster.job_starts + cluster.node_starts - self._happened
        failed = cluster.failures - self._failed
        also = f" and nodes failed {failed} times" if failed else ""
        repeated = f"jobs were started or nodes asked for {starts} times{also}"
        return StalledError(
            f"policy '{self._policy}' at t={self._ledger.clock.now_s} s: since t={self._begin_s} s {repeated}, but "
            f"none of {len(active)} jobs has progressed, so that the run would not end: {_named(active)}"
        )


def _named(jobs: Iterable[str]) -> str:
    ids = list(jobs)
    return ", ".join(ids[:5]) + (f" and {len(ids) - 5} more" if len(ids) > 5 else "")
