"""The one writer of the state: places, releases, settles and completes jobs, and tells the recorder.

Within a job, progress is linear between breakpoints (the end of an epoch, another batch, another placement) and is
settled before anything changes it. An estimated time is rounded half to even to a whole second while progress snaps to
the end of the epoch exactly, as in the published Pollux simulator.
"""

from __future__ import annotations

from collections.abc import Callable

from simsched.agent.agent import Measurement
from simsched.engine.clock import Clock, Phase
from simsched.engine.errors import EngineError
from simsched.engine.records import AllocationRecord, JobRecord, Recorder
from simsched.engine.state import ClusterState, JobState, gpu_type_of
from simsched.model.application import NO_BATCH, BatchChoice, Running
from simsched.model.placement import NOTHING, Allocation, Site, describe, gpus_of, shape_of
from simsched.policy.signals import Speed


class Ledger:
    """Changes jobs and cluster; nothing else does."""

    def __init__(
        self,
        clock: Clock,
        cluster: ClusterState,
        recorder: Recorder,
        restart_delay_s: int,
        on_complete: Callable[[JobState, JobRecord], None],
        on_threshold: Callable[[JobState], None],
    ) -> None:
        """Write to `cluster` and `recorder`; report completed jobs and those that reached a threshold."""
        self._clock = clock
        self._cluster = cluster
        self._recorder = recorder
        self._restart_delay_s = restart_delay_s
        self._on_complete = on_complete
        self._on_threshold = on_threshold
        #: Jobs whose agent might choose another batch now, in the order in which they came to be.
        self.stale: dict[str, JobState] = {}

    def release(self, job: JobState) -> None:
        """Take a job's GPUs away; its progress and its agent's knowledge stay."""
        self.settle(job)
        self._cluster.give_back(job.allocation)
        self._cancel(job)
        job.allocation, job.site, job.gpus, job.running = NOTHING, None, 0, None
        if job.watch is not None:
            job.watch.cancel()
            job.watch = None

    def place(self, job: JobState, allocation: Allocation) -> None:
        """Give a job that holds nothing its GPUs; it begins to run after the restart delay."""
        now = self._clock.now_s
        gpu_type = gpu_type_of(self._cluster.cluster, allocation)
        if gpu_type is None:
            message = f"job {job.request.id} was given GPUs of several types: {describe(allocation)}"
            raise EngineError(message)
        self._cluster.take(allocation)
        job.allocation, job.site = allocation, Site(shape_of(allocation), gpu_type)
        job.gpus = gpus_of(allocation)
        job.since_s = now
        job.starts += 1
        if job.first_start_s is None:
            job.first_start_s = now
        delay = job.app.restart_delay_s if job.starts > 1 else job.app.start_delay_s
        self._tune(job)
        self._resume(job, now + (self._restart_delay_s if delay is None else delay))
        if job.watch_gpu_s:
            self._watch(job)

    def settle(self, job: JobState) -> None:
        """Bring service and progress of a job up to this instant, and record the interval that ends here."""
        now = self._clock.now_s
        seconds = now - job.since_s
        if not job.gpus or not seconds:
            return
        begin = job.progress
        if job.running is not None:
            job.progress += job.rate * seconds
        else:
            job.restart_s += seconds
        self._record_interval(job, begin)
        job.settled_held_s += seconds
        job.settled_gpu_s += seconds * job.gpus
        job.since_s = now

    def retune(self, job: JobState) -> None:
        """Let the agent choose the batch anew for the placement that the job has."""
        if job.running is None or not job.agent.stale:
            return
        batch = self._chosen(job)
        if batch != job.batch:
            self._break(job)
            job.batch = batch

    def slow_down(self, job: JobState, slowdown: float) -> None:
        """Set the share of its speed that a job loses to its neighbours."""
        if job.slowdown != slowdown:
            if job.running is not None:
                self._break(job)
            job.slowdown = slowdown

    def watch(self, job: JobState, attained_gpu_s: int) -> None:
        """Have the policy told when a job's attained service reaches a threshold."""
        job.watch_gpu_s = attained_gpu_s
        if job.gpus:
            self._watch(job)

    def _watch(self, job: JobState) -> None:
        if job.watch is not None:
            job.watch.cancel()
        missing = job.watch_gpu_s - job.attained_gpu_s
        time_s = self._clock.now_s + -(-missing // job.gpus)
        job.watch = self._clock.at(time_s, Phase.THRESHOLD, lambda: self._reach(job))

    def _reach(self, job: JobState) -> None:
        job.watch_gpu_s = 0
        job.watch = None
        self._on_threshold(job)

    def _break(self, job: JobState) -> None:
        """End the current way of running; the next begins after this instant's decision."""
        self.settle(job)
        self._cancel(job)
        job.running = None
        self._resume(job, self._clock.now_s)

    def _resume(self, job: JobState, time_s: int) -> None:
        """Have a job begin to run at a second, after the decision of that instant."""
        job.appointment = self._clock.at(time_s, Phase.RESUME, lambda: self._begin(job))

    def _begin(self, job: JobState) -> None:
        """Start to run, or run on in another way."""
        self.settle(job)
        now = self._clock.now_s
        site = job.site
        assert site is not None
        running = job.app.run(site, job.batch, job.epoch)
        if running.step is not None and running.gradient is not None:
            job.agent.observe(Measurement(site, job.batch.local_bsz, running.step, running.gradient, job.epoch))
            if job.agent.stale:
                self.stale[job.request.id] = job
        if job.speeds is not None:
            job.speeds[site] = _speed(job, running)
        job.running = running
        job.rate = running.rate * (1 - job.slowdown)
        job.since_s = now
        missing_s = (job.app.epoch_end(job.epoch) - job.progress) / job.rate
        whole_s = round(missing_s)
        phase = Phase.PROGRESS if missing_s <= whole_s else Phase.RESUME
        job.appointment = self._clock.at(now + whole_s, phase, lambda: self._end_epoch(job))

    def _end_epoch(self, job: JobState) -> None:
        self.settle(job)
        job.progress = job.app.epoch_end(job.epoch)
        job.epoch += 1
        job.running = None
        job.appointment = None
        if job.epoch >= job.app.epochs:
            self._complete(job)
            return
        if job.agent.stale:
            self._tune(job)
        self._resume(job, self._clock.now_s)

    def _tune(self, job: JobState) -> None:
        job.batch = self._chosen(job)

    @staticmethod
    def _chosen(job: JobState) -> BatchChoice:
        """Ask the agent for a batch, and refuse one that the application does not accept."""
        assert job.site is not None
        batch = job.agent.choose(job.site, job.epoch)
        limits = job.app.limits
        if limits is not None and not limits.min_local_bsz <= batch.local_bsz <= limits.max_local_bsz:
            message = (
                f"job {job.request.id} ({job.app.name}) cannot run on {job.gpus} GPUs: a batch of {batch.local_bsz} per "
                f"GPU lies outside {limits.min_local_bsz} to {limits.max_local_bsz}"
            )
            raise EngineError(message)
        return batch

    def _complete(self, job: JobState) -> None:
        now = self._clock.now_s
        self.release(job)
        spec = job.request
        self.stale.pop(spec.id, None)
        jct = now - spec.submit_time_s
        record = JobRecord(
            job_id=spec.id,
            application=spec.application,
            tenant=spec.tenant,
            user=spec.user,
            status=job.truth.status,
            num_gpus=spec.num_gpus,
            batch_size=spec.batch_size,
            submit_time_s=spec.submit_time_s,
            start_time_s=now if job.first_start_s is None else job.first_start_s,
            end_time_s=now,
            jct_s=jct,
            held_s=job.settled_held_s,
            queueing_s=jct - job.settled_held_s,
            restart_s=job.restart_s,
            attained_gpu_s=job.settled_gpu_s,
            restarts=max(job.starts - 1, 0),
        )
        self._recorder.job(record)
        self._on_complete(job, record)

    def _record_interval(self, job: JobState, begin: float) -> None:
        running, batch = job.running, job.batch if job.running is not None else NO_BATCH
        self._recorder.allocation(
            AllocationRecord(
                job_id=job.request.id,
                start_s=job.since_s,
                end_s=self._clock.now_s,
                gpus=job.gpus,
                nodes=len(job.allocation),
                placement=describe(job.allocation),
                restarting=running is None,
                local_bsz=batch.local_bsz,
                accum_steps=batch.accum_steps,
                batch_size=_total(batch, job.gpus),
                epoch=job.epoch,
                progress=begin,
                rate=0.0 if running is None else job.rate,
                efficiency=0.0 if running is None else running.efficiency,
                throughput=0.0 if running is None else running.throughput * (1 - job.slowdown),
            )
        )

    @staticmethod
    def _cancel(job: JobState) -> None:
        if job.appointment is not None:
            job.appointment.cancel()
            job.appointment = None


def _speed(job: JobState, running: Running) -> Speed:
    """Return what a job measures of its speed, neighbours included."""
    throughput = running.throughput * (1 - job.slowdown)
    return Speed(throughput, _total(job.batch, job.gpus) / throughput if throughput else 0.0)


def _total(batch: BatchChoice, gpus: int) -> int:
    return batch.total(gpus) if batch.local_bsz else 0
