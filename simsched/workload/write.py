"""Writes traces and workloads: as simsched's CSV, and traces in the Standard Workload Format."""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from simsched.errors import input_error, tell
from simsched.files import written_aside
from simsched.model import FIXED_DURATION, JobSpec
from simsched.outlets import one_line
from simsched.version import __version__
from simsched.workload.readers import plain
from simsched.workload.readers.format import WORKLOAD_KIND, version_line
from simsched.workload.readers.swf import FIELDS, STATES
from simsched.workload.shapes import SHAPE_COLUMNS
from simsched.workload.trace import OPTIONAL, Trace, seconds_of

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


#: The codes of final states; a job that reaches its time limit has failed, as in the archive's logs.
_CODES: Mapping[str, int] = MappingProxyType(
    {state: code for code, state in STATES.items()} | {"TimeLimit": 0, "Cancelled": 5}
)
#: The fields that number names, with the column of a trace behind each.
_NAMES: Mapping[str, str] = MappingProxyType({"user": "user", "group": "tenant", "queue": "queue"})
_OTHERS = ("status", "time_limit_s", "application", "memory_mib", "after")
_DATE = "%a %b %d %H:%M:%S %Y"
_NOTHING: Mapping[str, object] = MappingProxyType({})


def swf_jobs(trace: Trace) -> pd.DataFrame:
    """Return the jobs of a trace as fields of the format, in order; unknown values are left out.

    Warns of columns without a field.
    """
    table, kept = trace.table, {*_NAMES.values(), *_OTHERS}
    said = [name for name in OPTIONAL if name not in kept and trace.says(name)]
    said += [
        name
        for name, column in SHAPE_COLUMNS.items()
        if name in table and name not in kept and (table[name] != column.idle).any()
    ]
    if said:
        tell(trace.name, f"the Standard Workload Format has no field for {', '.join(said)}", "they are left out")
    found = pd.DataFrame(
        {
            "job_id": table["job_id"],
            "submit time": table["submit_time_s"] + trace.start_s,
            "run time": table["duration_s"],
            "requested processors": table["num_gpus"],
            "requested time": table["time_limit_s"].where(table["time_limit_s"] > 0, -1),
        }
    )
    if "memory_mib" in table:
        each_kb = np.ceil(table["memory_mib"] * 1024 / np.maximum(table["num_gpus"], 1))
        found["requested memory"] = each_kb.where(each_kb > 0, -1)
    if "after" in table:
        found["after"] = table["after"]
    return found.assign(**{name: table[name] for name in ("status", "application", *_NAMES.values())})


def write_swf(
    jobs: pd.DataFrame, path: str | Path, *, origin: datetime | None = None, about: Mapping[str, object] = _NOTHING
) -> None:
    """Write jobs, sorted by submission, to a file; a name that ends with .gz is compressed.

    `jobs` has some of the fields by name, and may have the columns `job_id`, `status`, `application`, `user`, `tenant`,
    `queue` and `after` of a trace, which become numbers: numeric texts keep their number, others are counted from 1 in
    order of appearance. `origin` is the time of second 0 in UTC; `about` has more comments by name. The same jobs give
    the same bytes. Raises `InputError` if the file cannot be written.
    """
    fields = pd.DataFrame(-1, index=jobs.index, columns=list(FIELDS))
    for name in FIELDS:
        if name in jobs:
            fields[name] = jobs[name]
    numbers = _numbers(jobs["job_id"])
    fields["job number"] = jobs["job_id"].map(numbers)
    if "after" in jobs:
        fields["preceding job"] = [numbers.get(text, -1) for text in jobs["after"]]
        several = jobs["after"].str.contains(" ")
        if several.any():
            tell(path, f"{several.sum()} jobs follow more than one", "the format has room for one: they follow none")
    fields["status"] = jobs["status"].map(_CODES).fillna(-1)
    named = {field: _numbers(jobs[column]) for field, column in _NAMES.items() if column in jobs}
    for field, known in named.items():
        fields[field] = [known.get(text, -1) for text in jobs[_NAMES[field]]]
    programs = _numbers(jobs["application"].where(jobs["application"] != FIXED_DURATION, ""))
    fields["executable"] = [programs.get(text, -1) for text in jobs["application"]]
    comments = [("Version", "2.2"), ("Conversion", f"simsched {__version__}"), *_about(fields, origin), *about.items()]
    queues = named.get("queue", {})
    comments += [("MaxQueues", len(queues))] * bool(queues)
    comments += [("Queue", f"{number} {_word(name)}") for name, number in queues.items()]
    comments += [("Note", f"executable {number} is {_word(name)}") for name, number in programs.items()]
    lines = [f"; {name}: {text}" for name, text in comments]
    lines += [" ".join(map(_shortest_number, row)) for row in fields.itertuples(index=False, name=None)]
    write_whole(Path(path), "\n".join(lines) + "\n")


def _about(fields: pd.DataFrame, origin: datetime | None) -> list[tuple[str, Any]]:
    """Return the comments that follow from the jobs themselves."""
    facts: list[tuple[str, Any]] = [("MaxJobs", len(fields)), ("MaxRecords", len(fields))]
    if origin is not None:
        ended = (fields["submit time"] + fields["wait time"].clip(lower=0) + fields["run time"].clip(lower=0)).max()
        facts += [
            ("UnixStartTime", seconds_of(origin)),
            ("TimeZoneString", "UTC"),
            ("StartTime", origin.strftime(_DATE)),
            ("EndTime", (origin + timedelta(seconds=float(ended))).strftime(_DATE)),
        ]
    return facts


def _numbers(names: pd.Series) -> dict[str, int]:
    """Number the names that are not empty: whole numbers keep their value if all are, else count from 1."""
    known = [str(name) for name in dict.fromkeys(names) if name != ""]
    if all(name.isascii() and name.isdigit() and len(name) < 16 and str(int(name)) == name for name in known):
        return {name: int(name) for name in known}
    return {name: i for i, name in enumerate(known, 1)}


def _word(name: str) -> str:
    """Write a name as a single word."""
    return one_line("_".join(name.split()))


def _shortest_number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
