"""The record of an interval during which nothing changed about a job's run."""

from __future__ import annotations

from simsched.engine.clock import Clock
from simsched.engine.records import AllocationRecord
from simsched.engine.state import JobState
from simsched.model import BatchChoice, describe


def interval_record(job: JobState, begin: float, clock: Clock) -> AllocationRecord:
    """Record the job's interval that ends now and began at progress `begin`."""
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
        len(job.allocation),
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
