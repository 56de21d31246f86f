"""Gavel's trace files: one job a line, fields separated by tabs, without a header."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

from simsched.errors import InputError, Problem
from simsched.reading import read_text
from simsched.workload.gavel.job import GavelJob
from simsched.workload.trace import MOST_SECONDS

#: Columns of Gavel's files; those of Shockwave have a mode after the GPUs and a duration before the arrival.
_GAVEL = ("template", "command", "directory", "steps_flag", "needs_data", "steps", "gpus", "weight", "slo", "arrival")
_SHOCKWAVE = (*_GAVEL[:7], "mode", "weight", "slo", "duration", "arrival")
_NUMBERS = {"steps": 0.0, "gpus": 1.0, "weight": 0.0, "slo": -1.0, "duration": 0.0, "arrival": 0.0}


def read_trace(path: Path) -> list[GavelJob]:
    """Read a trace of Gavel (10 columns) or Shockwave (12 columns); jobs are numbered from 0 in the file's order.

    Raises `InputError` with every wrong line.
    """
    lines = read_text(path).splitlines()
    problems: list[Problem] = []
    jobs: list[GavelJob] = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            job = _read_line(len(jobs), line, str(path), number, problems)
            jobs.append(job)
    if problems:
        raise InputError(*problems)
    return jobs


def _read_line(job_id: int, line: str, where: str, number: int, problems: list[Problem]) -> GavelJob:
    fields = line.split("\t")
    layout = {len(_GAVEL): _GAVEL, len(_SHOCKWAVE): _SHOCKWAVE}.get(len(fields))
    if layout is None:
        message = f"has {len(fields)} fields"
        problems.append(Problem(where, message, "a line has 10 (Gavel) or 12 (Shockwave), separated by tabs", number))
        return GavelJob(job_id, "", 1, 0.0)
    cell = dict(zip(layout, fields, strict=True))
    value: dict[str, float] = {}
    for name, least in _NUMBERS.items():
        value[name] = _number(cell.get(name, "0"), name, least if name in cell else 0.0, where, number, problems)
    return GavelJob(
        id=job_id,
        template=cell["template"],
        num_gpus=int(value["gpus"]),
        total_steps=value["steps"],
        arrival_s=value["arrival"],
        duration_s=value["duration"],
        weight=value["weight"],
        slo=value["slo"] if value["slo"] > 0 else None,
        mode=cell.get("mode", "static"),
        command=cell["command"],
        directory=cell["directory"],
        steps_flag=cell["steps_flag"],
        needs_data=cell["needs_data"] == "1",
    )


def _number(text: str, name: str, least: float, where: str, line: int, problems: list[Problem]) -> float:
    try:
        number = float(text)
    except ValueError:
        problems.append(Problem(where, f"{name} '{text}' is no number", "give a plain number", line))
        return 1.0
    whole = name != "gpus" or number % 1 == 0
    if not least <= number <= MOST_SECONDS or not whole:
        kind = "a whole number" if name == "gpus" else "a number"
        problems.append(Problem(where, f"{name} is {text}", f"give {kind} from {least:g} to {MOST_SECONDS:g}", line))
        return 1.0
    return number


def write_trace(path: Path, jobs: Iterable[GavelJob]) -> None:
    """Write jobs in Gavel's format (10 columns), or Shockwave's (12) where a job has a mode other than static.

    Numbers are written so that they are read back exactly.
    """
    jobs = list(jobs)
    wide = any(job.mode != "static" for job in jobs)
    path.write_text("".join("\t".join(_fields(job, wide=wide)) + "\n" for job in jobs), encoding="utf-8")


def _fields(job: GavelJob, *, wide: bool) -> list[str]:
    slo = -1.0 if job.slo is None else job.slo
    head = [job.template, job.command, job.directory, job.steps_flag, str(int(job.needs_data))]
    head += [_text(job.total_steps), str(job.num_gpus)]
    tail = [_text(job.weight), _text(slo)]
    if wide:
        return [*head, job.mode, *tail, _text(job.duration_s), _text(job.arrival_s)]
    return [*head, *tail, _text(job.arrival_s)]


def _text(number: float) -> str:
    return str(int(number)) if number == math.floor(number) else repr(number)
