"""Writes traces and workloads as CSV, whole or not at all."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from simsched.errors import input_error
from simsched.files import written_aside
from simsched.model import FIXED_DURATION, JobSpec
from simsched.workload.readers import plain
from simsched.workload.readers.format import WORKLOAD_KIND, version_line
from simsched.workload.shapes import SHAPE_COLUMNS
from simsched.workload.trace import Trace

#: Optional columns of a trace CSV; a column is left out if all its cells have this value.
_TRACE_EXTRAS = (
    ("tenant", ""), ("user", ""), ("status", ""), ("attempts", 1), ("attempts_s", ""),
    ("application", FIXED_DURATION), ("batch_size", 0), ("time_limit_s", 0), ("queue", ""), ("priority", 0),
    ("qos", ""), ("group", ""), ("gpu_share", 1),
)  # fmt: skip
_JOB_EXTRAS = (
    ("duration", "duration_s", 0), ("tenant", "tenant", ""), ("user", "user", ""), ("status", "status", ""),
    ("attempts", "attempts", 1),
)  # fmt: skip


def write_trace_csv(trace: Trace, path: str | Path) -> None:
    """Write a trace as simsched's plain trace CSV, version 1; a name that ends with .gz is compressed.

    Submissions are timestamps if the trace has an origin, else seconds of the source's clock. Empty columns are left
    out. The same trace gives the same bytes. Raises `InputError` if the file cannot be written.
    """
    table = trace.table
    submit = table["submit_time_s"]
    if trace.origin is None:
        submit = submit + trace.start_s
    else:
        submit = (trace.origin + pd.to_timedelta(submit, unit="s")).dt.strftime("%Y-%m-%d %H:%M:%S")
    columns = {"submit_time": submit, "num_gpus": table["num_gpus"], "duration": _shortest(table["duration_s"])}
    if any(name != f"job-{i}" for i, name in enumerate(table["job_id"])):
        columns["job_id"] = table["job_id"]
    extras = (*_TRACE_EXTRAS, *((name, column.idle) for name, column in SHAPE_COLUMNS.items() if name in table))
    columns |= {name: table[name] for name, idle in extras if (table[name] != idle).any()}
    _write(pd.DataFrame(columns), Path(path), plain.KIND)


def write_workload_csv(jobs: Sequence[JobSpec], path: str | Path) -> None:
    """Write a job list in order as a workload CSV, version 1 (docs/formats.md).

    The five columns of the published layout come first, followed by any other columns that hold a value; only then is
    the version written above the header. Raises `InputError` if the file cannot be written.
    """
    columns: dict[str, list[object]] = {
        "name": [job.id for job in jobs],
        "time": [job.submit_time_s for job in jobs],
        "application": [job.application for job in jobs],
        "num_replicas": [job.num_gpus for job in jobs],
        "batch_size": [job.batch_size for job in jobs],
    }
    extras = {name: [getattr(job, key) for job in jobs] for name, key, _ in _JOB_EXTRAS}
    kept = {name: extras[name] for name, _, idle in _JOB_EXTRAS if any(value != idle for value in extras[name])}
    _write(pd.DataFrame(columns | kept), Path(path), WORKLOAD_KIND if kept else "")


def _shortest(values: pd.Series[float]) -> pd.Series[float] | pd.Series[int]:
    """Write whole seconds without a decimal point."""
    return values.astype("int64") if bool((values % 1 == 0).all()) else values


def _write(table: pd.DataFrame, path: Path, kind: str) -> None:
    head = f"{version_line(kind)}\n" if kind else ""
    write_whole(path, head + table.to_csv(index=False, lineterminator="\n"))


def write_whole(path: Path, text: str) -> None:
    """Write a temporary file next to the target and rename it, so that no reader sees half a file; .gz is compressed.

    Raises `InputError` if the file cannot be written.
    """
    data = text.encode()
    try:
        # Without a time stamp, a compressed file depends only on its content.
        with written_aside(path) as aside:
            aside.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    except OSError as error:
        raise input_error(
            path, f"cannot be written: {error.strerror}", "name a file in a folder you may write to"
        ) from None
