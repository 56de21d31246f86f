"""Logs in a single CSV table: jobs, pods and pod groups of Kubernetes, Helios, Acme, and Alibaba's two traces.

Shares of GPUs are kept as fractions. Invalid jobs are left out with a reason, as for every log. `read_log` reads these
and Slurm's, with the recorded waits.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pandas as pd

from simsched.errors import input_error, nearest
from simsched.reading import unused
from simsched.workload.readers import slurm
from simsched.workload.readers.clock import Clock
from simsched.workload.readers.format import Format, Head, Jobs
from simsched.workload.readers.log import ClusterLog, Limits, Sieve, finish, frame, read_lines
from simsched.workload.readers.slurm import read_sacct

Numbers = npt.NDArray[np.float64]

_STATUS: Mapping[str, str] = MappingProxyType(
    {"completed": "Pass", "succeeded": "Pass", "complete": "Pass", "terminated": "Pass", "pass": "Pass"}
    | {"cancelled": "Killed", "killed": "Killed", "evicted": "Killed", "preempted": "Killed", "deleted": "Killed"}
    | dict.fromkeys(("failed", "timeout", "node_fail", "out_of_memory", "error"), "Failed")
)
_GROUPED = "pods were merged into their jobs"
_WITHOUT = "parts of jobs that used no GPU"
_UNITS: Mapping[str, float] = MappingProxyType({"gpu": 1.0, "percent": 0.01, "milli": 0.001})


@dataclass(frozen=True)
class Layout:
    """How a table names the columns of a log: for each, its possible names in order of preference.

    `share` names a column that multiplies GPUs, in `share_unit`: GPUs, percent or milli. Rows of one `group` are one
    job. `header` applies to files without a header. `required` columns must be present; start and end may be missing if
    a duration is given, and then the wait is unknown. Times that are not `dated` are seconds from an unnamed day.
    `idle` columns are known but not used by a replay. A table with the `marks`, and without the column `unlike`, is
    of the layout; `about` names its trace and `shape` its header for users.
    """

    name: str
    about: str
    shape: str
    marks: Sequence[str]
    columns: Mapping[str, Sequence[str]]
    required: Sequence[str] = ("gpus", "submit_s", "start_s", "end_s")
    share: str = ""
    share_unit: str = "gpu"
    group: Sequence[str] = ()
    header: Sequence[str] = field(default=())
    dated: bool = True
    idle: Sequence[str] = ()
    unlike: str = ""

    def matches(self, head: Head) -> bool:
        """Return whether a file begins like such a table: with these columns, or with a row of PAI's states."""
        if self.header and len(cells := head.line.split(",")) == len(self.header) and cells[3] in _PAI_STATES:
            return True
        return self.unlike not in head.columns and self._has(head, self.marks)

    def records_waits(self, head: Head) -> bool:
        """Return whether such a table has starts and ends."""
        return bool(self.header) or self._has(head, ("start_s", "end_s"))

    def _has(self, head: Head, columns: Sequence[str]) -> bool:
        known = (self.columns.get(column, (column,)) for column in columns)
        return all(any(name in head.columns for name in names) for names in known)

    def read(self, path: Path) -> Jobs:
        """Read the jobs of a trace."""
        return read_table(path, self).jobs()


