"""Invariants of every instant of every run; the checks are off in production and on in every test.

| number | statement |
|---|---|
| INV-1 | No GPU is given twice: on every node, free GPUs and GPUs held add up to the node's, and none is negative. |
| INV-2 | Jobs are conserved: submitted jobs are active or finished, and each is submitted and finished once. |
| INV-3 | The clock never goes back, and within an instant neither does the phase order of decisions. |
| INV-4 | Attained service equals the sum of the recorded allocation intervals, which do not overlap. |
| INV-5 | A policy reads nothing that it has not declared: its view was granted exactly its needs. |
| INV-6 | Progress falls only to a checkpoint, after a failure, and never passes the end of the epoch. |
| INV-7 | If GPUs are shared, none has more holders than allowed, and a job holds exactly those that it was given. |
| INV-8 | If jobs take parts of GPUs, those of one GPU add up to at most 1. |
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from simsched.engine.errors import InvariantError
from simsched.engine.holders import Holders
from simsched.engine.records import AllocationRecord, DecisionRecord, JobRecord, OutageRecord, ReasonRecord, Recorder
from simsched.engine.state import ClusterState, JobState
from simsched.model.placement import SLACK

_SLACK = 1e-6  # relative; progress is a sum of products of floats


def wanted(given: bool | None) -> bool:
    """Return whether to check: as given, else (None) if `SIMSCHED_CHECK_INVARIANTS=1`, as in all tests."""
    return os.environ.get("SIMSCHED_CHECK_INVARIANTS") == "1" if given is None else given


def _equal(one: float, other: float) -> bool:
    """Compare integers exactly, floats up to rounding."""
    if isinstance(one, int) and isinstance(other, int):
        return one == other
    return abs(one - other) <= _SLACK * max(abs(one), abs(other))


def _fail(number: int, message: str) -> None:
    raise InvariantError(f"INV-{number}: {message}")


@dataclass
class _Seen:
    """A job's intervals so far: progress at their starts, progress and epoch of the last, highest rate."""

    begins: list[float] = field(default_factory=lambda: [0.0])
    progress: float = 0.0
    epoch: int = 0
    rate: float = 0.0


class CheckingRecorder:
    """Forwards records and checks them against each other (INV-2, INV-3, INV-4)."""

    def __init__(self, inner: Recorder, tick_s: float = 1, *, progress_falls: bool = False) -> None:
        """With `progress_falls`, progress may fall to a checkpoint (INV-6)."""
        self._seen: dict[str, _Seen] | None = {} if progress_falls else None
        self._tick_s = tick_s
        self._inner = inner
        self._service_gpu_s: dict[str, float] = {}
        self._last_end_s: dict[str, float] = {}
        self._finished: set[str] = set()
        self._now_s: float = 0

    def job(self, record: JobRecord) -> None:
        """Check and forward a finished job."""
        if record.job_id in self._finished:
            _fail(2, f"job {record.job_id} finished twice")
        self._finished.add(record.job_id)
        self._advance(record.end_time_s)
        service = self._service_gpu_s.pop(record.job_id, 0)
        if not _equal(service, record.attained_gpu_s):
            _fail(4, f"job {record.job_id} attained {record.attained_gpu_s} GPU-s, its intervals sum to {service}")
        if not _equal(record.jct_s, record.held_s + record.queueing_s) or record.queueing_s < -_SLACK * record.jct_s:
            _fail(4, f"job {record.job_id}: JCT {record.jct_s} is not held {record.held_s} + queue {record.queueing_s}")
        self._inner.job(record)

    def allocation(self, record: AllocationRecord) -> None:
        """Check and forward an interval."""
        job_id = record.job_id
        if record.start_s < self._last_end_s.get(job_id, 0) or record.end_s < record.start_s:
            _fail(4, f"job {job_id}: interval {record.start_s} to {record.end_s} runs back or overlaps")
        self._advance(record.end_s)
        self._last_end_s[job_id] = record.end_s
        seconds = record.end_s - record.start_s
        self._service_gpu_s[job_id] = self._service_gpu_s.get(job_id, 0) + seconds * record.gpus
        if self._seen is not None:
            self._check_fall(record, self._seen.setdefault(job_id, _Seen()))
        self._inner.allocation(record)

    def _check_fall(self, record: AllocationRecord, seen: _Seen) -> None:
        """Check that progress continues from the last interval, or falls to the start of an earlier one (a checkpoint).

        Because of rounding, an interval may start past the end of its epoch; the next epoch then starts at that end.
        """
        past_end = _overshoot(seen.rate, self._tick_s) if record.epoch > seen.epoch else 0.0
        slack = _SLACK * max(seen.progress, 1.0)
        fell = record.progress < seen.progress - past_end - slack
        if fell and all(abs(record.progress - one) > slack for one in seen.begins):
            _fail(6, f"job {record.job_id}: progress fell to {record.progress}, where there was no checkpoint")
        seen.begins.append(record.progress)
        seen.progress, seen.epoch = record.progress, record.epoch
        seen.rate = max(seen.rate, record.rate)

    def decision(self, record: DecisionRecord) -> None:
        """Check a decision's time and forward it."""
        self._advance(record.time_s)
        self._inner.decision(record)

    def outage(self, record: OutageRecord) -> None:
        """Check an outage's time and forward it."""
        self._advance(record.end_s)
        self._inner.outage(record)

    def reason(self, record: ReasonRecord) -> None:
        """Check a decision's time and forward the state of a job after it."""
        self._advance(record.time_s)
        self._inner.reason(record)

    def _advance(self, time_s: float) -> None:
        if time_s < self._now_s:
            _fail(3, f"the clock went back from {self._now_s} to {time_s}")
        self._now_s = time_s


