"""Reader of Shockwave's traces and of the table of rates that goes with them (NSDI'23, artifact).

Both are Gavel's formats; the trace has two columns more, the rule by which a job changes its batch and its nominal
duration.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from simsched.errors import InputError, Problem, input_error

COLUMNS = (
    "job type", "command", "directory", "steps flag", "needs data", "total steps", "GPUs", "batch rule", "weight",
    "SLO", "duration", "arrival",
)  # fmt: skip
BATCH_RULES = ("static", "accordion", "gns")

_TYPE = re.compile(r"(?P<model>\S+)(?: \(batch size (?P<batch>\d+)\))?")
_ROW = re.compile(r"\('(?P<type>[^']+)', (?P<gpus>\d+)\)")

#: Model, batch size (0 where the type names none) and GPUs.
RateKey = tuple[str, int, int]


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
    for number, line in enumerate(_text(path).splitlines(), start=1):
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


def _job(cells: list[str]) -> StepsJob:
    if len(cells) != len(COLUMNS):
        raise ValueError(f"the line has {len(cells)} columns, not {len(COLUMNS)}")
    kind, *_, steps, gpus, rule, weight, slo, nominal, arrival = cells
    model, batch = _model(kind)
    if rule not in BATCH_RULES:
        raise ValueError(f"'{rule}' is no batch rule; known: {', '.join(BATCH_RULES)}")
    deadline = float(slo)
    job = StepsJob(
        model, batch, int(steps), int(gpus), rule, float(weight),
        None if deadline < 0 else deadline, float(nominal), float(arrival),
    )  # fmt: skip
    if job.total_steps < 1 or job.num_gpus < 1 or not job.submit_time_s >= 0:
        raise ValueError("steps and GPUs must be at least 1, the arrival at least 0")
    return job


def _model(kind: str) -> tuple[str, int]:
    match = _TYPE.fullmatch(kind)
    if match is None:
        raise ValueError(f"'{kind}' is no job type such as 'LM (batch size 10)'")
    return match["model"], int(match["batch"] or 0)


def read_rates(path: Path, gpu_type: str = "v100") -> Mapping[RateKey, float]:
    """Read the steps per second of jobs that run alone on GPUs of one type, by model, batch size and GPUs.

    Rates of 0 (out of memory, or never measured) are left out. Raises `InputError` for a file that is no such table.
    """
    try:
        table = json.loads(_text(path))
    except json.JSONDecodeError as error:
        raise input_error(
            path, f"this is no JSON: {error.msg}", "give a table of throughputs", line=error.lineno
        ) from error
    if not isinstance(table, dict) or not isinstance(table.get(gpu_type), dict):
        known = ", ".join(sorted(table)) if isinstance(table, dict) else "none"
        raise input_error(path, f"the table has no GPU type '{gpu_type}'", f"it has: {known}")
    return MappingProxyType(dict(_alone(path, row, entry) for row, entry in table[gpu_type].items() if _rate(entry)))


def _rate(entry: Any) -> float:
    rate = entry.get("null", 0.0) if isinstance(entry, dict) else 0.0
    return float(rate) if isinstance(rate, int | float) and rate > 0 else 0.0


def _alone(path: Path, row: str, entry: Any) -> tuple[RateKey, float]:
    match = _ROW.fullmatch(row)
    kind = _TYPE.fullmatch(match["type"]) if match else None
    if match is None or kind is None:
        raise input_error(path, f'"{row}" is no row', "a row reads \"('LM (batch size 10)', 1)\": job type and GPUs")
    return (kind["model"], int(kind["batch"] or 0), int(match["gpus"])), _rate(entry)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise input_error(path, f"the file cannot be read: {reason}", "name a readable file") from error