#: States of PAI's tasks, which identify its table without a header.
_PAI_STATES = frozenset({"Terminated", "Failed", "Running", "Waiting", "Interrupted"})
_TIMES: Mapping[str, Sequence[str]] = MappingProxyType(
    {"submit_s": ("submit_time",), "start_s": ("start_time",), "end_s": ("end_time",), "state": ("state",)}
)
#: Required columns of a table with durations.
_UNTIMED = ("gpus", "submit_s")
KUBERNETES = Layout(
    "kubernetes",
    "Kubernetes pods or jobs as a table",
    "CSV: name,namespace,gpus,created,started,finished[,queue,priority_class,priority,pod_group,phase,node]",
    ("gpus", "submit_s", "start_s", "end_s"),
    {
        "job_id": ("name", "job", "pod", "uid"),
        "gpus": ("gpus", "nvidia.com/gpu", "gpu_request", "gpu"),
        "submit_s": ("created", "creation_time", "creationTimestamp", "submitted"),
        "start_s": ("started", "start_time", "startTime", "scheduled"),
        "end_s": ("finished", "completion_time", "completionTime", "deleted"),
        "queue": ("queue", "local_queue", "kueue.x-k8s.io/queue-name"),
        "qos": ("priority_class", "priorityClassName"),
        "priority": ("priority",),
        "account": ("namespace",),
        "user": ("user", "owner"),
        "state": ("phase", "status"),
        "nodes": ("node", "nodeName"),
        "gpu_type": ("gpu_type", "flavor"),
        "time_limit_s": ("activeDeadlineSeconds", "time_limit_s"),
    },
    group=("pod_group", "podgroup", "job_group"),
)
HELIOS = Layout(
    "helios",
    "SenseTime Helios",
    "CSV: [job_id,user,vc,]gpu_num,state,submit_time,duration[,start_time]",
    ("gpu_num", "submit_time"),
    {**_TIMES, "job_id": ("job_id",), "gpus": ("gpu_num",), "account": ("vc",), "user": ("user",)},
    _UNTIMED,
    idle=("cpu_num", "node_num", "queue"),
)
ACME = Layout(
    "acme",
    "Shanghai AI Lab Acme (Seren, Kalos)",
    "CSV: job_id,user,node_num,gpu_num,type,state,submit_time,duration[,start_time]",
    ("gpu_num", "submit_time", "type", "node_num"),
    {**_TIMES, "job_id": ("job_id",), "gpus": ("gpu_num",), "user": ("user",), "qos": ("type",)},
    _UNTIMED,
    idle=(
        "cpu_num", "node_num", "queue", "gpu_time", "fail_time", "stop_time", "mem_per_pod_GB", "shared_mem_per_pod",
    ),
    unlike="vc",
)  # fmt: skip
PAI_2020 = Layout(
    "alibaba-pai",
    "Alibaba PAI, cluster-trace-gpu-v2020 (task table)",
    "CSV: job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type",
    ("job_name", "inst_num", "status", "start_time", "end_time", "plan_gpu"),
    {
        **_TIMES,
        "job_id": ("job_name",),
        "gpus": ("inst_num",),
        "submit_s": ("start_time",),
        "state": ("status",),
        "gpu_type": ("gpu_type",),
    },
    share="plan_gpu",
    share_unit="percent",
    group=("job_name",),
    header=(
        "job_name",
        "task_name",
        "inst_num",
        "status",
        "start_time",
        "end_time",
        "plan_cpu",
        "plan_mem",
        "plan_gpu",
        "gpu_type",
    ),
    dated=False,
    idle=("task_name", "plan_cpu", "plan_mem"),
)
OPENB_2023 = Layout(
    "alibaba-openb",
    "Alibaba cluster-trace-gpu-v2023 (openb pods)",
    "CSV: name,num_gpu,gpu_milli,qos,pod_phase,creation_time,deletion_time,scheduled_time,...",
    ("num_gpu", "gpu_milli", "creation_time", "deletion_time", "scheduled_time"),
    {
        "job_id": ("name",),
        "gpus": ("num_gpu",),
        "submit_s": ("creation_time",),
        "start_s": ("scheduled_time",),
        "end_s": ("deletion_time",),
        "account": ("qos",),
        "qos": ("qos",),
        "gpu_type": ("gpu_spec",),
        "state": ("pod_phase",),
    },
    share="gpu_milli",
    share_unit="milli",
    dated=False,
    idle=("cpu_milli", "memory_mib"),
)
#: In the order of detection.
LAYOUTS: Mapping[str, Layout] = MappingProxyType(
    {layout.name: layout for layout in (ACME, HELIOS, OPENB_2023, PAI_2020, KUBERNETES)}
)


def read_table(
    path: str | Path, layout: Layout, *, time_zone: str = "UTC", limits: Limits | None = None, strict: bool = False
) -> ClusterLog:
    """Read a CSV file (plain or .gz) of a layout.

    Times are timestamps or seconds; timestamps without an offset are in `time_zone`. Raises `InputError` if the file
    cannot be read or lacks columns, or, with `strict`, has invalid jobs.
    """
    place = Path(path)
    header, rows = _rows(place, layout)
    sieve = frame(place, header, rows, "job_id")
    names = {column: next((n for n in known if n in header), "") for column, known in layout.columns.items()}
    for column in layout.required:
        if not names.get(column):
            known = ", ".join(layout.columns[column])
            raise input_error(
                place, f"there is no column '{column}'", f"{nearest(known, header)} (one of {known})", line=1
            )
    table, clock = pd.DataFrame({"line": sieve.table["line"]}), Clock(place, time_zone)
    for column, name in names.items():
        if name:
            table[column] = _values(sieve.table[name], column, clock, table["line"].to_numpy("int64"))
    if "job_id" not in table:
        table["job_id"] = sieve.table["job_id"]
    if layout.required == _UNTIMED:
        _timed(place, table, header, sieve.table)
    if layout.share in sieve.table:
        share = pd.to_numeric(sieve.table[layout.share], errors="coerce").fillna(0.0)
        table["gpus"] *= share * _UNITS[layout.share_unit]
    group = next((name for name in layout.group if name in header), "")
    named = sieve.table[group] if group else None
    used = {*names.values(), layout.share, group, "duration" if layout.required == _UNTIMED else ""}
    left = unused(place, header, used, layout.idle)
    sieve.table = table
    grouped, without = (0, 0) if named is None else _group(sieve, named)
    sieve.drop(sieve.table["job_id"].duplicated(), "have the name of an earlier job")
    log = finish(
        sieve, layout.name, limits=limits, strict=strict, adjusted={_GROUPED: grouped}, ignored={_WITHOUT: without}
    )
    return replace(log, dated=layout.dated, unused=left)


