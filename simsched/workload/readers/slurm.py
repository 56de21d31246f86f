"""Slurm's accounting: the output of `sacct -P`, with arrays, steps, requeued jobs, and clocks that were changed.

Used are JobID, Submit, Start, End, State and AllocTRES or ReqTRES (or AllocGRES, ReqGRES), and where they are there
Eligible, ElapsedRaw or Elapsed, Timelimit or TimelimitRaw, Partition, QOS, Account, User, Priority and NodeList.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pandas as pd

from simsched.errors import input_error, nearest
from simsched.workload.readers.format import Format, Head, Jobs
from simsched.workload.readers.log import LOG_COLUMNS, ClusterLog, Limits, Sieve, finish, frame, read_lines
from simsched.workload.readers.slurm_nodes import expand_nodes
from simsched.workload.trace import EPOCH

Numbers = npt.NDArray[np.float64]

_REQUIRED = ("JobID", "Submit", "Start", "End", "State")
_TRES = ("AllocTRES", "ReqTRES", "AllocGRES", "ReqGRES")
_STATUS: Mapping[str, str] = MappingProxyType(
    {"COMPLETED": "Pass", "CANCELLED": "Killed", "PREEMPTED": "Killed", "REQUEUED": "Killed", "DEADLINE": "Failed"}
    | dict.fromkeys(("FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL"), "Failed")
)
#: States after which Slurm starts a job again under the same number.
_AGAIN = frozenset({"REQUEUED", "PREEMPTED", "NODE_FAIL", "RESIZING"})
_GPU = re.compile(r"(?:gres/)?gpu(?::([^=:,()]+))?[=:](\d+)")
_DURATION = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)(?:\.\d+)?")
#: Clocks are changed by multiples of a quarter of an hour, at most this many seconds.
_QUARTER_S, _SHIFT_S = 900, 15 * 3600
_STEPS = "steps of jobs"
_SHIFTED = "jobs ran while the clock was changed; their end is start plus elapsed time"
_MERGED = "jobs were requeued; their attempts are added up"
_REUSED = "job numbers occur for several jobs; all but the first got a suffix"


def read_sacct(
    path: str | Path, *, time_zone: str = "UTC", limits: Limits | None = None, strict: bool = False
) -> ClusterLog:
    """Read the output of `sacct -P`.

    `time_zone` is that of timestamps without an offset. Jobs that make no sense are left out with reason and line, see
    `finish`; `strict` makes them an error. Raises `InputError` for a file that cannot be read or lacks columns.
    """
    place = Path(path)
    header, rows = read_lines(place, "|")
    if header[-1] == "":  # sacct -p, unlike -P, ends every line with a separator
        header, rows = header[:-1], ((i, cells[:-1] if cells[-1] == "" else cells) for i, cells in rows)
    _require(place, header)
    sieve = frame(place, header, rows, "JobID")
    steps = sieve.table["JobID"].str.contains(".", regex=False).to_numpy("bool")
    sieve.table = sieve.table[~steps].reset_index(drop=True)
    _zone(place, time_zone)
    _convert(sieve, time_zone)
    merged, reused = _merge(sieve)
    adjusted = {_MERGED: merged, _REUSED: reused}
    ignored = {_STEPS: int(steps.sum())}
    return finish(sieve, "slurm", limits=limits, strict=strict, adjusted=adjusted, ignored=ignored)


def _require(path: Path, header: Sequence[str]) -> None:
    missing = [name for name in _REQUIRED if name not in header]
    if not missing and any(name in header for name in _TRES):
        return
    name = missing[0] if missing else "AllocTRES"
    remedy = f"{nearest(name, header)}; ask sacct -P -X for --format={','.join((*_REQUIRED, 'AllocTRES'))}"
    raise input_error(path, f"column '{name}' is missing", remedy, line=1)


def _zone(path: Path, name: str) -> None:
    try:
        pd.Timestamp("2000-01-01").tz_localize(name)
    except (KeyError, ValueError, OSError):
        raise input_error(path, f"'{name}' is no time zone", "name one such as Europe/Berlin or UTC") from None


def _convert(sieve: Sieve, time_zone: str) -> None:
    """Turn text into the columns of a log, and mend ends."""
    table = sieve.table
    for column, name in (("submit_s", "Submit"), ("start_s", "Start"), ("end_s", "End"), ("eligible_s", "Eligible")):
        if name in table:
            table[column] = moments(table[name], time_zone)
    table["state"] = table["State"].str.split().str[0].fillna("")
    known: dict[tuple[str, ...], tuple[float, str]] = {}
    found: list[tuple[float, str]] = []
    for texts in zip(*(table[name] for name in _TRES if name in table), strict=True):
        if texts not in known:
            known[texts] = _gpus(texts)
        found.append(known[texts])
    table["gpus"], table["gpu_type"] = [count for count, _ in found], [kind for _, kind in found]
    raw = {"TimelimitRaw": 60.0, "Timelimit": 0.0}
    name = next((name for name in raw if name in table), "")
    if name:
        table["time_limit_s"] = _seconds(table[name], raw[name])
    for column, name in (("queue", "Partition"), ("qos", "QOS"), ("account", "Account"), ("user", "User")):
        table[column] = table[name].str.strip() if name in table else ""
    table["array"] = table["job_id"].str.extract(r"^(\d+)_", expand=False).fillna("")
    if "Priority" in table:
        table["priority"] = pd.to_numeric(table["Priority"], errors="coerce").fillna(0.0)
    if "NodeList" in table:
        names = {text: ",".join(expand_nodes(text)) for text in table["NodeList"].unique()}
        table["nodes"] = table["NodeList"].map(names)
    _mend_ends(sieve)
    sieve.table = table[[name for name in table if name in LOG_COLUMNS]]  # the text is no longer needed


def _mend_ends(sieve: Sieve) -> None:
    """Set the end to start plus elapsed time where they differ by what clocks are changed by."""
    table = sieve.table
    name = next((name for name in ("ElapsedRaw", "Elapsed") if name in table), "")
    if not name:
        return
    elapsed = _seconds(table[name], 1.0 if name == "ElapsedRaw" else 0.0)
    gap = table["end_s"].to_numpy() - table["start_s"].to_numpy() - elapsed
    with np.errstate(invalid="ignore"):
        shifted = (np.abs(gap) <= _SHIFT_S) & (gap != 0) & (gap % _QUARTER_S == 0) & (elapsed > 0)
    table.loc[shifted, "end_s"] = table["start_s"].to_numpy()[shifted] + elapsed[shifted]
    sieve.mend(shifted, _SHIFTED)


def moments(text: pd.Series, time_zone: str) -> Numbers:
    """Turn timestamps into seconds since 1970-01-01 UTC, NaN where there is none such as Unknown.

    Those with an offset keep it; others are of `time_zone`. Of an hour that comes twice the first is meant, one that
    is skipped begins after the skip.
    """
    text = text.str.strip()
    offset = text.str.contains(r"(?:Z|[+-]\d\d:?\d\d)$", regex=True).to_numpy("bool")
    found = np.full(len(text), np.nan)
    for mask, local in ((offset, False), (~offset, True)):
        if not mask.any():
            continue
        stamps = pd.to_datetime(text[mask], errors="coerce", format="ISO8601", utc=not local)
        if local:
            twice = np.ones(len(stamps), dtype=bool)
            stamps = stamps.dt.tz_localize(time_zone, ambiguous=twice, nonexistent="shift_forward").dt.tz_convert("UTC")
        plain = stamps.dt.tz_localize(None)
        found[mask] = ((plain - EPOCH) / pd.Timedelta(seconds=1)).to_numpy("float64")
    return found


def _seconds(text: pd.Series, unit_s: float) -> Numbers:
    """Turn durations such as 1-02:03:04 into seconds, or plain numbers of `unit_s`; what is none becomes 0."""
    values = {entry: _duration(entry.strip(), unit_s) for entry in text.unique()}
    return text.map(values).to_numpy("float64")


def _duration(text: str, unit_s: float) -> float:
    if unit_s and text.isdigit():
        return float(text) * unit_s
    match = _DURATION.fullmatch(text)
    if match is None:
        return 0.0
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _gpus(texts: Sequence[str]) -> tuple[float, str]:
    """Count the GPUs of the first of several TRES texts that has any, and name their type."""
    for text in texts:
        found = _GPU.findall(text)
        if found:
            total = [int(count) for kind, count in found if not kind]
            kinds = sorted({kind for kind, _ in found if kind})
            return float(total[0] if total else sum(int(count) for _, count in found)), "+".join(kinds)
    return 0.0, ""


def _merge(sieve: Sieve) -> tuple[int, int]:
    """Add up the attempts of requeued jobs and tell jobs of one number apart; returns how many of each."""
    table = sieve.table
    table["attempts"] = 1
    table["duration_s"] = table["end_s"] - table["start_s"]
    twice = table["job_id"].duplicated(keep=False).to_numpy("bool")
    merged, reused, parts = 0, 0, [table[~twice]]
    for name, rows in table[twice].groupby("job_id", sort=True):
        runs = _runs(rows.sort_values(["submit_s", "start_s", "line"], kind="stable"))
        for number, run in enumerate(runs):
            one = _added(run)
            if number:
                one["job_id"] = f"{name}#{number + 1}"
            parts.append(one)
        reused += len(runs) - 1
        merged += sum(len(run) > 1 for run in runs)
    sieve.table = pd.concat(parts, ignore_index=True)
    sieve.table["state"] = sieve.table["state"].map(_STATUS).fillna("")
    return merged, reused


def _runs(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """Cut the rows of a number where one did not end in a state after which Slurm starts the job again."""
    again = rows["state"].isin(_AGAIN).to_numpy("bool")
    cuts = [i + 1 for i in range(len(rows) - 1) if not again[i]]
    return [rows.iloc[a:b] for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]


def _added(rows: pd.DataFrame) -> pd.DataFrame:
    started = rows[rows["start_s"].notna()]
    last = rows.iloc[[-1]].copy()
    last["submit_s"] = rows["submit_s"].min()
    last["line"] = rows["line"].min()
    if "eligible_s" in rows:
        last["eligible_s"] = rows["eligible_s"].iloc[0]
    if len(started):
        last["start_s"] = started["start_s"].min()
        last["duration_s"] = started["duration_s"].sum()
        last["attempts"] = len(started)
    return last


def _matches(head: Head) -> bool:
    names = head.line.split("|")
    return len(names) > 1 and all(name in names for name in _REQUIRED)


def _read(path: Path) -> Jobs:
    return read_sacct(path).jobs()


FORMAT = Format("slurm", "Slurm accounting, sacct -P", "JobID|Submit|Start|End|State|AllocTRES|...", _matches, _read)
