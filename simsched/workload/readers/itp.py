"""Microsoft ITP 2021 (ElasticFlow artifact): `job_id,submission_time,duration,num_gpu`, one file a cluster.

Seconds count from an unnamed moment of 2021-03-04; only jobs of at least 600 s are in it.
"""

from __future__ import annotations

from pathlib import Path

from simsched.workload.readers.format import Format, Head, Jobs
from simsched.workload.readers.sheet import open_sheet
from simsched.workload.trace import MOST_SECONDS

_COLUMNS = ("job_id", "submission_time", "duration", "num_gpu")


def _matches(head: Head) -> bool:
    return head.has(*_COLUMNS)


def _read(path: Path) -> Jobs:
    """Read every row; the tenant is the file's name, since a file is a cluster."""
    sheet = open_sheet(path, _COLUMNS)
    columns = {
        "job_id": sheet.unique("job_id"),
        "submit_time_s": sheet.number("submission_time", least=0, whole=True),
        "duration_s": sheet.number("duration", least=0, most=MOST_SECONDS),
        "num_gpus": sheet.number("num_gpu", least=1, whole=True),
        "tenant": path.name.split(".")[0],
        "row": sheet.rows,
    }
    return Jobs(columns, None, unused=sheet.check())


FORMAT = Format("itp", "Microsoft ITP 2021", "CSV: job_id,submission_time,duration,num_gpu", _matches, _read)
