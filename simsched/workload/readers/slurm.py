"""Slurm's accounting: the output of `sacct -P`, with arrays, steps, requeued jobs and clock changes.

It uses JobID, Submit, Start, End, State and AllocTRES or ReqTRES (or AllocGRES, ReqGRES), and, if present, Eligible,
ElapsedRaw or Elapsed, TimelimitRaw or Timelimit, Partition, QOS, Account, User, Priority and NodeList.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pandas as pd

from simsched.errors import input_error, nearest
from simsched.reading import first_lines, unused
from simsched.workload.readers.clock import Clock
from simsched.workload.readers.format import Format, Head
from simsched.workload.readers.log import LOG_COLUMNS, LOG_SHAPES, ClusterLog, Limits, Sieve, finish, frame, read_lines
from simsched.workload.readers.slurm_json import HEADER, rows_of
from simsched.workload.readers.slurm_nodes import expand_nodes

Numbers = npt.NDArray[np.float64]

_REQUIRED = ("JobID", "Submit", "Start", "End", "State")
_TRES = ("AllocTRES", "ReqTRES", "AllocGRES", "ReqGRES")
#: Fields used if present; of each pair, the first.
_CHOICES = (("ElapsedRaw", "Elapsed"), ("TimelimitRaw", "Timelimit"), ("NNodes", "AllocNodes"), ("NCPUS", "AllocCPUS"))
_OPTIONAL = (
    "Eligible", "Partition", "QOS", "Account", "User", "Priority", "NodeList", "Reservation", "Licenses", "SubmitLine",
)  # fmt: skip
#: The other fields of sacct (`sacct --helpformat`), which a replay does not use.
_IDLE = (
    "AdminComment", "AllocCPUS", "AllocNodes", "AssocID", "AveCPU", "AveCPUFreq", "AveDiskRead", "AveDiskWrite",
    "AvePages", "AveRSS", "AveVMSize", "BlockID", "Cluster", "Comment", "Constraints", "ConsumedEnergy",
    "ConsumedEnergyRaw", "Container", "CPUTime", "CPUTimeRAW", "DBIndex", "DerivedExitCode", "Elapsed", "ExitCode",
    "Extra", "FailedNode", "Flags", "GID", "Group", "JobIDRaw", "JobName", "Layout", "MaxDiskRead",
    "MaxDiskReadNode", "MaxDiskReadTask", "MaxDiskWrite", "MaxDiskWriteNode", "MaxDiskWriteTask", "MaxPages",
    "MaxPagesNode", "MaxPagesTask", "MaxRSS", "MaxRSSNode", "MaxRSSTask", "MaxVMSize", "MaxVMSizeNode", "MaxVMSizeTask",
    "McsLabel", "MinCPU", "MinCPUNode", "MinCPUTask", "NCPUS", "NNodes", "NTasks", "Planned", "PlannedCPU",
    "PlannedCPURAW", "QOSRAW", "QOSREQ", "Reason", "ReqCPUFreq", "ReqCPUFreqGov", "ReqCPUFreqMax", "ReqCPUFreqMin",
    "ReqCPUS", "ReqMem", "ReqNodes", "ReservationId", "Reserved", "Restarts", "ResvCPU", "ResvCPURAW",
    "SegmentSize", "StdErr", "StdIn", "StdOut", "Suspended", "SystemComment", "SystemCPU", "Timelimit",
    "TotalCPU", "TRESUsageInAve", "TRESUsageInMax", "TRESUsageInMaxNode", "TRESUsageInMaxTask", "TRESUsageInMin",
    "TRESUsageInMinNode", "TRESUsageInMinTask", "TRESUsageInTot", "TRESUsageOutAve", "TRESUsageOutMax",
    "TRESUsageOutMaxNode", "TRESUsageOutMaxTask", "TRESUsageOutMin", "TRESUsageOutMinNode", "TRESUsageOutMinTask",
    "TRESUsageOutTot", "UID", "UserCPU", "WCKey", "WCKeyID", "WorkDir",
)  # fmt: skip
_STATUS: Mapping[str, str] = MappingProxyType(
    {"COMPLETED": "Pass", "CANCELLED": "Killed", "PREEMPTED": "Killed", "REQUEUED": "Killed", "DEADLINE": "Failed"}
    | dict.fromkeys(("FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL"), "Failed")
)
#: States after which Slurm restarts a job under the same number.
_AGAIN = frozenset({"REQUEUED", "PREEMPTED", "NODE_FAIL", "RESIZING"})
_GPU = re.compile(r"(?:gres/)?gpu(?::([^=:,()]+))?[=:]([0-9]+)")
_TRES_PART = re.compile(r"(?:^|,)(cpu|mem|node)=([0-9.]+)([KMGTP]?)")
#: Slurm's units of memory in MiB; MiB is the default.
_MIB = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2, "P": 1024**3, "": 1}
#: A slice of a GPU, such as 3g.20gb: three sevenths of it.
_SLICE = re.compile(r"(?:^|_)(\d)g\.\d+gb", re.IGNORECASE)
_EXCLUSIVE = re.compile(r"(?:^|\s)--exclusive(?:=user|=exclusive)?(?=\s|$)")
_TASKS_AT_ONCE = re.compile(r"(?:^|\s)(?:-a|--array)[= ]?[^\s%]+%(\d+)")
_AFTER = re.compile(r"(?:^|\s)(?:-d|--dependency)[= ]?(\S+)")
_DURATION = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)(?:\.\d+)?", re.ASCII)
#: Clocks change by multiples of a quarter of an hour, by at most this many seconds.
_QUARTER_S, _SHIFT_S = 900, 15 * 3600
_STEPS = "steps of jobs"
_SHIFTED = "jobs ran while the clock changed; their end is start plus elapsed time"
_MERGED = "jobs were requeued; their attempts are added up"
_HET = "parts of heterogeneous jobs were added up to one job each"
_REUSED = "job numbers were reused; all jobs but the first got a suffix"


def read_sacct(
    path: str | Path, *, time_zone: str = "UTC", limits: Limits | None = None, strict: bool = False
) -> ClusterLog:
    """Read the output of `sacct -P`, or of `sacct --json`.

    `time_zone` applies to timestamps without an offset. Invalid jobs are left out with reason and line (see `finish`);
    with `strict` they are errors. Raises `InputError` if the file cannot be read or lacks columns.
    """
    place = Path(path)
    header, rows = (list(HEADER), rows_of(place)) if _is_json(first_lines(place)) else read_lines(place, "|")
    return sacct_rows(place, header, rows, time_zone=time_zone, limits=limits, strict=strict)


def sacct_rows(
    place: Path,
    header: Sequence[str],
    rows: Iterable[tuple[int, Sequence[str]]],
    *,
    time_zone: str = "UTC",
    limits: Limits | None = None,
    strict: bool = False,
) -> ClusterLog:
    """Build a log from fields of sacct; each row comes with its line."""
    if header[-1] == "":  # sacct -p, unlike -P, ends every line with a separator
        header, rows = header[:-1], ((i, cells[:-1] if cells[-1] == "" else cells) for i, cells in rows)
    _require(place, header)
    blocks = _Blocks(Clock(place, time_zone))
    sieve = frame(place, header, rows, "JobID", blocks.convert)
    used = (*_REQUIRED, *_TRES, *_OPTIONAL, *(_chosen(header, pair) for pair in _CHOICES))
    left = unused(place, header, used, _IDLE)
    if "shifted" in sieve.table:
        sieve.mend(sieve.table.pop("shifted"), _SHIFTED)
    parts = _add_parts(sieve)
    merged, reused = _merge(sieve)
    adjusted = {_MERGED: merged, _REUSED: reused, _HET: parts}
    ignored = {_STEPS: blocks.steps}
    log = finish(sieve, "slurm", limits=limits, strict=strict, adjusted=adjusted, ignored=ignored)
    return replace(log, unused=left)


def _chosen(names: Collection[str], pair: Sequence[str]) -> str:
    """Return the first of several columns that exists; empty if none does."""
    return next((name for name in pair if name in names), "")


def _require(path: Path, header: Sequence[str]) -> None:
    missing = [name for name in _REQUIRED if name not in header]
    if not missing and any(name in header for name in _TRES):
        return
    name = missing[0] if missing else "AllocTRES"
    remedy = f"{nearest(name, header)}; ask sacct -P -X for --format={','.join((*_REQUIRED, 'AllocTRES'))}"
    raise input_error(path, f"column '{name}' is missing", remedy, line=1)


class _Blocks:
    """Converts blocks of text to the columns of a log; reuses results of earlier blocks."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tres: dict[tuple[str, ...], _Tres] = {}
        self._lines: dict[str, tuple[int, str, int]] = {}
        self._nodes: dict[str, str] = {}
        self.steps = 0

    def convert(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the jobs among the rows with corrected ends; `shifted` marks corrections, if they can be known."""
        steps = table["JobID"].str.contains(".", regex=False).to_numpy("bool")
        self.steps += int(steps.sum())
        table = table[~steps].reset_index(drop=True)
        lines = table["line"].to_numpy("int64")
        times = (("submit_s", "Submit"), ("start_s", "Start"), ("end_s", "End"), ("eligible_s", "Eligible"))
        for column, name in times:
            if name in table:
                table[column] = self._clock.seconds(table[name], lines)
        table["state"] = table["State"].str.split().str[0].fillna("")
        self._count_tres(table)
        limit = _chosen(table.columns, _CHOICES[1])
        if limit:
            table["time_limit_s"] = _seconds(table[limit], 60.0 if limit == _CHOICES[1][0] else 0.0)
        for column, name in (("queue", "Partition"), ("qos", "QOS"), ("account", "Account"), ("user", "User")):
            table[column] = table[name].str.strip() if name in table else ""
        table["array"] = table["job_id"].str.extract(r"^(\d+)_", expand=False).fillna("")
        if "Priority" in table:
            table["priority"] = pd.to_numeric(table["Priority"], errors="coerce").fillna(0.0)
        if "NodeList" in table:
            for text in table["NodeList"].unique():
                if text not in self._nodes:
                    self._nodes[text] = ",".join(expand_nodes(text))
            table["nodes"] = table["NodeList"].map(self._nodes)
        self._read_terms(table)
        _mend_ends(table)
        return table[[name for name in table if name in LOG_COLUMNS or name in (*LOG_SHAPES, "shifted")]]

    def _count_tres(self, table: pd.DataFrame) -> None:
        """Read GPUs, cores, memory and nodes; a job that ended as it started and got nothing never started."""
        known, found = self._tres, []
        names = [name for name in _TRES if name in table]
        for texts in zip(*(table[name] for name in names), strict=True):
            if texts not in known:
                known[texts] = _tres(texts)
            found.append(known[texts])
        for i, column in enumerate(("gpus", "gpu_type", "num_nodes", "cpu_milli", "memory_mib")):
            values = [one[i] for one in found]
            table[column] = pd.Series(values, dtype=str) if column == "gpu_type" else np.array(values, dtype=np.float64)
        for column, pair, unit in (("num_nodes", _CHOICES[2], 1), ("cpu_milli", _CHOICES[3], 1000)):
            name = _chosen(table.columns, pair)
            if name:
                counted = unit * pd.to_numeric(table[name], errors="coerce").fillna(0)
                table[column] = table[column].where(table[column] > 0, counted)
        given = [name for name in names if name.startswith("Alloc")]
        if given:
            nothing = (table[given] == "").all(axis=1) & (table["start_s"] == table["end_s"])
            table.loc[nothing, "start_s"] = np.nan

    def _read_terms(self, table: pd.DataFrame) -> None:
        """Read reservations and licences, and, from the command, exclusive nodes and dependencies."""
        if "Reservation" in table:
            table["reservation"] = table["Reservation"].str.strip()
        if "Licenses" in table:
            table["licences"] = table["Licenses"].str.replace(",", " ").str.replace(r"@\S*?(?=:|\s|$)", "", regex=True)
        if "SubmitLine" in table:
            for line in table["SubmitLine"].unique():
                if line not in self._lines:
                    after = _AFTER.search(line)
                    ids = re.findall(r"[:,?](\d+)", f":{after[1]}") if after is not None else []
                    tasks = _TASKS_AT_ONCE.search(line)
                    alone, at_once = int(_EXCLUSIVE.search(line) is not None), int(tasks[1]) if tasks is not None else 0
                    self._lines[line] = alone, " ".join(ids), at_once
            for i, column in enumerate(("exclusive", "after", "group_limit")):
                table[column] = table["SubmitLine"].map({line: one[i] for line, one in self._lines.items()})


#: GPUs, their type, nodes, thousandths of cores, MiB.
_Tres = tuple[float, str, int, int, int]


def _mend_ends(table: pd.DataFrame) -> None:
    """Set the end to start plus elapsed time where they differ by a clock change."""
    name = _chosen(table.columns, _CHOICES[0])
    if not name:
        return
    elapsed = _seconds(table[name], 1.0 if name == _CHOICES[0][0] else 0.0)
    gap = table["end_s"].to_numpy() - table["start_s"].to_numpy() - elapsed
    with np.errstate(invalid="ignore"):
        shifted = (np.abs(gap) <= _SHIFT_S) & (gap != 0) & (gap % _QUARTER_S == 0) & (elapsed > 0)
    table.loc[shifted, "end_s"] = table["start_s"].to_numpy()[shifted] + elapsed[shifted]
    table["shifted"] = shifted


def _seconds(text: pd.Series, unit_s: float) -> Numbers:
    """Convert durations such as 1-02:03:04, or plain numbers of `unit_s`, to seconds; other text becomes 0."""
    values = {entry: _duration(entry.strip(), unit_s) for entry in text.unique()}
    return text.map(values).to_numpy("float64")


def _duration(text: str, unit_s: float) -> float:
    if unit_s and text.isascii() and text.isdigit():
        return float(text) * unit_s
    match = _DURATION.fullmatch(text)
    if match is None:
        return 0.0
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _tres(texts: Sequence[str]) -> _Tres:
    """Read the first of several TRES texts that has GPUs, or else the first that is not empty."""
    text = next((text for text in texts if _GPU.search(text)), next((text for text in texts if text), ""))
    gpus, kind = _gpus(text)
    parts = {name: float(number) * (_MIB[unit] if name == "mem" else 1) for name, number, unit in _parts(text)}
    return gpus, kind, int(parts.get("node", 0)), round(1000 * parts.get("cpu", 0)), round(parts.get("mem", 0))


def _parts(text: str) -> list[tuple[str, str, str]]:
    return _TRES_PART.findall(text)


def _gpus(text: str) -> tuple[float, str]:
    """Count the GPUs of a TRES text, slices as parts of one, and name their type."""
    found = [(kind, float(count)) for kind, count in _GPU.findall(text)]
    slices = [(match, count) for kind, count in found if (match := _SLICE.search(kind))]
    if slices:
        return sum(int(match[1]) / 7 * count for match, count in slices), ""
    total = [count for kind, count in found if not kind]
    kinds = sorted({kind for kind, _ in found if kind})
    return total[0] if total else sum(count for _, count in found), "+".join(kinds)


def _add_parts(sieve: Sieve) -> int:
    """Merge the parts of heterogeneous jobs (123+0, 123+1) into one job each; return how many parts were merged.

    Parts with different numbers of GPUs per node have no uniform shape, so any nodes will do.
    """
    table = sieve.table
    het = table["job_id"].str.contains("+", regex=False).to_numpy("bool")
    if not het.any():
        return 0
    rows = table[het].copy()
    rows["job_id"] = rows["job_id"].str.partition("+")[0]
    sums, least = ("gpus", "num_nodes", "cpu_milli", "memory_mib"), ("submit_s", "start_s", "line")
    how = {name: "sum" if name in sums else "min" if name in least else "max" if name == "end_s" else "first"
           for name in rows if name != "job_id"}  # fmt: skip
    jobs = rows.groupby("job_id", sort=False)
    whole = jobs.agg(how).reset_index()
    each = (rows["gpus"] / rows["num_nodes"].clip(lower=1)).groupby(rows["job_id"], sort=False).nunique()
    whole.loc[whole["job_id"].map(each) > 1, "num_nodes"] = 0
    if "nodes" in whole:
        whole["nodes"] = whole["job_id"].map(jobs["nodes"].agg(",".join))
    sieve.table = pd.concat([table[~het], whole[table.columns]], ignore_index=True)
    return len(rows) - len(whole)


def _merge(sieve: Sieve) -> tuple[int, int]:
    """Merge the attempts of requeued jobs and rename jobs with reused numbers; return how many of each.

    Attempts are rows of one number in order of submission and start; all but the last ended in a state after which
    Slurm restarts the job. The last row represents the job, with the first submission and start.
    """
    table = sieve.table
    table["attempts"] = 1
    table["duration_s"] = table["end_s"] - table["start_s"]
    twice = table["job_id"].duplicated(keep=False).to_numpy("bool")
    merged = reused = 0
    if twice.any():
        rows = table[twice].sort_values(["job_id", "submit_s", "start_s", "line"], kind="stable", ignore_index=True)
        again = rows["state"].isin(_AGAIN).to_numpy("bool")
        job = rows["job_id"].ne(rows["job_id"].shift()).cumsum().to_numpy()
        begins = np.append(True, (job[1:] != job[:-1]) | ~again[:-1])
        first = np.flatnonzero(begins)
        number = np.arange(len(first)) - np.searchsorted(job[first], job[first])
        merged, reused = int((np.diff(first, append=len(rows)) > 1).sum()), int((number > 0).sum())
        table = pd.concat([table[~twice], _added(rows, first, number)], ignore_index=True)
    sieve.table = table.reset_index(drop=True)
    sieve.table["state"] = sieve.table["state"].map(_STATUS).fillna("")
    return merged, reused


def _added(rows: pd.DataFrame, first: npt.NDArray[np.int64], number: npt.NDArray[np.int64]) -> pd.DataFrame:
    """Merge each run of rows that begins at `first` into one; `number` counts the runs of one job number from 0."""
    last = np.append(first[1:], len(rows)) - 1
    found = rows.iloc[last].reset_index(drop=True)
    for column in ("submit_s", "line"):
        found[column] = np.fmin.reduceat(rows[column].to_numpy(), first)
    if "eligible_s" in rows:
        found["eligible_s"] = rows["eligible_s"].to_numpy()[first]
    start, lasts = rows["start_s"].to_numpy("float64"), rows["duration_s"].to_numpy("float64")
    started = np.isfinite(start)
    attempts = np.add.reduceat(started.astype("int64"), first)
    service = np.add.reduceat(np.where(started & np.isfinite(lasts), lasts, 0.0), first)
    found["start_s"] = np.fmin.reduceat(start, first)
    found["duration_s"] = np.where(attempts > 0, service, found["duration_s"])
    found["attempts"] = np.maximum(attempts, 1)
    suffix = [f"{name}#{place + 1}" if place else name for name, place in zip(found["job_id"], number, strict=True)]
    found["job_id"] = suffix
    return found


def _is_json(lines: Sequence[str]) -> bool:
    return next((line for line in lines if line.strip()), "").lstrip().startswith("{")


def _matches(head: Head) -> bool:
    names = head.line.split("|")
    if _is_json([head.line]) and (head.line.strip() == "{" or '"jobs"' in head.line or '"meta"' in head.line):
        return True
    return len(names) > 1 and all(name in names for name in _REQUIRED)


FORMAT = Format(
    "slurm",
    "Slurm accounting, sacct -P",
    "JobID|Submit|Start|End|State|AllocTRES|...",
    _matches,
    lambda path: read_sacct(path).jobs(),
)
