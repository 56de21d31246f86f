"""Alibaba GPU traces: the pods of cluster-trace-gpu-v2023 (openb) and the tasks of PAI (cluster-trace-gpu-v2020).

Both ask for shares of a GPU; a share counts as a whole GPU here, and the trace says how many jobs that touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pandas as pd

from simsched.workload.readers.format import Format, Head, Jobs
from simsched.workload.readers.sheet import Sheet, first_lines, open_sheet

Numbers = npt.NDArray[np.float64]

_POD_COLUMNS = ("num_gpu", "gpu_milli", "creation_time", "deletion_time", "scheduled_time")
_POD_STATUS: Mapping[str, str] = MappingProxyType({"Succeeded": "Pass", "Failed": "Failed"})
_TASK_COLUMNS = ("job_name", "inst_num", "status", "start_time", "end_time", "plan_gpu")
_TASK_STATUS: Mapping[str, str] = MappingProxyType({"Terminated": "Pass", "Failed": "Failed"})
#: The columns of `pai_task_table.csv`, which is published without a header line.
_TASK_HEADER = (
    "job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu", "plan_mem", "plan_gpu",
    "gpu_type",
)  # fmt: skip
_SHARE = "asked for a share of a GPU, counted as a whole one"


def _read_pods(path: Path) -> Jobs:
    """Read the pods that asked for GPUs, were scheduled and ended; times are seconds from an unnamed day."""
    sheet = open_sheet(path, _POD_COLUMNS)
    gpus = sheet.number("num_gpu", least=0)
    sheet.check()
    dropped = {"used no GPU": sheet.keep(gpus > 0)}
    dropped["never started"] = sheet.keep(~sheet.missing("scheduled_time"))
    dropped["end not recorded"] = sheet.keep(~sheet.missing("deletion_time"))
    asked = sheet.number("num_gpu", least=0) * sheet.number("gpu_milli", least=0) / 1000
    whole = np.maximum(np.ceil(asked), 1)
    columns = {
        "submit_time_s": sheet.number("creation_time", least=0).round(),
        "duration_s": _span(sheet, sheet.number("scheduled_time", least=0), "deletion_time", "scheduled_time"),
        "num_gpus": whole,
        "tenant": sheet.text("qos"),
        "row": sheet.rows,
    }
    if "pod_phase" in sheet:
        columns["status"] = sheet.text("pod_phase").map(_POD_STATUS).fillna("")
    if "name" in sheet:
        columns["job_id"] = sheet.unique("name")
    sheet.check()
    return Jobs(columns, None, dropped, {_SHARE: int((whole != asked).sum())})


def _read_tasks(path: Path) -> Jobs:
    """Read PAI's task table and add up the tasks of each job.

    The trace records no submission, so a job comes when its first task starts. `plan_gpu` is in percent of a GPU for
    each of `inst_num` instances.
    """
    lines = first_lines(path, 1)
    headless = bool(lines) and "job_name" not in lines[0]
    sheet = open_sheet(path, _TASK_COLUMNS, _TASK_HEADER if headless else None)
    dropped = {"used no GPU": sheet.keep(~sheet.missing("plan_gpu"))}
    dropped["never started"] = sheet.keep(~sheet.missing("start_time"))
    dropped["end not recorded"] = sheet.keep(~sheet.missing("end_time"))
    gpus = sheet.number("inst_num", least=0) * sheet.number("plan_gpu", least=0) / 100
    start = sheet.number("start_time", least=0)
    tasks = pd.DataFrame(
        {
            "job_id": np.asarray(sheet.text("job_name")),
            "start": start,
            "end": start + _span(sheet, start, "end_time", "start_time"),
            "gpus": gpus,
            "failed": np.asarray(sheet.text("status").map(_TASK_STATUS).fillna("")),
            "row": sheet.rows,
        }
    )
    sheet.check()
    dropped["used no GPU"] += int((tasks["gpus"] == 0).sum())
    return _jobs_of_tasks(tasks[tasks["gpus"] > 0], dropped)


def _jobs_of_tasks(tasks: pd.DataFrame, dropped: Mapping[str, int]) -> Jobs:
    """Sum the GPUs of a job's tasks over the span from its first start to its last end."""
    jobs = tasks.groupby("job_id", sort=False)
    asked = jobs["gpus"].sum().to_numpy()
    whole = np.ceil(asked)
    start = jobs["start"].min().to_numpy()
    # "Failed" sorts before "Pass" and after "", so a failed task marks its job and an unfinished one leaves it open.
    columns = {
        "job_id": jobs["row"].first().index.to_numpy(),
        "submit_time_s": start.round(),
        "duration_s": jobs["end"].max().to_numpy() - start,
        "num_gpus": whole,
        "status": jobs["failed"].min().to_numpy(),
        "row": jobs["row"].first().to_numpy(),
    }
    return Jobs(columns, None, dropped, {_SHARE: int((whole != asked).sum())})


def _span(sheet: Sheet, start: Numbers, end: str, start_name: str) -> Numbers:
    """Return the seconds from `start` to the column `end`; an end before the start is a problem of the sheet."""
    seconds = sheet.number(end) - start
    sheet.blame(end, seconds < 0, f"lies before '{start_name}'")
    return seconds


def _pods_match(head: Head) -> bool:
    return head.has(*_POD_COLUMNS)


def _tasks_match(head: Head) -> bool:
    return head.has(*_TASK_COLUMNS)


PODS = Format(
    "alibaba-openb",
    "Alibaba cluster-trace-gpu-v2023 (openb pods)",
    "CSV: name,num_gpu,gpu_milli,qos,pod_phase,creation_time,deletion_time,scheduled_time,...",
    _pods_match,
    _read_pods,
)
TASKS = Format(
    "alibaba-pai",
    "Alibaba PAI, cluster-trace-gpu-v2020 (task table)",
    "CSV: job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type",
    _tasks_match,
    _read_tasks,
)
