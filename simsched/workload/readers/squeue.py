"""A snapshot of Slurm's queue: the output of `squeue --json`, with Slurm's estimates of starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from simsched.errors import input_error
from simsched.reading import read_json
from simsched.workload.readers.log import ClusterLog
from simsched.workload.readers.slurm import sacct_rows
from simsched.workload.readers.slurm_json import unwrapped

#: The fields of sacct that squeue provides.
_HEADER = (
    "JobID", "Submit", "Eligible", "Start", "End", "State", "AllocTRES", "ReqTRES", "Timelimit", "Partition", "QOS",
    "Account", "User", "NNodes", "NCPUS", "NodeList", "Priority",
)  # fmt: skip
_RUNS, _WAITS = frozenset({"RUNNING", "SUSPENDED", "COMPLETING"}), frozenset({"PENDING", "REQUEUED"})
_REMEDY = "give the output of `squeue --json`"


@dataclass(frozen=True)
class SlurmQueue:
    """A queue at second `now_s` since 1970: its jobs, all in the `still` of the log, and estimated starts by job."""

    log: ClusterLog
    now_s: int
    estimates: Mapping[str, int]


def read_squeue(path: str | Path, *, now_s: int | None = None) -> SlurmQueue:
    """Read the output of `squeue --json`; `now_s` is needed for versions that do not record the time.

    Raises `InputError` if the file is not such output or holds no job with GPUs.
    """
    place = Path(path)
    data = read_json(place, _REMEDY)
    jobs = data.get("jobs") if isinstance(data, dict) else None
    if not isinstance(jobs, list) or not all(isinstance(job, dict) and "job_id" in job for job in jobs):
        raise input_error(place, "has no list 'jobs' with a job_id each", _REMEDY)
    rows = list(_rows(jobs))
    log = sacct_rows(place, _HEADER, rows)
    now = now_s or _number(data.get("last_update")) or log.last_s
    waits = {cells[0] for _, cells in rows if cells[5] == "PENDING"}
    starts = {_name(job): _number(job.get("start_time")) for job in jobs}
    return SlurmQueue(log, now, {name: start for name, start in starts.items() if name in waits and start})


def _rows(jobs: list[dict[str, Any]]) -> Iterator[tuple[int, list[str]]]:
    for line, job in enumerate(jobs, 1):
        state = _state(job)
        if state not in _RUNS | _WAITS:
            continue
        runs = state in _RUNS
        start = _clock(job.get("start_time")) if runs else "Unknown"
        minutes = _number(job.get("time_limit"))
        limit = f"{minutes // 1440}-{minutes // 60 % 24:02d}:{minutes % 60:02d}:00" if minutes else "UNLIMITED"
        submit = _clock(job.get("submit_time"))
        eligible = _clock(job.get("eligible_time"))
        texts = [_name(job), submit, submit if eligible == "Unknown" else eligible, start, "Unknown"]
        texts += ["RUNNING" if runs else "PENDING", _text(job, "tres_alloc_str"), _text(job, "tres_req_str"), limit]
        texts += [_text(job, key) for key in ("partition", "qos", "account", "user_name")]
        counts = [_number(job.get(key)) for key in ("node_count", "cpus")]
        texts += [*(str(count) if count else "" for count in counts), _text(job, "nodes") if runs else ""]
        yield line, [*texts, str(_number(job.get("priority")))]


def _name(job: Mapping[str, Any]) -> str:
    """Return a job's name as sacct writes it: an array task by its array and number."""
    array, task = _number(job.get("array_job_id")), job.get("array_task_id")
    number = task.get("number") if isinstance(task, dict) and task.get("set") else task
    return f"{array}_{number}" if array and isinstance(number, int) else str(job["job_id"])


def _state(job: Mapping[str, Any]) -> str:
    state = job.get("job_state", "")
    return str(state[0] if isinstance(state, list) and state else state)


def _text(job: Mapping[str, Any], key: str) -> str:
    value = job.get(key)
    return value if isinstance(value, str) else ""


def _number(value: object) -> int:
    """Return a whole number; 0 if there is none."""
    value = unwrapped(value)
    return int(value) if isinstance(value, int | float) and 0 <= value < 1e12 else 0


def _clock(value: object) -> str:
    second = _number(value)
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if second else "Unknown"
