"""Readers of cluster traces and of lists of jobs: one function tells the format by the content and reads it.

The readers themselves, which need pandas, are loaded when a file is read.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from simsched.workload.readers.format import Format, Head
from simsched.workload.readers.head import head_of

if TYPE_CHECKING:
    from simsched.workload.trace import Trace

__all__ = ["Format", "Head", "head_of", "read_trace"]


def read_trace(path: str | Path, format: str = "auto") -> Trace:  # noqa: A002 - the name that users write
    """Read a trace in any known format, told by its content unless `format` names it.

    `path` is a file (plain or .gz), or a folder whose CSV files all belong to one trace, such as the ten clusters of
    Microsoft ITP. Raises `InputError` for a missing, empty, truncated or malformed file and for an unknown format.
    """
    from simsched.workload.readers.any_format import read_trace as read

    return read(path, format)
