"""The beginning of a file, by which its format is told; nothing of it needs a reader to be loaded."""

from __future__ import annotations

import re
from pathlib import Path

from simsched.errors import input_error
from simsched.reading import first_lines
from simsched.workload.readers.format import Head

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
