"""The official Philly log `cluster_job_log`: one JSON array of jobs with all their scheduling attempts.

Times are strings without a zone, most likely UTC; a missing one is the *string* "None". A job that never started has no
attempts. A machine may occur several times in one attempt. The array is not sorted. (Jeon et al., ATC'19.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from simsched.errors import InputError, Problem, input_error
from simsched.reading import read_json, unused
from simsched.workload.readers.format import Format, Jobs
from simsched.workload.trace import EPOCH, STATUSES, raise_all

_STYLE = "%Y-%m-%d %H:%M:%S"
_REMEDY = "correct or remove the record"
#: The fields read from a job, its attempts and their machines, and the unused ones: addresses.
_USED = ("status", "vc", "jobid", "attempts", "submitted_time", "user", "start_time", "end_time", "detail", "gpus")
_IDLE = ("ip",)


@dataclass
class _Log:
    """The log as columns: one entry per job, and one entry per attempt with the index of its job."""

    job_id: list[str] = field(default_factory=list)
    submitted: list[str | None] = field(default_factory=list)
    status: list[str] = field(default_factory=list)
    tenant: list[str] = field(default_factory=list)
    user: list[str] = field(default_factory=list)
    gpus: list[int] = field(default_factory=list)
    attempts: list[int] = field(default_factory=list)
    owner: list[int] = field(default_factory=list)
    start: list[str | None] = field(default_factory=list)
    end: list[str | None] = field(default_factory=list)
    keys: dict[str, object] = field(default_factory=dict)

    def add(self, record: dict[str, Any]) -> None:
        """Append one job; raises `KeyError`, `TypeError` or `ValueError` if the record has another form."""
        attempts = record["attempts"]
        self.keys.update(record)
        for attempt in attempts:
            self.keys.update(attempt)
            self.owner.append(len(self.job_id))
            self.start.append(attempt["start_time"])
            self.end.append(attempt["end_time"])
        self.gpus.append(_gpus_of(attempts))
        self.attempts.append(len(attempts))
        self.submitted.append(record["submitted_time"])
        self.status.append(str(record["status"]))
        self.tenant.append(str(record.get("vc") or ""))
        self.user.append(str(record.get("user") or ""))
        self.job_id.append(str(record["jobid"]))


def _gpus_of(attempts: Sequence[dict[str, Any]]) -> int:
    """Return the number of GPUs of the first attempt that lists any; repeated machines count each time."""
    counts = (sum(len(container["gpus"]) for container in attempt["detail"]) for attempt in attempts)
    return next((gpus for gpus in counts if gpus), 0)


def _read(path: Path) -> Jobs:
    """Read the jobs that ran; service is the sum over attempts with known start and end."""
    records = read_json(path, "fetch the file again; a whole log ends with ]")
    if not isinstance(records, list):
        raise input_error(path, "the JSON is not an array", "give the log as one array of jobs")
    log = _collect(path, records)
    count = len(log.job_id)
    problems: list[Problem] = []
    submitted = _seconds(path, log.submitted, "submitted_time", log, range(count), problems)
    start = _seconds(path, log.start, "start_time", log, log.owner, problems)
    end = _seconds(path, log.end, "end_time", log, log.owner, problems)
    problems.extend(_wrong_values(path, log, start, end))
    raise_all(str(path), iter(problems))
    both = ~np.isnan(start) & ~np.isnan(end)
    owner = np.asarray(log.owner, dtype=np.int64)[both]
    service = np.bincount(owner, weights=(end - start)[both], minlength=count)
    seconds = _attempt_seconds(owner, (end - start)[both], count)
    timed = np.bincount(owner, minlength=count) > 0
    gpus = np.asarray(log.gpus)
    attempts = np.asarray(log.attempts)
    keep, dropped = _sift(
        ("submission not recorded", np.isnan(submitted)),
        ("never started", attempts == 0),
        ("no attempt with both a start and an end", ~timed),
        ("no GPU listed", gpus == 0),
    )
    columns = {
        "job_id": np.asarray(log.job_id, dtype=object)[keep],
        "submit_time_s": submitted[keep],
        "duration_s": service[keep],
        "num_gpus": gpus[keep],
        "tenant": np.asarray(log.tenant, dtype=object)[keep],
        "user": np.asarray(log.user, dtype=object)[keep],
        "status": np.asarray(log.status, dtype=object)[keep],
        "attempts": attempts[keep],
        "attempts_s": seconds[keep],
        "row": np.flatnonzero(keep),
    }
    return Jobs(columns, EPOCH, dropped, unused=unused(path, log.keys, _USED, _IDLE, "key"))


def _attempt_seconds(
    owner: npt.NDArray[np.int64], service: npt.NDArray[np.float64], count: int
) -> npt.NDArray[np.object_]:
    """Return the seconds of each job's attempts as text, in the order of the log, if there are several."""
    parts: list[list[str]] = [[] for _ in range(count)]
    for job, seconds in zip(owner.tolist(), service.tolist(), strict=True):
        parts[job].append(f"{seconds:g}")
    return np.array([" ".join(texts) if len(texts) > 1 else "" for texts in parts], dtype=object)


