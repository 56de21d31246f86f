"""Job lists: Pollux's published workload CSV, or simsched's with more columns (see docs/formats.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from simsched.errors import Problem
from simsched.model import FIXED_DURATION, JobSpec
from simsched.workload.readers.format import WORKLOAD_KIND, check_version
from simsched.workload.readers.plain import blame_unknown_columns
from simsched.workload.readers.sheet import Sheet, open_sheet
from simsched.workload.trace import STATUSES

REQUIRED = ("name", "time", "application", "num_replicas", "batch_size")
OPTIONAL = ("duration", "tenant", "user", "status", "attempts")


def read_workload(path: Path) -> list[JobSpec]:
    """Read a job list in order of submission; ties keep the order of the file.

    The `name` of a row is the job's id. Raises `InputError` naming line and column of every wrong value.
    """
    check_version(path, WORKLOAD_KIND)
    sheet = open_sheet(path, REQUIRED)
    blame_unknown_columns(sheet, (*REQUIRED, *OPTIONAL))
    columns = _columns(sheet)
    sheet.check()
    order = np.argsort(columns["submit_time_s"], kind="stable")
    return JobSpec.of_columns(
        len(order), {name: np.asarray(column)[order].tolist() for name, column in columns.items()}
    )


def _columns(sheet: Sheet) -> dict[str, Any]:
    """Convert the cells to fields of `JobSpec`."""
    size = len(sheet)
    sheet.blame("application", sheet.missing("application"), "is missing")
    application = np.asarray(sheet.text("application"), dtype=object)
    columns: dict[str, Any] = {
        "id": sheet.unique("name"),
        "submit_time_s": _whole(sheet, "time", 0),
        "application": application,
        "num_gpus": _whole(sheet, "num_replicas", 1),
        "batch_size": _whole(sheet, "batch_size", 0),
    }
    fixed = application == FIXED_DURATION
    if "duration" in sheet:
        columns["duration_s"] = _whole(sheet, "duration", 0)
        sheet.blame("duration", fixed & (columns["duration_s"] < 1), f"must be at least 1 for '{FIXED_DURATION}'")
    elif fixed.any():
        message = f"column 'duration' is missing, but jobs of '{FIXED_DURATION}' need it"
        sheet.problems.append(Problem(str(sheet.path), message, "add their service time in seconds"))
    if "attempts" in sheet:
        columns["attempts"] = _whole(sheet, "attempts", 1)
    for column in ("tenant", "user", "status"):
        text = sheet.one_of(column, STATUSES) if column == "status" else sheet.text(column)
        columns[column] = np.full(size, "", dtype=object) if isinstance(text, str) else text
    return columns


def _whole(sheet: Sheet, column: str, least: int) -> Any:
    """Read a column of whole numbers; wrong cells are 0 until the sheet is checked."""
    return np.nan_to_num(sheet.number(column, least=least, whole=True), posinf=0, neginf=0).astype(np.int64)
