"""The output of `sacct --json` as the rows that `sacct -P` would print."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from simsched.errors import input_error
from simsched.reading import read_json

#: The columns of the rows.
HEADER = (
    "JobID", "Submit", "Eligible", "Start", "End", "ElapsedRaw", "TimelimitRaw", "State", "AllocTRES", "ReqTRES",
    "Partition", "QOS", "Account", "User", "Priority", "NodeList", "Reservation", "Licenses", "SubmitLine",
)  # fmt: skip
_REMEDY = "print it again with `sacct --json`"


def rows_of(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield each job's 1-based position and cells; raises `InputError` if the file is not such output."""
    document = read_json(path, _REMEDY)
    jobs = document.get("jobs") if isinstance(document, dict) else None
    if not isinstance(jobs, list) or not jobs:
        raise input_error(path, "has no list 'jobs'", _REMEDY)
    for i, job in enumerate(jobs, 1):
        try:
            yield i, _cells(job)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise input_error(path, f"job {i} of the list is not as sacct writes it ({error})", _REMEDY) from None


def _cells(job: Mapping[str, Any]) -> list[str]:
    time, state, tres = job["time"], job["state"]["current"], job["tres"]
    reservation = job.get("reservation") or {}
    return [
        _name(job),
        *(_stamp(time.get(key)) for key in ("submission", "eligible", "start", "end")),
        str(time.get("elapsed", 0)),
        _number(time.get("limit")),
        state if isinstance(state, str) else state[0],
        _tres(tres.get("allocated")),
        _tres(tres.get("requested")),
        *(str(job.get(key) or "") for key in ("partition", "qos", "account", "user")),
        _number(job.get("priority")),
        str(job.get("nodes") or ""),
        reservation if isinstance(reservation, str) else str(reservation.get("name") or ""),
        str(job.get("licenses") or ""),
        str(job.get("submit_line") or ""),
    ]


def _name(job: Mapping[str, Any]) -> str:
    """Return a job's number, including its array task or its part of a heterogeneous job."""
    array, het = job.get("array") or {}, job.get("het") or {}
    task, part = _number(array.get("task_id")), _number(het.get("job_offset"))
    if array.get("job_id") and task:
        return f"{array['job_id']}_{task}"
    return f"{het['job_id']}+{part or 0}" if het.get("job_id") else str(job["job_id"])


def unwrapped(value: Any) -> Any:
    """Unwrap a number that newer versions flag as set and finite; None if it is not."""
    if isinstance(value, Mapping):
        return value.get("number") if value.get("set", True) and not value.get("infinite") else None
    return value


def _number(value: Any) -> str:
    value = unwrapped(value)
    return "" if value is None else str(value)


def _stamp(seconds: Any) -> str:
    number = _number(seconds)
    return datetime.fromtimestamp(int(number), UTC).isoformat() if number not in ("", "0") else "Unknown"


def _tres(parts: Any) -> str:
    """Format a list of resources like AllocTRES, with memory in MiB."""
    names = ((f"{one['type']}/{one['name']}" if one.get("name") else one["type"], one["count"]) for one in parts or ())
    return ",".join(f"{name}={count}{'M' if name == 'mem' else ''}" for name, count in names)
