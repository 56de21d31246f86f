"""Locates the jobs that a message names in their source file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from simsched.errors import Problem
from simsched.workload.readers import head_of, plain, read_trace
from simsched.workload.readers.artifact_lists import ARTIFACT_LISTS
from simsched.workload.readers.format import is_workload
from simsched.workload.readers.sheet import Sheet, open_sheet

_NAMED = re.compile(r"^workload, job '(.*)'$")
#: Formats with one job per line.
_LINE_BY_LINE = (plain.FORMAT.name, plain.PHILLY.name)


def located(problems: Iterable[Problem], file: Path) -> list[Problem]:
    """Add file and line to problems of single jobs if the file has one job per line; leave others unchanged."""
    found = list(problems)
    named = {problem: match.group(1) for problem in found if (match := _NAMED.match(problem.where))}
    if not named or not file.is_file():
        return found
    lines = _lines_of_jobs(file)
    return [_at(problem, file, lines.get(named.get(problem, ""), 0)) for problem in found]


def _at(problem: Problem, file: Path, line: int) -> Problem:
    if not line:
        return problem
    return replace(problem, where=str(file), line=line, message=f"{problem.where}: {problem.message}")


def _lines_of_jobs(file: Path) -> Mapping[str, int]:
    """Return the line of each job by its id; empty for formats that do not have one job per line."""
    head = head_of(file)
    column = "name" if is_workload(head) else next((one.id for one in ARTIFACT_LISTS if one.matches(head)), "")
    if column:
        sheet = open_sheet(file, ())
        return _lines(sheet, sheet.text(column), sheet.rows)
    trace = read_trace(file)
    if trace.source not in _LINE_BY_LINE:
        return {}
    return _lines(open_sheet(file, ()), trace.table["job_id"], trace.table["row"])


def _lines(sheet: Sheet, names: Iterable[str], rows: Iterable[int]) -> Mapping[str, int]:
    return {str(name): sheet.line(int(row)) for name, row in zip(names, rows, strict=True)}
