"""What is recorded of an interval during which nothing about a job's run changed."""

from __future__ import annotations

from simsched.engine.clock import Clock
from simsched.engine.records import AllocationRecord
from simsched.engine.state import JobState
from simsched.model.application import NO_BATCH, BatchChoice
from simsched.model.placement import describe


def interval_record(job: JobState, begin: float, clock: Clock) -> AllocationRecord:
    """Make the record of the interval of a job that ends now, and that began with the progress `begin`."""
    running, batch = job.running, job.batch if job.running is not None else NO_BATCH
    return AllocationRecord(
        job_id=job.request.id,
        start_s=job.since * clock.unit_s,
        end_s=clock.now_s,
        gpus=job.gpus,
        nodes=len(job.allocation),
        placement=describe(job.allocation),
        restarting=running is None,
        local_bsz=batch.local_bsz,
        accum_steps=batch.accum_steps,
        batch_size=total_batch(batch, job.gpus),
        epoch=job.epoch,
        progress=begin,
        rate=0.0 if running is None else job.rate,
        efficiency=0.0 if running is None else running.efficiency,
        throughput=0.0 if running is None else running.throughput * (1 - job.interference) * job.speed,
        neighbours=" ".join(job.neighbours),
        gpu_share=job.gpu_share,
        relative_speed=job.speed,
        levels_crossed=0 if job.site is None else job.site.levels_crossed,
    )


def total_batch(batch: BatchChoice, gpus: int) -> int:
    """Return the total batch size on `gpus` GPUs, 0 where there is no batch."""
    return batch.total(gpus) if batch.local_bsz else 0