#: The trace formats that are such tables.
FORMATS = tuple(Format(one.name, one.about, one.shape, one.matches, one.read) for one in LAYOUTS.values())


def _rows(path: Path, layout: Layout) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """Split a CSV file into fields; quoted ones may hold commas but no line breaks."""
    first, rest = read_lines(path, "\n")
    cells = ((i, next(csv.reader([line])) if '"' in line else line.split(",")) for i, (line,) in rest)
    header = next(csv.reader([first[0]])) if '"' in first[0] else first[0].split(",")
    if layout.header and layout.header[0] not in header:
        return list(layout.header), chain([(1, header)], cells)
    return [name.strip() for name in header], cells


def _values(cells: pd.Series, column: str, clock: Clock, lines: npt.NDArray[np.int64]) -> pd.Series | Numbers:
    text = cells.str.strip()
    if column in ("gpus", "priority", "time_limit_s"):
        numbers: pd.Series = pd.to_numeric(text, errors="coerce")
        return numbers if column == "gpus" else numbers.fillna(0.0)
    if column in ("submit_s", "start_s", "end_s"):
        return clock.seconds_or_counts(text, lines)
    if column == "state":
        states: pd.Series = text.str.lower().map(_STATUS).fillna("")
        return states
    return text


def _timed(path: Path, table: pd.DataFrame, header: Sequence[str], cells: pd.DataFrame) -> None:
    """Derive service times from the durations, and start and end if they are missing."""
    known = "duration" in header
    if not (known or {"start_s", "end_s"} <= set(table)):
        raise input_error(path, "no column says how long jobs ran", "give 'duration', or 'start_time' and 'end_time'")
    if not known:
        return
    duration_s = pd.to_numeric(cells["duration"], errors="coerce")
    if "start_s" not in table:
        table["start_s"] = table["submit_s"].where(duration_s.notna())
    if "end_s" not in table:
        table["end_s"] = np.floor(table["start_s"] + duration_s)
    table["duration_s"] = duration_s.fillna(table["end_s"] - table["start_s"])


def _group(sieve: Sieve, group: pd.Series) -> tuple[int, int]:
    """Merge the rows of a group into one job, from its first submission and start to its last end.

    Returns how many rows were merged, and how many rows without a GPU were left out.
    """
    table = sieve.table.copy()
    named = group.str.strip().to_numpy("str")
    table["job_id"] = np.where(named != "", named, table["job_id"].to_numpy("str"))
    with_gpus = set(table["job_id"][table["gpus"] > 0])
    apart = ~(table["gpus"] > 0) & table["job_id"].isin(with_gpus)
    table = table[~apart]
    first = {column: "first" for column in table if column not in ("job_id", "gpus", "end_s", "submit_s", "start_s")}
    jobs = table.groupby("job_id", sort=False)
    whole = jobs.agg({"gpus": "sum", "submit_s": "min", "start_s": "min", "end_s": "max", **first}).reset_index()
    open_end = table[table["end_s"].isna()]["job_id"].unique()
    whole.loc[whole["job_id"].isin(open_end), "end_s"] = np.nan
    if "state" in table:
        order = {"": 0, "Failed": 1, "Killed": 2, "Pass": 3}
        worst = table["state"].map(order).groupby(table["job_id"], sort=False).min()
        whole["state"] = whole["job_id"].map(worst.map({rank: state for state, rank in order.items()}))
    sieve.table = whole
    return len(table) - len(whole), int(apart.sum())


#: The names of the layouts of logs, for users.
NAMES = ("slurm", *LAYOUTS)


def layout_of(head: Head) -> Layout | None:
    """Detect the layout of a log in a table from its beginning; None if it is unknown, or records no waits."""
    return next((one for one in LAYOUTS.values() if one.matches(head) and one.records_waits(head)), None)


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
