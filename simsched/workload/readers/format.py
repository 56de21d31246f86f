"""The interface of a trace reader, and the first lines of a file, which identify its format; does not load pandas."""

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
    """The jobs of one file: columns of `simsched.workload.trace.COLUMNS`, on the file's clock.

    `origin` is the time of second 0 of that clock, None if the file names no day. `examples` are the first rows left
    out or corrected for each reason, by line and job, if the reader keeps them. `unused` names the columns that it does
    not read.
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

    `shape` describes the layout in one line; `matches` recognises a file by its beginning. If `by_row`, each line after
    the header is one job, independent of the other lines.
    """

    name: str
    about: str
    shape: str
    matches: Callable[[Head], bool]
    read: Callable[[Path], Jobs]
    by_row: bool = False


#: The name that a list of jobs in simsched's layout has in its first line.
WORKLOAD_KIND = "simsched-workload"


def head_of(path: Path) -> Head:
    """Read enough of a file to detect its format; raises `InputError` if it is empty or unreadable."""
    lines = [line for line in first_lines(path) if line.strip()]
    if not lines:
        raise input_error(path, "the file is empty", "give a trace with at least one job")
    line = next((line for line in lines if not line.startswith("#")), lines[0])
    return Head(line, frozenset(name.strip().strip('"\ufeff') for name in line.split(",")))


def is_workload(head: Head) -> bool:
    """Return whether the beginning of a file is that of a list of jobs (workload CSV)."""
    return head.has("name", "time", "num_replicas") or WORKLOAD_KIND in head.line


def workload_files(folder: Path) -> list[Path]:
    """List the CSV files in a folder of job lists, `workload-2` before `workload-10`.

    Raises `InputError` if there is none.
    """
    files = sorted(folder.glob("*.csv"), key=_by_number)
    if not files:
        raise input_error(folder, "holds no CSV file", "name a workload CSV or a folder of them")
    return files


def _by_number(path: Path) -> list[tuple[int, str]]:
    """Return a sort key that compares runs of digits as numbers."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", path.name)]


#: The version of simsched's CSV files, which their optional first line names together with the schema.
VERSION = 1


def version_line(kind: str) -> str:
    """Return the line that identifies a file, such as `# simsched-trace 1`."""
    return f"# {kind} {VERSION}"


def check_version(path: Path, kind: str) -> None:
    """Reject a file that names another schema or an unknown version."""
    for line in first_lines(path):
        words = line.lstrip("#").split()
        if not line.startswith("#") or not words or not words[0].startswith("simsched-"):
            continue
        if words != [kind, str(VERSION)]:
            message = f"the first line says '{' '.join(words)}', but this reads '{kind} {VERSION}'"
            raise input_error(path, message, f"write it as '{version_line(kind)}', or use a newer simsched", line=1)
