"""What ends or slows a job's run besides its epochs: leases, watched thresholds, time limits, shared uplinks.

Agents grant run time, the clock ends it, a decision renews it. Jobs whose exposed communication shares uplinks slow
each other down.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from simsched.engine.clock import Appointment, Phase
from simsched.engine.ledger import Ledger, Lifecycle
from simsched.engine.records import TIME_LIMIT, interval_record
from simsched.engine.state import JobState, Leasing
from simsched.model import Cluster
from simsched.model.cluster import Level
from simsched.model.placement import Tier
from simsched.model.plans import PlannedJob
from simsched.model.topology import Flow, shared_steps_s


@dataclass(eq=False)
class Leases(Lifecycle):
    """Starts and ends leases, and reports when the last active one has ended."""

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
        leasing, clock = job.leasing, self._ledger.clock
        if leasing is None:
            return False
        assert job.site is not None
        leasing.lease = leasing.agent.lease(job.site, job.progress, clock.now_s)
        leasing.began = clock.now
        end = max(clock.ticks(leasing.lease.end_s), clock.now)
        job.appointment = clock.at(end, Phase.PROGRESS, partial(self._end, job, leasing))
        return True

    def _end(self, job: JobState, leasing: Leasing, due: object) -> None:
        lease = leasing.lease
        assert lease is not None
        if leasing.began == self._ledger.clock.now:  # an idle lease still counts as a turn
            self._ledger.recorder.allocation(interval_record(job, job.progress, self._ledger.clock))
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
            self._ledger.resume(job, self._ledger.clock.now)


@dataclass(eq=False)
class _Dated(Lifecycle):
    """Events that are due only while a job holds GPUs."""

    _ledger: Ledger
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
        self._gpu_ticks[job.request.id] = threshold = self._ledger.clock.ticks(attained_gpu_s)
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
        clock = self._ledger.clock
        ticks = missing / job.gpus if clock.continuous else -(-missing // job.gpus)
        self._due[job.request.id] = clock.at(clock.now + ticks, Phase.THRESHOLD, partial(self._reach, job))

    def _reach(self, job: JobState, due: object) -> None:
        del self._gpu_ticks[job.request.id], self._due[job.request.id]
        self._on_threshold(job)

    def completed(self, job: JobState) -> None:
        """Drop a completed job."""
        self._gpu_ticks.pop(job.request.id, None)


@dataclass(eq=False)
class TimeLimits(_Dated):
    """Ends jobs that have held GPUs for their time limit."""

    def placed(self, job: JobState) -> None:
        """Schedule the end of the job's time."""
        limit_s = job.request.time_limit_s
        if limit_s is not None:
            clock = self._ledger.clock
            end = clock.now + max(clock.ticks(limit_s) + job.limit_from - job.settled_held, 0)
            self._due[job.request.id] = clock.at(end, Phase.FAILURE, partial(self._ledger.complete, job, TIME_LIMIT))


