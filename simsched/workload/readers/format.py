"""What a reader of a trace format is, and the beginning of a file, by which its format is told; loads no pandas."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from simsched.errors import input_error
from simsched.reading import first_lines


@dataclass(frozen=True)
class Head:
    """The beginning of a file: its first line that is not a comment, and the column names if that is a CSV header."""

    line: str
    columns: frozenset[str]

    def has(self, *columns: str) -> bool:
        """Return whether the file is a CSV with all these columns."""
        return self.columns.issuperset(columns)


@dataclass(frozen=True)
class Jobs:
    """What a reader found in one file: columns of `simsched.workload.trace.COLUMNS`, on the clock of the file.

    `origin` is the time of second 0 of that clock, None where the file names no day. `examples` are the first rows
    left out or mended for a reason, by line and job, where the reader keeps them. `unused` names the columns that it
    does not read.
    """

    columns: Mapping[str, Any]
    origin: datetime | None
    dropped: Mapping[str, int] = field(default_factory=dict)
    adjusted: Mapping[str, int] = field(default_factory=dict)
    examples: Mapping[str, tuple[tuple[int, str], ...]] = field(default_factory=dict)
    unused: tuple[str, ...] = ()


@dataclass(frozen=True)
class Format:
    """A trace format that simsched reads.

    `shape` says in one line what a file of it looks like; `matches` recognises one by its beginning. Where it goes
    `by_row`, each line after the header is one job, whatever the others say.
    """

    name: str
    about: str
    shape: str
    matches: Callable[[Head], bool]
    read: Callable[[Path], Jobs]
    by_row: bool = False


#: What a list of jobs in simsched's own layout calls itself in its first line.
WORKLOAD_KIND = "simsched-workload"


def head_of(path: Path) -> Head:
    """Read as much of a file as is needed to tell its format; raises `InputError` for an empty or unreadable one."""
    lines = [line for line in first_lines(path) if line.strip()]
    if not lines:
        raise input_error(path, "the file is empty", "give a trace with at least one job")
    line = next((line for line in lines if not line.startswith("#")), lines[0])
    return Head(line, frozenset(name.strip().strip('"\ufeff') for name in line.split(",")))


def is_workload(head: Head) -> bool:
    """Return whether a file is a list of jobs (workload CSV), by its beginning."""
    return head.has("name", "time", "num_replicas") or WORKLOAD_KIND in head.line


def workload_files(folder: Path) -> list[Path]:
    """List the CSV files of a folder of lists of jobs, `workload-2` before `workload-10`.

    Raises `InputError` where there is none.
    """
    files = sorted(folder.glob("*.csv"), key=_by_number)
    if not files:
        raise input_error(folder, "holds no CSV file", "name a workload CSV or a folder of them")
    return files


def _by_number(path: Path) -> list[tuple[int, str]]:
    """Order names so that runs of digits compare as numbers."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", path.name)]


#: The version of simsched's own CSV files, which their optional first line names beside the schema.
VERSION = 1


def version_line(kind: str) -> str:
    """Return the line that marks a file, such as `# simsched-trace 1`."""
    return f"# {kind} {VERSION}"


def check_version(path: Path, kind: str) -> None:
    """Refuse a file that names another schema or a version that this simsched does not know."""
    for line in first_lines(path):
        words = line.lstrip("#").split()
        if not line.startswith("#") or not words or not words[0].startswith("simsched-"):
            continue
        if words != [kind, str(VERSION)]:
            message = f"the first line says '{' '.join(words)}', and this reads '{kind} {VERSION}'"
            raise input_error(path, message, f"write it as '{version_line(kind)}', or use a newer simsched", line=1)
