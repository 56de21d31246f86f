"""Traces as pandas tables."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from simsched.errors import input_error, nearest
from simsched.paths import data_folder
from simsched.workload import Trace
from simsched.workload.readers import read_trace as read_any

_COLUMNS = (
    "job_id", "submit_time_s", "num_gpus", "duration_s", "tenant", "user", "status", "attempts", "application",
    "batch_size",
)  # fmt: skip


def find_trace(source: str | Path, layout: str = "auto") -> Trace:
    """Read a trace: a file, a folder of CSV files, or a shipped one by name; raises `InputError` if there is none."""
    if Path(source).exists():
        return read_any(source, layout)
    shipped = {path.name.split(".")[0]: path for path in data_folder("traces").glob("*.csv*")}
    if str(source) in shipped:
        return read_any(shipped[str(source)], layout)
    raise input_error(source, "there is no such file, and no shipped trace of that name", nearest(str(source), shipped))


def read_trace(source: str | Path, layout: str = "auto") -> pd.DataFrame:
    """Return the jobs of a trace in order of submission, one row each.

    `source` is a file in any of the layouts of `traces/README.md`, a folder of such files, or the name of a shipped
    trace; `layout` names the layout if the content does not determine it. Columns: `job_id`, `submit_time_s` (seconds
    since the first submission), `num_gpus`, `duration_s`, `tenant`, `user`, `status`, `attempts`, `application`,
    `batch_size`. Raises `InputError` naming file, line and remedy.

    >>> jobs = read_trace("philly-synthetic")
    >>> len(jobs), int(jobs["num_gpus"].max())
    (55396, 128)
    """
    return find_trace(source, layout).table[list(_COLUMNS)].copy()
