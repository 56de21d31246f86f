"""Muri's traces (SIGCOMM'22, artifact): lists of jobs with their iterations and the stages of an iteration.

Times are in milliseconds. `resource_time_0` to `_2` are loading (processors and storage), GPU and network.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from simsched.model import JobSpec, StageProfile
from simsched.workload.readers.format import Head

_STAGES = ("resource_time_0", "resource_time_1", "resource_time_2")
COLUMNS = ("job_id", "num_gpu", "submit_time", "iterations", "model_name", "batch_size", "duration", "iteration_time")
#: Milliseconds since the job before, which the times of submission say already.
_IDLE = ("interval",)
_MS = 1000


def is_muri_trace(head: Head) -> bool:
    """Return whether a file is such a trace, by its header."""
    return head.has(*COLUMNS, *_STAGES)


def read_muri_jobs(path: Path) -> list[JobSpec]:
    """Read a trace in order of submission, jobs of the same time in the order of the file.

    Jobs of `priority` 0, and all where there is no such column, are guaranteed. Raises `InputError` naming line and
    column of every wrong value.
    """
    from simsched.workload.readers.sheet import open_sheet  # needs pandas, which telling the format does not

    sheet = open_sheet(path, (*COLUMNS, *_STAGES), idle=_IDLE)
    sheet.blame("model_name", sheet.missing("model_name"), "is missing")
    ids = sheet.unique("job_id")
    models = sheet.text("model_name")
    gpus, steps = (sheet.number(column, least=1, whole=True) for column in ("num_gpu", "iterations"))
    batch = sheet.number("batch_size", least=0, whole=True)
    submit, duration = (sheet.number(column, least=0) for column in ("submit_time", "duration"))
    iteration = sheet.number("iteration_time")
    sheet.blame("iteration_time", iteration <= 0, "is not above 0")
    stages = [sheet.number(column, least=0) for column in _STAGES]
    priority = sheet.number("priority", least=0) if "priority" in sheet else np.zeros(len(sheet))
    sheet.check()
    jobs = [
        JobSpec(
            job_id,
            submit_ms / _MS,
            int(num_gpus),
            model,
            int(batch_size),
            duration_ms / _MS,
            guaranteed=rank == 0,
            total_steps=int(total),
            profile=StageProfile(iteration_ms / _MS, (first / _MS, second / _MS, third / _MS)),
        )
        for job_id, submit_ms, num_gpus, model, batch_size, duration_ms, rank, total, iteration_ms, first, second, third
        in zip(
            ids, submit.tolist(), gpus, models, batch, duration.tolist(), priority, steps, iteration.tolist(),
            *(stage.tolist() for stage in stages), strict=True,
        )
    ]  # fmt: skip
    return sorted(jobs, key=lambda job: job.submit_time_s)
