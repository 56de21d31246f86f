"""Traces published as one plain CSV each: Microsoft's ITP 2021, and the Philly jobs that passed."""

from __future__ import annotations

from pathlib import Path

from simsched.workload.readers.format import Format, Jobs
from simsched.workload.readers.sheet import Sheet, open_sheet
from simsched.workload.trace import EPOCH, MOST_SECONDS

_ITP = ("job_id", "submission_time", "duration", "num_gpu")
_PHILLY = ("timestamp", "duration", "num_gpus")


def _read_itp(path: Path) -> Jobs:
    """Read a cluster of Microsoft ITP 2021 (ElasticFlow artifact); the cluster becomes the tenant.

    Seconds count from an unknown time on 2021-03-04; the trace has only jobs of at least 600 s.
    """
    sheet = open_sheet(path, _ITP)
    columns = {
        "job_id": sheet.unique("job_id"),
        "submit_time_s": sheet.number("submission_time", least=0, whole=True),
        "tenant": path.name.split(".")[0],
        **_common(sheet, "num_gpu"),
    }
    return Jobs(columns, None, unused=sheet.check())


def _read_philly(path: Path) -> Jobs:
    """Read the Philly jobs that passed, from the Pollux artifact; `cluster` is the virtual cluster.

    The times carry no zone and are most likely UTC; `duration` is the sum of a job's attempts in seconds.
    """
    sheet = open_sheet(path, _PHILLY, idle=("gpu_time",))  # GPU-seconds, the product of other columns
    columns = {
        "submit_time_s": sheet.moment("timestamp"),
        "tenant": sheet.text("cluster"),
        "status": "Pass",
        **_common(sheet, "num_gpus"),
    }
    return Jobs(columns, EPOCH, unused=sheet.check())


def _common(sheet: Sheet, gpus: str) -> dict[str, object]:
    return {
        "duration_s": sheet.number("duration", least=0, most=MOST_SECONDS),
        "num_gpus": sheet.number(gpus, least=1, whole=True),
        "row": sheet.rows,
    }


ITP = Format("itp", "Microsoft ITP 2021", f"CSV: {','.join(_ITP)}", lambda head: head.has(*_ITP), _read_itp)
PHILLY = Format(
    "philly-csv",
    "Philly jobs that passed (Pollux artifact)",
    "CSV: timestamp,duration,num_gpus,gpu_time,cluster",
    lambda head: head.has(*_PHILLY),
    _read_philly,
    by_row=True,
)
