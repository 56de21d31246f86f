"""Builds the rows of the result tables from the state of jobs and cluster."""

from __future__ import annotations

import math
from collections.abc import Mapping

from simsched.engine.clock import Clock
from simsched.engine.records import AllocationRecord, DecisionRecord, JobRecord
from simsched.engine.state import ClusterState, JobState
from simsched.engine.stranded import Stranded
from simsched.model import BatchChoice
from simsched.model.placement import describe

#: The final state of a job killed at its time limit.
TIME_LIMIT = "TimeLimit"
#: The final state of a job cancelled by the policy.
CANCELLED = "Cancelled"
#: Attempts, failures and losses of a job without failures.
_NO_FAILURES = (1, 0, 0, 0, 0)


def job_record(job: JobState, status: str) -> JobRecord:
    """Record a job that ends now in the given final state."""
    clock, request = job.clock, job.request
    now, unit_s = clock.now, clock.unit_s
    jct = now - job.submitted
    values = (
        request.id,
        request.application,
        request.tenant,
        request.user,
        status,
        request.num_gpus,
        request.batch_size,
        job.submitted * unit_s,
        (now if job.first_start is None else job.first_start) * unit_s,
        now * unit_s,
        jct * unit_s,
        job.settled_held * unit_s,
        (jct - job.settled_held) * unit_s,
        job.restart * unit_s,
        job.settled_gpu * unit_s,
        job.starts - 1 if job.starts else 0,
        *_NO_FAILURES,
        math.inf if request.deadline_s is None else request.deadline_s,
        job.declined,
        request.queue,
    )
    record = tuple.__new__(JobRecord, values)  # three times as fast as calling the class
    recovery = job.recovery
    if recovery is None:
        return record
    return record._replace(
        attempts=recovery.attempt + 1,
        failures=recovery.failures,
        lost_s=clock.seconds(recovery.lost),
        lost_gpu_s=clock.seconds(recovery.lost_gpu),
        checkpoint_s=clock.seconds(recovery.checkpointing),
    )


def interval_record(job: JobState, begin: float, clock: Clock) -> AllocationRecord:
    """Record the job's interval that ends now and started at progress `begin`."""
    running = job.running
    local_bsz = accum_steps = batch_size = 0
    rate = efficiency = throughput = 0.0
    if running is not None:
        local_bsz, accum_steps = job.batch.local_bsz, job.batch.accum_steps
        rate, efficiency, throughput = job.rate, running.efficiency, running.throughput
        if throughput:
            batch_size = total_batch(job.batch, job.gpus)
            throughput *= job.undisturbed
    values = (
        job.request.id,
        job.since * clock.unit_s,
        clock.now * clock.unit_s,
        job.gpus,
        job.nodes,
        describe(job.allocation),
        running is None,
        local_bsz,
        accum_steps,
        batch_size,
        job.epoch,
        begin,
        rate,
        efficiency,
        throughput,
        " ".join(job.neighbours) if job.neighbours else "",
        job.gpu_share,
        job.speed,
        0 if job.site is None else job.site.levels_crossed,
        "" if running is None or job.batch.plan is None else str(job.batch.plan),
        job.congestion,
    )
    return tuple.__new__(AllocationRecord, values)  # three times as fast as calling the class, for every interval


def total_batch(batch: BatchChoice, gpus: int) -> int:
    """Return the total batch size on `gpus` GPUs, 0 without a batch."""
    return batch.total(gpus) if batch.local_bsz else 0


#: How many jobs a decision started, stopped and moved.
Moves = tuple[int, int, int]
NO_MOVES: Moves = (0, 0, 0)


def decision_record(
    now_s: float,
    active_jobs: int,
    cluster: ClusterState,
    moves: Moves,
    diagnostics: Mapping[str, float],
    stranded: Stranded,
    fits_in_domain: int = 0,
) -> DecisionRecord:
    """Record a decision that has just been carried out."""
    values = (
        now_s,
        active_jobs,
        cluster.running_jobs,
        cluster.allocated_gpus,
        cluster.available_gpus,
        cluster.provisioned_nodes,
        *moves,
        diagnostics,
        len(cluster.broken) if cluster.broken else 0,
        cluster.failures,
        *stranded,
        cluster.provisioned_gpus,
        fits_in_domain,
    )
    return tuple.__new__(DecisionRecord, values)  # three times as fast as calling the class, at every decision
