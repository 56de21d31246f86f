"""Gavel's job types (OSDI'20) and trace files, also those of Shockwave (NSDI'23); the recipe `gavel` draws jobs.

A trace file has one job per line, tab-separated, without a header; Shockwave's has two more columns: the rule by which
a job changes its batch size, and the duration that its generator drew. The table of rates is in
`simsched.applications`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from simsched.errors import InputError, Problem, input_error
from simsched.model import JobSpec
from simsched.reading import read_text
from simsched.workload.readers.format import Head
from simsched.workload.trace import MOST_SECONDS

_BATCH_SIZES = {
    "ResNet-18": (16, 32, 64, 128, 256),
    "ResNet-50": (16, 32, 64, 128),
    "Transformer": (16, 32, 64, 128, 256),
    "LM": (5, 10, 20, 40, 80),
    "Recommendation": (512, 1024, 2048, 4096, 8192),
}

#: The 26 job types in the order of Gavel's job table; the generator's draws depend on this order.
TEMPLATES = (
    *(f"{model} (batch size {size})" for model, sizes in _BATCH_SIZES.items() for size in sizes),
    "A3C",
    "CycleGAN",
)

#: The 19 job types that may use several GPUs.
DISTRIBUTED = frozenset(
    name for name in TEMPLATES if name.split(" ")[0] in ("ResNet-18", "ResNet-50", "Transformer", "LM")
)

#: A job type and its number of GPUs.
Kind = tuple[str, int]
_TEMPLATE = re.compile(r"(?P<model>\S+?)(?: \(batch size (?P<batch>\d+)\))?")


def split_template(template: str) -> tuple[str, int]:
    """Return model and batch size of a job type such as `LM (batch size 10)`; batch size 0 if it names none.

    Raises `ValueError` if the text is not a job type.
    """
    match = _TEMPLATE.fullmatch(template)
    if match is None:
        raise ValueError(f"'{template}' is not a job type such as 'LM (batch size 10)'")
    return match["model"], int(match["batch"] or 0)


_GAVEL = (
    "job type", "command", "directory", "steps flag", "needs data", "total steps", "GPUs", "weight", "SLO", "arrival",
)  # fmt: skip
_SHOCKWAVE = (*_GAVEL[:7], "batch rule", "weight", "SLO", "duration", "arrival")
#: Numeric columns with the minimum of each.
_NUMBERS = {"total steps": 1, "GPUs": 1, "weight": 0, "SLO": -MOST_SECONDS, "duration": 0, "arrival": 0}
_BATCH_RULES = ("static", "accordion", "gns")


def is_gavel_trace(head: Head) -> bool:
    """Return whether the first line is that of a Gavel trace."""
    cells = head.line.split("\t")
    try:
        return len(cells) == len(_GAVEL) and bool(split_template(cells[0]))
    except ValueError:
        return False


def is_shockwave_trace(head: Head) -> bool:
    """Return whether the first line is that of a Shockwave trace."""
    cells = head.line.split("\t")
    return len(cells) == len(_SHOCKWAVE) and cells[7] in _BATCH_RULES


def read_gavel_jobs(path: Path) -> list[JobSpec]:
    """Read a Gavel trace in order of submission; jobs are named by their position in the file, counted from 0.

    Raises `InputError` with every problem by line, and if the file is missing or empty.
    """
    return _read_lines(path, _GAVEL)


def read_shockwave_jobs(path: Path) -> list[JobSpec]:
    """Read a Shockwave trace as `read_gavel_jobs` does; the SLO is a deadline in seconds, none if negative."""
    return _read_lines(path, _SHOCKWAVE)


def _read_lines(path: Path, columns: Sequence[str]) -> list[JobSpec]:
    jobs: list[JobSpec] = []
    problems: list[Problem] = []
    remedy = f"a line has {len(columns)} tab-separated columns: {', '.join(columns)}"
    for line, text in enumerate(read_text(path).splitlines(), start=1):
        if text.strip():
            try:
                jobs.append(_job_of(str(len(jobs)), text.split("\t"), columns))
            except ValueError as error:
                problems.append(Problem(str(path), str(error), remedy, line))
    if problems:
        raise InputError(*problems)
    if not jobs:
        raise input_error(path, "the trace is empty", "give a trace with at least one job")
    return sorted(jobs, key=lambda job: job.submit_time_s)


def _job_of(name: str, cells: Sequence[str], columns: Sequence[str]) -> JobSpec:
    if len(cells) != len(columns):
        raise ValueError(f"the line has {len(cells)} columns, not {len(columns)}")
    cell = dict(zip(columns, cells, strict=True))
    rule = cell.get("batch rule", "")
    if rule and rule not in _BATCH_RULES:
        raise ValueError(f"'{rule}' is not a batch rule; known: {', '.join(_BATCH_RULES)}")
    model, batch = split_template(cell["job type"])
    value = {column: _number(column, cell[column]) for column in columns if column in _NUMBERS}
    steps = value["total steps"]
    has_deadline = "duration" in cell and value["SLO"] >= 0  # Gavel's SLO is a multiple of a duration that it omits
    return JobSpec(
        name,
        value["arrival"],
        int(value["GPUs"]),
        model,
        batch,
        value.get("duration", 0.0),
        deadline_s=value["SLO"] if has_deadline else None,
        batch_rule=rule,
        weight=value["weight"],
        total_steps=int(steps) if steps.is_integer() else steps,
    )


def _number(column: str, text: str) -> float:
    least = _NUMBERS[column]
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{column} '{text:.40}' is not a number") from None
    if not least <= value <= MOST_SECONDS or (column == "GPUs" and value % 1):
        kind = "a whole number" if column == "GPUs" else "a number"
        raise ValueError(f"{column} is {text:.40}, not {kind} from {least:g} to {MOST_SECONDS:g}")
    return value
