"""The only writer of the state: places, releases, settles and completes jobs, and calls the recorder.

Progress is linear between breakpoints (end of epoch, new batch, new placement), where it is settled. As in the
published Pollux simulator, times round half to even, and progress snaps exactly to the end of the epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from math import inf
from typing import Literal

from simsched.agent import Measurement, UnlearningAgent
from simsched.engine.clock import Clock, Phase
from simsched.engine.errors import EngineError
from simsched.engine.records import JobRecord, JobRecorder, Recorder, interval_record, job_record
from simsched.engine.sharing import Neighbourhood, Sharing, check_memory, memory_mb
from simsched.engine.state import ClusterState, JobState, nodes_shared_by_distributed
from simsched.model import Allocation, BatchChoice, Site
from simsched.model.application import Running
from simsched.model.colocation import Guarantee
from simsched.model.placement import NOTHING
from simsched.model.plans import Plan
from simsched.model.topology import Route
from simsched.policy import Place
from simsched.policy.signals import Speed

#: Looked up for every start of a job, which takes an enumeration ten times as long as a module.
_PROGRESS, _RESUME = Phase.PROGRESS, Phase.RESUME


class Lifecycle:
    """Hooks into a job's life besides its epochs, called by the ledger: leases, failures, time limits."""

    def placed(self, job: JobState) -> None:
        """Handle a job that received GPUs."""

    def resumes(self, job: JobState) -> None:
        """Handle a job that is about to start, or to continue at another configuration."""

    def begins(self, job: JobState, ticks: float) -> bool:
        """Handle a job that starts running, with `ticks` to the end of its epoch (infinite while it is held back).

        Returns whether something else ends the run first.
        """
        return False

    def breaks(self, job: JobState) -> None:
        """Handle the end of a job's current configuration."""

    def released(self, job: JobState) -> None:
        """Handle a job that is about to lose its GPUs."""

    def completed(self, job: JobState) -> None:
        """Handle a completed job."""


#: The hooks of a lifecycle.
_HOOKS = tuple(name for name in vars(Lifecycle) if not name.startswith("_"))