def check_state(
    cluster: ClusterState, active: Mapping[str, JobState], submitted: int, finished: int, tick_s: float = 1
) -> None:
    """Check the state after a decision (INV-1, INV-2, INV-6, INV-7, INV-8); raises `InvariantError`."""
    if submitted != len(active) + finished:
        _fail(2, f"{submitted} jobs submitted, but {len(active)} active and {finished} finished")
    if cluster.occupancy is not None:
        _check_shares(cluster, cluster.occupancy, active)
        nodes = zip(cluster.cluster.nodes, cluster.free, cluster.up, strict=True)
        held = [node.gpus - free if up else 0 for node, free, up in nodes]
    else:
        held = [0] * len(cluster.free)
        for job in active.values():
            for node, gpus in job.allocation:
                held[node] += gpus
    for node, (free, used) in enumerate(zip(cluster.free, held, strict=True)):
        gpus = cluster.cluster.nodes[node].gpus if cluster.up[node] else 0
        if free < 0 or free + used != gpus:
            _fail(1, f"node {node}: {free} GPUs free and {used} held")
    if cluster.allocated_gpus != sum(held):
        _fail(1, f"{cluster.allocated_gpus} GPUs counted as held, {sum(held)} are")
    for job in active.values():
        _check_progress(job, tick_s)
        if job.recovery is not None and job.live_progress < job.recovery.saved - _SLACK * max(job.recovery.saved, 1.0):
            _fail(6, f"job {job.request.id}: progress {job.live_progress} below its checkpoint {job.recovery.saved}")


def _check_shares(cluster: ClusterState, occupancy: Holders, active: Mapping[str, JobState]) -> None:
    """Check the holders of single GPUs and their shares (INV-7, INV-8)."""
    for node, gpu, taken in occupancy.shares():
        if taken > 1 + SLACK:
            _fail(8, f"{taken:g} of GPU {gpu} of node {node} is taken")
    if occupancy.most_on_a_gpu() > occupancy.most:
        _fail(7, f"a GPU has {occupancy.most_on_a_gpu()} holders, {occupancy.most} are allowed")
    for job in active.values():
        given = {node: len(gpus) for node, gpus in occupancy.gpus(job.request.id).items()}
        if given != dict(job.allocation):
            _fail(7, f"job {job.request.id} was given {dict(job.allocation)} and holds {given}")
    for node, free in enumerate(cluster.free):
        if cluster.up[node] and free != occupancy.free(node):
            _fail(7, f"node {node} has {occupancy.free(node)} GPUs without a holder, {free} count as free")


def _check_progress(job: JobState, tick_s: float) -> None:
    if job.leasing is not None:
        return  # a lease's progress is up to the application
    begin = job.app.epoch_end(job.epoch - 1) if job.epoch else 0.0
    end = job.app.epoch_end(job.epoch)
    slack = _SLACK * max(end, 1.0)
    if not begin - slack <= job.live_progress <= end + slack + _overshoot(job.rate, tick_s):
        _fail(6, f"job {job.request.id}: progress {job.live_progress} outside epoch {job.epoch} ({begin} to {end})")


def _overshoot(rate: float, tick_s: float) -> float:
    """Return how far rounding to whole ticks can carry a job past the end of its epoch."""
    return rate * 0.5 * tick_s
