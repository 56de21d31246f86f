"""The official Philly log `cluster_job_log`: one JSON array of jobs with all their scheduling attempts.

Times are strings without a zone, most likely UTC; a missing one is the *string* "None". A job that never started has no
attempts. A machine may occur several times in one attempt. The array is not sorted. (Jeon et al., ATC'19.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

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


def _read(path: Path) -> Jobs:
    """Read the jobs that ran; service is the sum over attempts with known start and end."""
    records = read_json(path, "fetch the file again; a whole log ends with ]")
    if not isinstance(records, list):
        raise input_error(path, "the JSON is not an array", "give the log as one array of jobs")
    jobs, attempts, keys = _tables(path, records)
    problems: list[Problem] = []
    jobs["submitted_s"] = _seconds(path, jobs, "submitted_time", problems)
    for name in ("start", "end"):
        attempts[f"{name}_s"] = _seconds(path, attempts, f"{name}_time", problems)
    problems.extend(_wrong_values(path, jobs, attempts))
    raise_all(str(path), iter(problems))
    attempts["service_s"] = attempts["end_s"] - attempts["start_s"]
    timed = attempts.dropna(subset="service_s").groupby("row")["service_s"]
    texts = timed.agg(lambda service_s: " ".join(f"{one:g}" for one in service_s) if len(service_s) > 1 else "")
    jobs["duration_s"], jobs["attempts_s"] = timed.sum(), texts
    reasons = {
        "submission not recorded": jobs["submitted_s"].isna(),
        "never started": jobs["attempts"] == 0,
        "no attempt with both a start and an end": jobs["duration_s"].isna(),
        "no GPU listed": jobs["num_gpus"] == 0,
    }
    dropped = {}
    for reason, mask in reasons.items():
        dropped[reason] = int(mask[jobs.index].sum())
        jobs = jobs[~mask[jobs.index]]
    columns = {name: jobs[name].to_numpy() for name in (*_COLUMNS, "duration_s", "attempts_s")}
    whole = {**columns, "submit_time_s": jobs["submitted_s"].to_numpy(), "row": jobs.index.to_numpy()}
    return Jobs(whole, EPOCH, dropped, unused=unused(path, keys, _USED, _IDLE, "key"))


#: The columns of a job that are as in the log.
_COLUMNS = ("job_id", "num_gpus", "tenant", "user", "status", "attempts")


def _tables(path: Path, records: list[Any]) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, object]]:
    """Return a table of jobs and one of attempts, both with the `row` of the job, and all keys that the log has."""
    jobs: list[tuple[Any, ...]] = []
    attempts: list[tuple[Any, ...]] = []
    keys: dict[str, object] = {}
    for row, record in enumerate(records):
        try:
            keys.update(record)
            own = record["attempts"]
            for attempt in own:
                keys.update(attempt)
                attempts.append((row, str(record["jobid"]), attempt["start_time"], attempt["end_time"]))
            texts = (str(record["status"]), str(record.get("vc") or ""), str(record.get("user") or ""))
            jobs.append((row, str(record["jobid"]), record["submitted_time"], *texts, _gpus_of(own), len(own)))
        except KeyError as error:
            raise _unlike(path, row, f"key {error} is missing") from None
        except (AttributeError, TypeError, ValueError, RecursionError):
            raise _unlike(path, row, "is not a job with attempts as the official log has them") from None
    names = ["row", "job_id", "submitted_time", "status", "tenant", "user", "num_gpus", "attempts"]
    of_jobs = pd.DataFrame(jobs, columns=names).set_index("row", drop=False)
    return of_jobs, pd.DataFrame(attempts, columns=["row", "job_id", "start_time", "end_time"]), keys


def _gpus_of(attempts: Sequence[dict[str, Any]]) -> int:
    """Return the number of GPUs of the first attempt that lists any; repeated machines count each time."""
    counts = (sum(len(container["gpus"]) for container in attempt["detail"]) for attempt in attempts)
    return next((gpus for gpus in counts if gpus), 0)


def _unlike(path: Path, index: int, what: str) -> InputError:
    remedy = "a job has status, vc, jobid, attempts, submitted_time, user; an attempt start_time, end_time, detail"
    return input_error(path, f"record {index + 1}: {what}", remedy)


def _seconds(path: Path, table: pd.DataFrame, key: str, problems: list[Problem]) -> pd.Series:
    """Convert time strings to seconds since 1970-01-01, NaN for "None"."""
    texts = table[key].astype(object)
    missing = texts.isna() | texts.isin(["None", ""])
    moments = pd.to_datetime(texts.mask(missing, None), errors="coerce", format=_STYLE)
    wrong = table.loc[moments.isna() & ~missing, ["row", "job_id", key]]
    for row, job_id, text in wrong.to_numpy().tolist():
        message = f"record {row + 1} ({job_id}): {key} '{text}' is not a time such as 2017-10-07 01:11:39"
        problems.append(Problem(str(path), message, _REMEDY))
    seconds: pd.Series = (moments - EPOCH) / pd.Timedelta(seconds=1)
    return seconds


def _wrong_values(path: Path, jobs: pd.DataFrame, attempts: pd.DataFrame) -> Iterator[Problem]:
    back = attempts[attempts["end_s"] < attempts["start_s"]][["row", "job_id", "end_time", "start_time"]]
    said = [
        (row, job_id, f"an attempt ends ({end}) before it starts ({start})")
        for row, job_id, end, start in back.to_numpy().tolist()
    ]
    other = jobs[~jobs["status"].isin(STATUSES)][["row", "job_id", "status"]]
    said += [
        (row, job_id, f"status '{status}' is not one of {', '.join(STATUSES)}")
        for row, job_id, status in other.to_numpy().tolist()
    ]
    for row, job_id, message in said:
        yield Problem(str(path), f"record {row + 1} ({job_id}): {message}", _REMEDY)


FORMAT = Format(
    "philly-json",
    "Philly, official cluster_job_log",
    'JSON: [{"status", "vc", "jobid", "attempts": [{"start_time", "end_time", "detail": ...}], "submitted_time", ...}]',
    lambda head: head.line.lstrip().startswith("["),
    _read,
)
