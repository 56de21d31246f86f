"""The workloads of Morphling, published as Rubick (MLSys'25, artifact): jobs with plans, some of them guaranteed.

`exec_plan` is three digits pipeline-tensor-data or a strategy of data parallelism, `is_sla` 1 marks guaranteed jobs.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from simsched.model import JobSpec
from simsched.model.plans import Plan, morphling_plan
from simsched.workload.readers.format import Head

COLUMNS = ("name", "submission_time", "duration", "application", "num_gpus", "exec_plan", "steps", "is_sla")
#: Cores that an offloaded optimiser would use, and a bandwidth that the artifact does not read either.
_IDLE = ("num_cpus", "bandwidth")


def is_morphling_trace(head: Head) -> bool:
    """Return whether a file is such a workload, by its header."""
    return head.has(*COLUMNS)


def read_morphling_jobs(path: Path) -> list[JobSpec]:
    """Read a workload in order of submission; raises `InputError` naming line and column of every wrong value."""
    from simsched.workload.readers.sheet import open_sheet  # needs pandas, which telling the format does not

    sheet = open_sheet(path, COLUMNS, idle=_IDLE)
    ids, models, plans = sheet.unique("name"), sheet.text("application"), sheet.text("exec_plan")
    sheet.blame("application", sheet.missing("application"), "is missing")
    gpus, steps = (sheet.number(column, least=1, whole=True) for column in ("num_gpus", "steps"))
    submit, duration = (sheet.number(column, least=0) for column in ("submission_time", "duration"))
    guaranteed = sheet.number("is_sla", least=0, whole=True)
    sheet.blame("is_sla", guaranteed > 1, "is neither 0 nor 1")
    parsed = [_plan(text, int(count)) for text, count in zip(plans, np.nan_to_num(gpus), strict=True)]
    sheet.blame("exec_plan", np.array([plan is None for plan in parsed]), "is no plan for these GPUs")
    sheet.check()
    jobs = [
        JobSpec(
            job_id, submit_s, int(count), model, 0, duration_s, guaranteed=bool(sla), total_steps=int(total), plan=plan
        )
        for job_id, submit_s, count, model, duration_s, sla, total, plan in zip(
            ids, submit.tolist(), gpus, models, duration.tolist(), guaranteed, steps, parsed, strict=True
        )
    ]
    return sorted(jobs, key=lambda job: job.submit_time_s)


def _plan(text: object, gpus: int) -> Plan | None:
    try:
        return morphling_plan(str(text), gpus)
    except ValueError:
        return None
