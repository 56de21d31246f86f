"""ElasticFlow's traces (ASPLOS'23, artifact): lists of jobs with their iterations and deadlines, in whole seconds.

`duration` is the time on the GPUs asked for, `ddl` counts from the start of the trace, and jobs of `best_effort` 1 have
no deadline.
"""

from __future__ import annotations

from pathlib import Path

from simsched.model import JobSpec
from simsched.workload.readers.format import Head

COLUMNS = ("job_id", "submit_time", "iteration", "model_name", "ddl", "batch_size", "num_gpu", "duration")


def is_elasticflow_trace(head: Head) -> bool:
    """Return whether a file is such a trace, by its header."""
    return head.has(*COLUMNS)


def read_elasticflow_jobs(path: Path) -> list[JobSpec]:
    """Read a trace in order of submission, jobs of the same time in the order of the file.

    Raises `InputError` naming line and column of every wrong value.
    """
    from simsched.workload.readers.sheet import open_sheet  # needs pandas, which telling the format does not

    sheet = open_sheet(path, COLUMNS, idle=("best_effort",))
    sheet.blame("model_name", sheet.missing("model_name"), "is missing")
    ids, models = sheet.unique("job_id"), sheet.text("model_name")
    gpus, batch, steps = (sheet.number(name, least=1, whole=True) for name in ("num_gpu", "batch_size", "iteration"))
    submit, deadline, duration = (
        sheet.number(name, least=0, whole=True) for name in ("submit_time", "ddl", "duration")
    )
    sheet.blame("ddl", deadline < submit, "is before the job is submitted")
    best_effort = sheet.number("best_effort", least=0, most=1, whole=True) if "best_effort" in sheet else 0 * steps
    sheet.check()
    jobs = [
        JobSpec(
            job_id, submit_s, int(num_gpus), model, int(batch_size), duration_s,
            deadline_s=None if no_deadline else deadline_s - submit_s, total_steps=int(total),
        )
        for job_id, submit_s, num_gpus, model, batch_size, duration_s, deadline_s, no_deadline, total in zip(
            ids, submit.tolist(), gpus, models, batch, duration.tolist(), deadline.tolist(), best_effort, steps,
            strict=True,
        )
    ]  # fmt: skip
    return sorted(jobs, key=lambda job: job.submit_time_s)