@dataclass(eq=False)
class Contention(Lifecycle):
    """Tracks which jobs use which uplinks, and sets the congestion of jobs whenever one starts, stops or changes."""

    _ledger: Ledger
    #: The flow of each job that holds GPUs, and the jobs on each uplink, in order of arrival.
    _flows: dict[str, Flow] = field(default_factory=dict)
    _users: dict[Hashable, dict[str, None]] = field(default_factory=dict)

    def resumes(self, job: JobState) -> None:
        """Record a job that is about to start, or to continue with another batch."""
        self._ledger.uplinks_changed[job.request.id] = None

    def released(self, job: JobState) -> None:
        """Forget a job's flow, and record the jobs that shared uplinks with it."""
        job.congestion = 0.0
        self._ledger.uplinks_changed.pop(job.request.id, None)
        self._forget(job.request.id)

    def _forget(self, job_id: str) -> None:
        flow = self._flows.pop(job_id, None)
        for _, links in flow.across if flow is not None else ():
            for link in links:
                users = self._users[link]
                del users[job_id]
                self._ledger.uplinks_changed.update(users)
                if not users:
                    del self._users[link]

    def settle(self) -> None:
        """Set the congestion of all jobs that share uplinks with one that changed, directly or through others."""
        if not self._ledger.uplinks_changed:
            return
        changed, self._ledger.uplinks_changed = self._ledger.uplinks_changed, {}
        for job_id in changed:
            self._enter(self._ledger.active[job_id])
        changed |= self._ledger.uplinks_changed
        met = list(dict.fromkeys(other for job_id in changed for other in self._around(job_id)))
        flows = [self._flows[job_id] for job_id in met]
        for job_id, flow, shared_s in zip(met, flows, shared_steps_s(flows), strict=True):
            self._ledger.slow_down(self._ledger.active[job_id], "congestion", 1 - flow.step_s / shared_s)
        self._ledger.uplinks_changed = {}  # resuming at another speed is not a change

    def _enter(self, job: JobState) -> None:
        flow = flow_of(job, self._ledger.cluster.cluster)
        if self._flows.get(job.request.id) == flow:
            return
        self._forget(job.request.id)
        self._flows[job.request.id] = flow
        for _, links in flow.across:
            for link in links:
                self._users.setdefault(link, {})[job.request.id] = None

    def _around(self, job_id: str) -> dict[str, None]:
        """Return a job and all jobs on which its flow depends."""
        around = {job_id: None}
        reached: set[Hashable] = set()
        for one in (todo := [job_id]):
            for link in (link for _, links in self._flows[one].across for link in links if link not in reached):
                reached.add(link)
                new = [other for other in self._users[link] if other not in around]
                around |= dict.fromkeys(new)
                todo += new
        return around


def flow_of(job: JobState, cluster: Cluster) -> Flow:
    """Return the flow of a job that holds GPUs: its step, and the seconds bound by each tier's uplinks."""
    site, batch = job.site, job.batch
    assert site is not None
    if isinstance(job.app, PlannedJob):
        parts = job.app.parts(site, batch)
        step_s, across = parts.total, parts.across if site.tiers else ()
    elif not batch.local_bsz or not _crossed(site.tiers, job.gpus):
        return Flow(1.0, ())
    else:  # its synchronisation waits for the narrowest tier that it crosses
        step = job.app.step_time(site, batch.local_bsz)
        step_s = step.step_s + batch.accum_steps * (step.step_s - step.sync_s)
        narrow = min(_crossed(site.tiers, job.gpus), key=lambda place: site.tiers[place].bytes_per_s)
        across = tuple(step.sync_s if place == narrow else 0.0 for place in range(len(site.tiers)))
    links = list(_uplinks(job, cluster))
    shared = [
        (exposed_s, links[place])
        for place, exposed_s in enumerate(across)
        if exposed_s and not site.tiers[place].inside
    ]
    return Flow(step_s, tuple(shared), job.route.level)


def _crossed(tiers: tuple[Tier, ...], gpus: int) -> list[int]:
    return [place for place, tier in enumerate(tiers) if not tier.inside and tier.largest < gpus]


def _uplinks(job: JobState, cluster: Cluster) -> Iterator[tuple[Hashable, ...]]:
    """Yield the uplinks that a job has on each tier, in the order of its site; none for single GPUs and islands."""
    for tier in cluster.within:
        yield () if tier.gpus else tuple((tier.name, node) for node, _ in job.allocation)
    for place, level in enumerate(cluster.levels):
        if level.uplink is not None:
            path = job.route.paths[place] if job.route.paths else _hashed(job.request.id, level)
            yield cluster.uplinks(job.allocation, place, path)


def _hashed(job_id: str, level: Level) -> int:
    """Return the path that a switch would choose without regard to load."""
    return zlib.crc32(f"{job_id} {level.name}".encode()) % level.paths
