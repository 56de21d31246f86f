"""simsched's trace CSV, version 1: `submit_time,num_gpus,duration` and optional columns (see docs/formats.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd

from simsched.errors import Problem, nearest
from simsched.workload.readers.clock import Clock
from simsched.workload.readers.format import Format, Jobs, check_version
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