class Ledger:
    """Changes jobs and cluster, exclusively."""

    def __init__(
        self,
        clock: Clock,
        cluster: ClusterState,
        recorder: Recorder,
        restart_delay_s: float,
        on_complete: Callable[[JobState, JobRecord], None],
    ) -> None:
        self.clock, self.cluster, self.recorder = clock, cluster, recorder
        #: The active jobs by id.
        self.active: dict[str, JobState] = {}
        self._keeps_intervals = not isinstance(recorder, JobRecorder)
        self._restart_delay = clock.ticks(restart_delay_s)
        self._on_complete = on_complete
        #: The hooks besides the jobs' epochs.
        self.lifecycles: list[Lifecycle] = []
        self._hearing: dict[str, list[Lifecycle]] = {hook: [] for hook in _HOOKS}
        #: Jobs whose agent may choose another batch now, in the order they became stale.
        self.stale: dict[str, JobState] = {}
        #: With shared GPUs: speeds next to neighbours, and the jobs whose neighbours changed.
        self.neighbourhood: Neighbourhood | None = None
        #: With shared uplinks: slows down the jobs that meet there.
        self.share_uplinks: Callable[[], None] | None = None
        #: The jobs whose use of uplinks has changed.
        self.uplinks_changed: dict[str, None] = {}
        self._disturbed: dict[str, JobState] = {}

    def tell(self, lifecycle: Lifecycle, *, first: bool = False) -> None:
        """Register a lifecycle, called after the others unless `first`."""
        if lifecycle in self.lifecycles:
            return
        self.lifecycles.insert(0 if first else len(self.lifecycles), lifecycle)
        for hook, hearing in self._hearing.items():  # no-op hooks would cost 2 % of a long trace
            hearing[:] = [one for one in self.lifecycles if getattr(type(one), hook) is not getattr(Lifecycle, hook)]

    def release(self, job: JobState) -> None:
        """Take a job's GPUs away, keeping its progress and its agent's knowledge."""
        if job.since != self.clock.now:
            self.settle(job)
        if self.neighbourhood is not None:
            self._disturb(job)
        self.cluster.give_back(job.request.id, job.allocation)
        if job.request.shape is not None:
            self.cluster.count_beside(job.request.shape, job.allocation, -1)
        if job.appointment is not None:
            job.appointment.callbacks = []
        for lifecycle in self.lifecycles:
            lifecycle.breaks(job)
            lifecycle.released(job)
        job.allocation, job.site, job.gpus, job.running, job.appointment = NOTHING, None, 0, None, None
        if self.neighbourhood is not None:
            job.speed, job.gpu_share, job.neighbours = 1.0, 1.0, ()

    def evict(self, job: JobState) -> None:
        """Take a job's GPUs away without notice; progress falls back to the last checkpoint."""
        assert job.recovery is not None
        self.settle(job)
        job.recovery.fall_back(job)
        self.release(job)

    def begin_anew(self, job: JobState) -> None:
        """Evict a job and restart its time limit, from its last checkpoint or from the beginning."""
        if job.recovery is not None:
            self.evict(job)
        else:
            self.release(job)
            job.progress, job.epoch = 0.0, 0
        job.limit_from = job.settled_held

    def place(
        self,
        job: JobState,
        allocation: Allocation,
        beside: Collection[str] = (),
        onto: str | None = None,
        plan: Plan | None = None,
    ) -> None:
        """Give GPUs to a job that holds none; it runs after the restart delay, with a plan or as its agent chooses."""
        now = self.clock.now
        job.allocation = allocation
        job.site, job.gpus, job.nodes = self.cluster.take(job.request.id, allocation, beside, onto)
        if job.request.shape is not None:
            self.cluster.count_beside(job.request.shape, allocation, 1)
        job.since = now
        job.starts += 1
        if job.first_start is None:
            job.first_start = now
        delay = self._restart_delay
        if not job.plain:
            own_s = job.app.restart_delay_s if job.starts > 1 else job.app.start_delay_s
            delay = delay if own_s is None else self.clock.ticks(own_s)
            job.plan = plan
            self.tune(job)
            if self.neighbourhood is None and job.facts.memory is not None:
                check_memory(job, self.cluster.cluster, memory_mb(job))
        if job.plain and not delay:  # at this instant, this is indistinguishable from a start after the decision
            self.begin(job)
        else:
            self.resume(job, now + delay)
        for lifecycle in self._hearing["placed"]:
            lifecycle.placed(job)

    def settle(self, job: JobState) -> None:
        """Update service and progress to now, and record the interval that ends here."""
        now = self.clock.now
        ticks = now - job.since
        if not ticks or not job.allocation:
            return
        begin = job.progress
        if job.running is not None:
            job.progress = begin + job.rate * (ticks * self.clock.unit_s) if job.plain else job.live_progress
        elif not job.paused:
            job.restart += ticks
        if job.recovery is not None:
            job.recovery.settle(job, ticks)
        if self._keeps_intervals:
            self.recorder.allocation(interval_record(job, begin, self.clock))
        job.settled_held += ticks
        job.settled_gpu += ticks * job.gpus
        job.since = now

    def retune(self, job: JobState) -> None:
        """Let the agent choose another batch for the current placement."""
        if job.running is None or not job.agent.stale:
            return
        batch = self._chosen(job)
        if batch != job.batch:
            self.break_off(job)
            job.batch = batch
            self._disturb(job)

    def retune_stale(self) -> None:
        """Let the agents of stale jobs choose their batch."""
        if self.stale:
            for job in self.stale.values():
                self.retune(job)
            self.stale.clear()
            if self.share_uplinks is not None:
                self.share_uplinks()

    def interfere(self, active: Collection[JobState], interference: float) -> None:
        """Slow down distributed jobs that share a node with another, and only these."""
        jobs = [job for job in active if job.allocation]
        shared = nodes_shared_by_distributed(jobs)
        for job in jobs:
            touched = len(job.allocation) > 1 and any(node in shared for node, _ in job.allocation)
            self.slow_down(job, "interference", interference if touched else 0.0)

    def agree(self, job: JobState, place: Place) -> None:
        """Set what the terms of a place say of a job's guarantee and of its communication."""
        guarantee, route = place.term(Guarantee), place.term(Route)
        if guarantee is not None:
            job.first, job.guaranteed = True, job.guaranteed if guarantee.kept is None else guarantee.kept
        if route is not None and route != job.route:
            job.route = route
            if job.allocation:
                self.uplinks_changed[job.request.id] = None

    def slow_down(self, job: JobState, by: Literal["interference", "congestion"], share: float) -> None:
        """Set the share of its speed that a job loses to others on its nodes or on its uplinks."""
        if getattr(job, by) != share:
            if job.running is not None:
                self.break_off(job)
            setattr(job, by, share)

    def _set_sharing(self, job: JobState, sharing: Sharing) -> None:
        # A lease that ends at this instant is over, not cut short by a neighbour that ended a moment before.
        lease = None if job.leasing is None else job.leasing.lease
        over = lease is not None and self.clock.ticks(lease.end_s) <= self.clock.now
        if sharing.speed != job.speed and job.running is not None and not over:
            self.break_off(job)
        elif sharing != (job.neighbours, job.gpu_share, job.speed):
            self.settle(job)
        job.neighbours, job.gpu_share, job.speed = sharing

    def set_speeds(self) -> None:
        """Update the speeds of jobs with new neighbours; raises `EngineError` if they run out of memory."""
        if self.share_uplinks is not None:
            self.share_uplinks()
        if not self._disturbed:
            return
        disturbed, self._disturbed = self._disturbed, {}
        for job in disturbed.values():
            if job.site is not None and self.neighbourhood is not None:
                self._set_sharing(job, self.neighbourhood.look(job))
                check_memory(job, self.cluster.cluster, self.neighbourhood.memory_mb(job))

    def _disturb(self, job: JobState) -> None:
        """Mark a job and its neighbours for new speeds."""
        if self.neighbourhood is not None:
            self._disturbed |= self.neighbourhood.around(job)

    def break_off(self, job: JobState) -> None:
        """End the current configuration; the next starts after this instant's decision."""
        self.settle(job)
        if job.appointment is not None:
            job.appointment.callbacks = []
        job.running = job.appointment = None
        for lifecycle in self._hearing["breaks"]:
            lifecycle.breaks(job)
        self.resume(job, self.clock.now)

    def resume(self, job: JobState, time: float, *, last: bool = False) -> None:
        """Schedule a job to run at a tick, after that instant's decision; `last` means that nothing else is due.

        The job then starts at once if the instant has no further event, since its own would be the next.
        """
        for lifecycle in self._hearing["resumes"]:
            lifecycle.resumes(job)
        if last and self.clock.quiet:
            self.begin(job)
            return
        job.appointment = self.clock.at(time, Phase.RESUME, partial(self.begin, job))

    def begin(self, job: JobState, due: object = None) -> None:
        """Start running, or continue at another configuration."""
        now = self.clock.now
        if job.since != now:
            self.settle(job)
        site = job.site
        assert site is not None
        job.running = running = job.app.run(site, job.batch, job.epoch)
        job.rate = running.rate
        if not job.plain:
            self._measure(job, site, running)
            job.epoch_end = job.app.epoch_end(job.epoch)
        job.since = now
        # Rounding may carry progress past the end; at a lower rate that would lie ticks ago.
        left = job.epoch_end - job.progress
        missing = (left if left > 0 else 0.0) / job.rate if job.rate else inf
        if self.clock.scale is not None:
            missing /= self.clock.scale
        whole = missing if self.clock.continuous or missing == inf else round(missing)
        for lifecycle in self._hearing["begins"]:
            if lifecycle.begins(job, whole):
                return
        if whole == inf:  # held back by its neighbours: the next to leave resumes it
            job.appointment = None
            return
        phase = _PROGRESS if missing <= whole else _RESUME
        job.appointment = self.clock.at(now + whole, phase, partial(self._end_epoch, job))

    def _measure(self, job: JobState, site: Site, running: Running) -> None:
        """Report the job's performance to the agent, and slow the job down by its neighbours."""
        step, gradient = running.step, running.gradient
        if step is not None and gradient is not None and not isinstance(job.agent, UnlearningAgent):
            job.agent.observe(Measurement(site, job.batch.local_bsz, step, gradient, job.epoch))
            if job.agent.stale:
                self.stale[job.request.id] = job
        if job.speeds is not None:
            job.speeds[site] = _speed(job, running)
        job.rate *= (1 - job.interference) * job.speed
        if job.slow != 1 or job.congestion:
            job.rate *= job.slow * (1 - job.congestion)

    def _end_epoch(self, job: JobState, due: object) -> None:
        self.settle(job)
        job.progress = job.epoch_end
        job.epoch += 1
        job.running = None
        job.appointment = None
        if job.epoch >= job.app.epochs:
            self.complete(job)
            return
        if job.agent.stale:
            self.tune(job)
            self.set_speeds()
        self.resume(job, self.clock.now, last=True)

    def tune(self, job: JobState) -> None:
        """Let the agent choose the batch of a running or starting job."""
        job.batch = self._chosen(job)
        self._disturb(job)

    @staticmethod
    def _chosen(job: JobState) -> BatchChoice:
        """Ask the agent for a batch, unless a plan was named, and reject one that the application does not accept."""
        assert job.site is not None
        if job.plan is not None and job.facts.plans is not None:
            return BatchChoice.of_plan(job.plan, job.request.batch_size or job.facts.plans.global_batch)
        try:
            batch = job.agent.choose(job.site, job.epoch)
        except ValueError as error:
            if job.facts.plans is None:
                raise
            raise EngineError(f"job {job.request.id} cannot run on {job.gpus} GPUs: {error}") from error
        limits = job.app.limits
        if limits is not None and not limits.min_local_bsz <= batch.local_bsz <= limits.max_local_bsz:
            message = (
                f"job {job.request.id} ({job.app.name}) cannot run on {job.gpus} GPUs: a batch of {batch.local_bsz} "
                f"per GPU lies outside {limits.min_local_bsz} to {limits.max_local_bsz}"
            )
            raise EngineError(message)
        return batch

    def complete(self, job: JobState, status: str = "", due: object = None) -> None:
        """Complete a job now, in the given final state (empty: its true one)."""
        if job.allocation:
            self.release(job)
        if self._disturbed or self.share_uplinks is not None:
            self.set_speeds()
        if self.stale:
            self.stale.pop(job.request.id, None)
        for lifecycle in self._hearing["completed"]:
            lifecycle.completed(job)
        record = job_record(job, status or job.truth.status)
        self.recorder.job(record)
        self._on_complete(job, record)


def _speed(job: JobState, running: Running) -> Speed:
    """Return the speed a job measures, with the effect of its neighbours."""
    throughput = running.throughput * job.undisturbed
    iteration_s = job.batch.total(job.gpus) / throughput if throughput else 0.0
    return Speed(throughput, iteration_s, running.rate * job.undisturbed)
