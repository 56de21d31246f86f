"""The record of a job that has ended."""

from __future__ import annotations

from simsched.engine.records import JobRecord
from simsched.engine.state import JobState

#: The final state of a job that was killed at its time limit.
TIME_LIMIT = "TimeLimit"


def job_record(job: JobState, status: str) -> JobRecord:
    """Return the record of a job that ends now, in a final state."""
    clock, request = job.clock, job.request
    now = clock.now
    jct = now - job.submitted
    record = JobRecord(
        job_id=request.id,
        application=request.application,
        tenant=request.tenant,
        user=request.user,
        status=status,
        num_gpus=request.num_gpus,
        batch_size=request.batch_size,
        submit_time_s=clock.seconds(job.submitted),
        start_time_s=clock.seconds(now if job.first_start is None else job.first_start),
        end_time_s=clock.seconds(now),
        jct_s=clock.seconds(jct),
        held_s=clock.seconds(job.settled_held),
        queueing_s=clock.seconds(jct - job.settled_held),
        restart_s=clock.seconds(job.restart),
        attained_gpu_s=clock.seconds(job.settled_gpu),
        restarts=max(job.starts - 1, 0),
        deadline_s=float(request.deadline_s or 0.0),
    )
    recovery = job.recovery
    if recovery is None:
        return record
    return record._replace(
        attempts=recovery.attempts,
        failures=recovery.failures,
        lost_s=clock.seconds(recovery.lost),
        lost_gpu_s=clock.seconds(recovery.lost_gpu),
        checkpoint_s=clock.seconds(recovery.checkpointing),
    )
