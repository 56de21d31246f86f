"""The Philly jobs that passed, as the Pollux artifact ships them: `timestamp,duration,num_gpus,gpu_time,cluster`.

The times carry no zone and are most likely UTC; `duration` is the sum of a job's attempts in seconds.
"""

from __future__ import annotations

from pathlib import Path

from simsched.workload.readers.format import Format, Head, Jobs
from simsched.workload.readers.sheet import open_sheet
from simsched.workload.trace import EPOCH, MOST_SECONDS

_COLUMNS = ("timestamp", "duration", "num_gpus")
#: Seconds times GPUs, which the others say already.
_IDLE = ("gpu_time",)


def _matches(head: Head) -> bool:
    return head.has(*_COLUMNS)


def _read(path: Path) -> Jobs:
    """Read every row; `cluster` is the virtual cluster, and all jobs passed."""
    sheet = open_sheet(path, _COLUMNS, idle=_IDLE)
    columns = {
        "submit_time_s": sheet.moment("timestamp"),
        "duration_s": sheet.number("duration", least=0, most=MOST_SECONDS),
        "num_gpus": sheet.number("num_gpus", least=1, whole=True),
        "tenant": sheet.text("cluster"),
        "status": "Pass",
        "row": sheet.rows,
    }
    return Jobs(columns, EPOCH, unused=sheet.check())


FORMAT = Format(
    "philly-csv",
    "Philly jobs that passed (Pollux artifact)",
    "CSV: timestamp,duration,num_gpus,gpu_time,cluster",
    _matches,
    _read,
)
