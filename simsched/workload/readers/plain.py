"""Traces of one CSV: simsched's own, version 1 (docs/formats.md), Pollux's lists of jobs, ITP's, and Philly's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from simsched.errors import Problem, nearest
from simsched.model import FIXED_DURATION, JobSpec
from simsched.workload.readers.clock import Clock
from simsched.workload.readers.format import WORKLOAD_KIND, Format, Jobs, check_version
from simsched.workload.readers.sheet import Sheet, open_sheet
from simsched.workload.shapes import SHAPE_COLUMNS
from simsched.workload.trace import EPOCH, MOST_SECONDS, STATUSES

KIND = "simsched-trace"
REQUIRED = ("submit_time", "num_gpus", "duration")
OPTIONAL = (
    "job_id", "tenant", "user", "status", "attempts", "attempts_s", "application", "batch_size", "time_limit_s",
    "queue", "priority", "qos", "group", "gpu_share", *SHAPE_COLUMNS,
)  # fmt: skip


def _read(path: Path) -> Jobs:
    """Read every row; a wrong value, an unknown column or a repeated id is an error."""
    check_version(path, KIND)
    sheet = open_sheet(path, REQUIRED)
    blame_unknown_columns(sheet, (*REQUIRED, *OPTIONAL))
    submit, origin = _submission(sheet)
    columns: dict[str, Any] = {
        "submit_time_s": submit,
        "duration_s": sheet.number("duration", least=0, most=MOST_SECONDS),
        "num_gpus": sheet.number("num_gpus", least=0 if "num_nodes" in sheet else 1, whole=True),
        "tenant": sheet.text("tenant"),
        "user": sheet.text("user"),
        "status": sheet.one_of("status", STATUSES),
        "row": sheet.rows,
    }
    if "job_id" in sheet:
        columns["job_id"] = sheet.unique("job_id")
    columns |= _optional_columns(sheet)
    return Jobs(columns, origin, unused=sheet.check())


#: Optional columns of text.
_TEXTS = ("attempts_s", "queue", "qos", "group", "application",
          *(name for name, column in SHAPE_COLUMNS.items() if column.idle == ""))  # fmt: skip
#: Optional numeric columns, with the values that they allow.
_NUMBERS: Mapping[str, Mapping[str, Any]] = {
    "attempts": {"least": 1, "whole": True},
    "batch_size": {"least": 0, "whole": True},
    "time_limit_s": {"least": 0, "most": MOST_SECONDS},
    "priority": {"least": float("-inf")},
    "gpu_share": {"least": 0, "most": 1},
    **{name: {"least": 0, "whole": True} for name, column in SHAPE_COLUMNS.items() if column.idle == 0},
}


def _optional_columns(sheet: Sheet) -> dict[str, Any]:
    columns: dict[str, Any] = {name: sheet.number(name, **said) for name, said in _NUMBERS.items() if name in sheet}
    columns |= {name: sheet.text(name) for name in _TEXTS if name in sheet}
    if "attempts_s" in sheet:
        wrong = ~columns["attempts_s"].map(_are_seconds).to_numpy("bool")
        sheet.blame("attempts_s", wrong, "is not a list of seconds such as '60 120.5'")
    if "gpu_share" in sheet:
        sheet.blame("gpu_share", columns["gpu_share"] == 0, "must be above 0")
    if "application" in sheet:
        sheet.blame("application", sheet.missing("application"), "is missing")
    return columns


def _are_seconds(text: str) -> bool:
    try:
        return all(0 <= float(part) < float("inf") for part in text.split())
    except ValueError:
        return False


def blame_unknown_columns(sheet: Sheet, known: tuple[str, ...]) -> None:
    """Record a problem for each column that is not in the schema."""
    for column in sheet.cells.columns:
        if column not in known:
            problem = Problem(str(sheet.path), f"column '{column}' is unknown", nearest(column, known))
            sheet.problems.append(problem)


def _submission(sheet: Sheet) -> tuple[Any, datetime | None]:
    """Read `submit_time` as seconds, or as timestamps if the first one is not a number."""
    first = str(sheet.cells["submit_time"].iat[0])
    if (
        not sheet.missing("submit_time")[0]
        and pd.isna(pd.to_numeric(first, errors="coerce"))
        and re.search(r"-|\d?[/.]\d+[/.]", first[1:])
    ):
        return sheet.moment("submit_time"), EPOCH
    Clock(sheet.path).counts(sheet.cells["submit_time"], sheet.first_line + sheet.rows)
    return sheet.number("submit_time", least=0, most=MOST_SECONDS).round(), None


FORMAT = Format(
    "plain",
    "simsched trace CSV, version 1",
    "CSV: submit_time,num_gpus,duration[,job_id,tenant,user,status,attempts,attempts_s,application,batch_size,"
    "time_limit_s,queue,priority,qos,group,gpu_share,num_nodes,gpu_types,cpu_milli,memory_mib,...]",
    lambda head: head.has(*REQUIRED) or KIND in head.line,
    _read,
    by_row=True,
)


WORKLOAD_REQUIRED = ("name", "time", "application", "num_replicas", "batch_size")
WORKLOAD_OPTIONAL = ("duration", "tenant", "user", "status", "attempts")


def read_workload(path: Path) -> list[JobSpec]:
    """Read a job list in order of submission; ties keep the order of the file.

    The `name` of a row is the job's id. Raises `InputError` naming line and column of every wrong value.
    """
    check_version(path, WORKLOAD_KIND)
    sheet = open_sheet(path, WORKLOAD_REQUIRED)
    blame_unknown_columns(sheet, (*WORKLOAD_REQUIRED, *WORKLOAD_OPTIONAL))
    columns = _columns(sheet)
    sheet.check()
    order = np.argsort(columns["submit_time_s"], kind="stable")
    return JobSpec.of_columns(
        len(order), {name: np.asarray(column)[order].tolist() for name, column in columns.items()}
    )


def _columns(sheet: Sheet) -> dict[str, Any]:
    """Convert the cells to fields of `JobSpec`."""
    sheet.blame("application", sheet.missing("application"), "is missing")
    application = np.asarray(sheet.text("application"), dtype=object)
    columns: dict[str, Any] = {"id": sheet.unique("name"), "application": application}
    for column, name, least in _WORKLOAD_NUMBERS:
        if column in sheet:  # wrong cells are any number until the sheet is checked
            number = np.nan_to_num(sheet.number(column, least=least, whole=True))
            columns[name] = number.clip(0, 2.0**53).astype(np.int64)
    fixed = application == FIXED_DURATION
    if "duration" in sheet:
        sheet.blame("duration", fixed & (columns["duration_s"] < 1), f"must be at least 1 for '{FIXED_DURATION}'")
    elif fixed.any():
        message = f"column 'duration' is missing, but jobs of '{FIXED_DURATION}' need it"
        sheet.problems.append(Problem(str(sheet.path), message, "add their service time in seconds"))
    for column in ("tenant", "user", "status"):
        text = sheet.one_of(column, STATUSES) if column == "status" else sheet.text(column)
        columns[column] = np.full(len(sheet), "", dtype=object) if isinstance(text, str) else text
    return columns


#: The columns of whole numbers, with the field of `JobSpec` and the least value of each.
_WORKLOAD_NUMBERS = (
    ("time", "submit_time_s", 0), ("num_replicas", "num_gpus", 1), ("batch_size", "batch_size", 0),
    ("duration", "duration_s", 0), ("attempts", "attempts", 1),
)  # fmt: skip


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
