"""What a reader of a trace format is: a name, a way to recognise it, and a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Head:
    """The beginning of a file: its first line that is no comment, and the column names if that is a CSV header."""

    line: str
    columns: frozenset[str]

    def has(self, *columns: str) -> bool:
        """Return whether the file is a CSV with all these columns."""
        return self.columns.issuperset(columns)


@dataclass(frozen=True)
class Jobs:
    """What a reader found in one file: columns of `simsched.workload.trace.COLUMNS`, on the clock of the file.

    `origin` is the time of second 0 of that clock, None where the file names no day. `examples` are the first rows
    left out or mended for a reason, by line and job, where the reader keeps them. `unused` names the columns of the
    file that it makes nothing of.
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

    `shape` says in one line what a file of it looks like; `matches` recognises one by its beginning.
    """

    name: str
    about: str
    shape: str
    matches: Callable[[Head], bool]
    read: Callable[[Path], Jobs]
