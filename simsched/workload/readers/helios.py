"""SenseTime Helios (`cluster_log.csv`) and Shanghai AI Lab's Acme, which keeps the same columns.

`submit_time` is a timestamp (Acme: with an offset, turned into UTC), `duration` the seconds from start to end,
`gpu_num` 0 marks a job that used processors only.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from simsched.workload.readers.format import Format, Head, Jobs
from simsched.workload.readers.sheet import Sheet, open_sheet
from simsched.workload.trace import EPOCH

_COLUMNS = ("gpu_num", "submit_time", "duration", "state")
_STATUS: Mapping[str, str] = MappingProxyType(
    {
        "COMPLETED": "Pass",
        "CANCELLED": "Killed",
        "FAILED": "Failed",
        "TIMEOUT": "Failed",
        "NODE_FAIL": "Failed",
        "OUT_OF_MEMORY": "Failed",
    }
)


def _matches(head: Head) -> bool:
    return head.has(*_COLUMNS)


def _read(path: Path) -> Jobs:
    """Read the jobs that used GPUs and started."""
    sheet = open_sheet(path, _COLUMNS)
    gpus = sheet.number("gpu_num", least=0, whole=True)
    sheet.check()
    dropped = {"used no GPU": sheet.keep(gpus > 0)}
    dropped["never started"] = sheet.keep(~_never_started(sheet))
    columns = {
        "submit_time_s": sheet.moment("submit_time"),
        "duration_s": sheet.number("duration", least=0),
        "num_gpus": sheet.number("gpu_num", least=1, whole=True),
        "tenant": sheet.text("vc"),
        "user": sheet.text("user"),
        "status": sheet.text("state").str.upper().map(_STATUS).fillna(""),
        "row": sheet.rows,
    }
    if "job_id" in sheet:
        columns["job_id"] = sheet.unique("job_id")
    sheet.check()
    return Jobs(columns, EPOCH, dropped)


def _never_started(sheet: Sheet) -> npt.NDArray[np.bool_]:
    """Return which jobs have no duration, or no start where the file has such a column."""
    never = sheet.missing("duration")
    return never | sheet.missing("start_time") if "start_time" in sheet else never


FORMAT = Format(
    "helios",
    "SenseTime Helios and Shanghai AI Lab Acme",
    "CSV: [job_id,user,vc,]gpu_num,state,submit_time,duration[,start_time]",
    _matches,
    _read,
)
