"""Reads the log of a cluster's scheduler in any known layout, with the recorded waits."""

from __future__ import annotations

from pathlib import Path

from simsched.errors import input_error, nearest
from simsched.workload.readers import slurm
from simsched.workload.readers.format import Head
from simsched.workload.readers.log import ClusterLog, Limits
from simsched.workload.readers.slurm import read_sacct
from simsched.workload.readers.tables import (
    ACME,
    HELIOS,
    KUBERNETES,
    LAYOUTS,
    OPENB_2023,
    PAI_2020,
    Layout,
    is_kubernetes,
    is_pai_task,
    read_table,
)

#: The names of the layouts of logs, for users.
NAMES = ("slurm", *LAYOUTS)


def layout_of(head: Head) -> Layout | None:
    """Detect the layout of a table from its beginning; None if it is unknown."""
    if head.has("gpu_milli", "creation_time"):
        return OPENB_2023
    if is_pai_task(head):
        return PAI_2020
    if head.has("gpu_num", "submit_time", "start_time", "end_time"):
        return HELIOS if head.has("vc") else ACME
    return KUBERNETES if is_kubernetes(head) else None


def is_log(head: Head) -> bool:
    """Return whether a file begins like a log that records waits."""
    return slurm.FORMAT.matches(head) or layout_of(head) is not None


def read_log(
    path: str | Path,
    head: Head,
    *,
    layout: str = "auto",
    time_zone: str = "UTC",
    limits: Limits | None = None,
    strict: bool = False,
) -> ClusterLog:
    """Read a log; `layout` names its layout, which is detected by default.

    Invalid jobs are left out and counted; with `strict` they are errors. Raises `InputError` if the file cannot be read
    or is not a log.
    """
    if layout not in ("auto", *NAMES):
        raise input_error("format", f"'{layout}' is not a layout of a log", nearest(layout, ["auto", *NAMES]))
    if layout == "slurm" or (layout == "auto" and slurm.FORMAT.matches(head)):
        return read_sacct(path, time_zone=time_zone, limits=limits, strict=strict)
    found = layout_of(head) if layout == "auto" else LAYOUTS[layout]
    if found is None:
        remedy = "give `sacct -P` output or a table of jobs with submission, start and end (docs/operators.md)"
        raise input_error(path, "is not a log with recorded waits", remedy, line=1)
    return read_table(path, found, time_zone=time_zone, limits=limits, strict=strict)
