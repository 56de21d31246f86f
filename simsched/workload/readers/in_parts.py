"""Reads a trace too large for memory part by part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from simsched.errors import InputError, Problem, input_error
from simsched.reading import open_text
from simsched.stops import scratch_folder
from simsched.workload.readers.any_format import read_trace
from simsched.workload.trace import Trace, seconds_of

#: Lines per part.
_LINES = 10_000


def trace_in_parts(path: Path, format: str = "auto", lines: int = _LINES) -> Iterator[Trace]:  # noqa: A002
    """Yield a trace of one job per line (`goes_by_row`) in parts, with the clock and names of the whole.

    Raises `InputError` as `read_trace` does, and if the file is not sorted by submission.
    """
    before: _Before | None = None
    with open_text(path) as stream, scratch_folder() as folder:
        head: list[str] = []
        for line in stream:
            head.append(line)
            if line.strip() and not line.startswith("#"):
                break
        part, done = folder / path.with_suffix("").name, 0
        while some := list(islice(stream, lines)):
            part.write_text("".join([*head, *some]), encoding="utf-8", newline="")
            try:
                read = read_trace(part, format)
            except InputError as error:
                raise InputError(*_located(error, path, part, len(head), done)) from None
            before = before or _Before(path, read)
            yield before.continued(read)
            done += len(some)
        if before is None:
            read_trace(path, format)  # raises for a file without jobs
            return
        before.check_names()


class _Before:
    """State of the previous parts: the start of the clock, the last submission, and the names."""

    def __init__(self, path: Path, first: Trace) -> None:
        self._path, self._origin, self._start_s = path, first.origin, first.start_s
        self._began_s = _began_s(first)
        self._last_s, self._jobs = 0, 0
        self._names: list[npt.NDArray[np.uint64]] = []

    def continued(self, part: Trace) -> Trace:
        later_s = _began_s(part) - self._began_s
        if later_s < self._last_s:
            message = "its jobs are not sorted by submission, so it cannot be read in parts"
            raise input_error(self._path, message, "`simsched trace convert` writes it sorted")
        table = part.table
        columns = dict(part.columns)
        columns["submit_time_s"] = table["submit_time_s"] + later_s
        columns["row"] = table["row"] + self._jobs
        numbers = pd.RangeIndex(len(table)).astype(str)
        if (table["job_id"].to_numpy() == ("job-" + numbers).to_numpy()).all():  # named by number
            columns["job_id"] = "job-" + (pd.Series(range(self._jobs, self._jobs + len(table))).astype(str))
        self._names.append(pd.util.hash_array(np.asarray(columns["job_id"], dtype=object), categorize=False))
        self._last_s = int(columns["submit_time_s"].iloc[-1])
        self._jobs += len(table)
        return replace(part, name=str(self._path), columns=columns, origin=self._origin, start_s=self._start_s)

    def check_names(self) -> None:
        names = np.concatenate(self._names)
        names.sort()
        if (names[1:] == names[:-1]).any():
            raise input_error(self._path, "two of its jobs have the same name", "give each its own")


def _began_s(part: Trace) -> int:
    return part.start_s if part.origin is None else seconds_of(part.origin)


def _located(error: InputError, path: Path, part: Path, head: int, done: int) -> list[Problem]:
    """Return the problems of a part, located in the whole file."""
    return [
        replace(one, where=one.where.replace(str(part), str(path)), line=one.line + done * (one.line > head))
        for one in error.problems
    ]
