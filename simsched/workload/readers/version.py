"""The optional first line of simsched's own CSV files that names the schema and its version."""

from __future__ import annotations

from pathlib import Path

from simsched.errors import input_error
from simsched.reading import first_lines

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