def _collect(path: Path, records: list[Any]) -> _Log:
    log = _Log()
    for i, record in enumerate(records):
        try:
            log.add(record)
        except KeyError as error:
            raise _unlike(path, i, f"key {error} is missing") from None
        except (AttributeError, TypeError, ValueError, RecursionError):
            raise _unlike(path, i, "is not a job with attempts as the official log has them") from None
    return log


def _unlike(path: Path, index: int, what: str) -> InputError:
    remedy = "a job has status, vc, jobid, attempts, submitted_time, user; an attempt start_time, end_time, detail"
    return input_error(path, f"record {index + 1}: {what}", remedy)


def _seconds(
    path: Path, texts: Sequence[str | None], key: str, log: _Log, owners: Sequence[int], problems: list[Problem]
) -> npt.NDArray[np.float64]:
    """Convert time strings to seconds since 1970-01-01, NaN for "None"."""
    column = pd.Series(list(texts), dtype=object)
    missing = (column.isna() | column.isin(["None", ""])).to_numpy("bool")
    moments = pd.to_datetime(column.mask(missing, None), errors="coerce", format=_STYLE)
    for i in np.flatnonzero(moments.isna().to_numpy() & ~missing).tolist():
        message = f"{_record(log, owners[i])}: {key} '{texts[i]}' is not a time such as 2017-10-07 01:11:39"
        problems.append(Problem(str(path), message, _REMEDY))
    return ((moments - EPOCH) / pd.Timedelta(seconds=1)).to_numpy("float64").astype(np.float64)


def _wrong_values(
    path: Path, log: _Log, start: npt.NDArray[np.float64], end: npt.NDArray[np.float64]
) -> Iterator[Problem]:
    for i in np.flatnonzero(end < start).tolist():
        message = f"{_record(log, log.owner[i])}: an attempt ends ({log.end[i]}) before it starts ({log.start[i]})"
        yield Problem(str(path), message, _REMEDY)
    for i, status in enumerate(log.status):
        if status not in STATUSES:
            message = f"{_record(log, i)}: status '{status}' is not one of {', '.join(STATUSES)}"
            yield Problem(str(path), message, _REMEDY)


def _record(log: _Log, index: int) -> str:
    return f"record {index + 1} ({log.job_id[index]})"


def _sift(*reasons: tuple[str, npt.NDArray[np.bool_]]) -> tuple[npt.NDArray[np.bool_], dict[str, int]]:
    """Count each dropped row under its first reason; return a mask of the rows to keep and the counts."""
    keep = np.ones(len(reasons[0][1]), dtype=bool)
    dropped = {}
    for reason, mask in reasons:
        dropped[reason] = int((keep & mask).sum())
        keep &= ~mask
    return keep, dropped


FORMAT = Format(
    "philly-json",
    "Philly, official cluster_job_log",
    'JSON: [{"status", "vc", "jobid", "attempts": [{"start_time", "end_time", "detail": ...}], "submitted_time", ...}]',
    lambda head: head.line.lstrip().startswith("["),
    _read,
)
