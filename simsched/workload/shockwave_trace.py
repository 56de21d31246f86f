"""Reader of Shockwave's traces (NSDI'23, artifact): Gavel's format with two columns more.

These are the rule by which a job changes its batch and its nominal duration.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from simsched.errors import InputError, Problem, input_error
from simsched.model import JobSpec
from simsched.reading import read_text
from simsched.workload.readers.format import Head
from simsched.workload.trace import MOST_SECONDS

COLUMNS = (
    "job type", "command", "directory", "steps flag", "needs data", "total steps", "GPUs", "batch rule", "weight",
    "SLO", "duration", "arrival",
)  # fmt: skip
BATCH_RULES = ("static", "accordion", "gns")

_TYPE = re.compile(r"(?P<model>\S+)(?: \(batch size (?P<batch>\d+)\))?")


@dataclass(frozen=True)
class StepsJob:
    """A job that knows its steps: what it trains, on how many GPUs, and by which rule its batch changes.

    `batch_size` is 0 where the type names none; `deadline_s` is the SLO in seconds, None where the trace has -1;
    `nominal_s` is the duration that the trace's generator drew.
    """

    model: str
    batch_size: int
    total_steps: int
    num_gpus: int
    batch_rule: str
    weight: float
    deadline_s: float | None
    nominal_s: float
    submit_time_s: float


def read_shockwave_trace(path: Path) -> tuple[StepsJob, ...]:
    """Read a trace of tab-separated lines, in the order of the file.

    Raises `InputError` that names every malformed line, or a missing or empty file.
    """
    jobs: list[StepsJob] = []
    problems: list[Problem] = []
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        try:
            jobs.append(_job(line.split("\t")))
        except ValueError as error:
            remedy = f"a line has {len(COLUMNS)} tab-separated columns: {', '.join(COLUMNS)}"
            problems.append(Problem(str(path), str(error), remedy, number))
    if problems:
        raise InputError(*problems)
    if not jobs:
        raise input_error(path, "the trace is empty", "give a trace with at least one job")
    return tuple(jobs)


def is_shockwave_trace(head: Head) -> bool:
    """Return whether a file is such a trace, by its first line."""
    cells = head.line.split("\t")
    return len(cells) == len(COLUMNS) and cells[7] in BATCH_RULES


def read_shockwave_jobs(path: Path) -> list[JobSpec]:
    """Read a trace as a list of jobs in order of submission, named by their place in the file from 0."""
    numbered = sorted(enumerate(read_shockwave_trace(path)), key=lambda row: row[1].submit_time_s)
    return [
        JobSpec(
            str(number),
            job.submit_time_s,
            job.num_gpus,
            job.model,
            job.batch_size,
            job.nominal_s,
            deadline_s=job.deadline_s,
            batch_rule=job.batch_rule,
            weight=job.weight,
            total_steps=job.total_steps,
        )
        for number, job in numbered
    ]


def _job(cells: list[str]) -> StepsJob:
    if len(cells) != len(COLUMNS):
        raise ValueError(f"the line has {len(cells)} columns, not {len(COLUMNS)}")
    kind, *_, steps, gpus, rule, weight, slo, nominal, arrival = cells
    model, batch = _model(kind)
    if rule not in BATCH_RULES:
        raise ValueError(f"'{rule}' is no batch rule; known: {', '.join(BATCH_RULES)}")
    deadline = _bounded(slo)
    job = StepsJob(
        model, batch, _whole(steps), _whole(gpus), rule, _bounded(weight),
        None if deadline < 0 else deadline, _bounded(nominal), _bounded(arrival),
    )  # fmt: skip
    if job.total_steps < 1 or job.num_gpus < 1 or not job.submit_time_s >= 0:
        raise ValueError("steps and GPUs must be at least 1, the arrival at least 0")
    return job


def _bounded(text: str) -> float:
    value = float(text)
    if not abs(value) <= MOST_SECONDS:
        raise ValueError(f"'{text:.40}' is no number up to {MOST_SECONDS:g}")
    return value


def _whole(text: str) -> int:
    value = int(text)
    _bounded(text)
    return value


def _model(kind: str) -> tuple[str, int]:
    match = _TYPE.fullmatch(kind)
    if match is None:
        raise ValueError(f"'{kind}' is no job type such as 'LM (batch size 10)'")
    return match["model"], int(match["batch"] or 0)
