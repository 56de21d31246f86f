"""Files that appear whole or not at all: they are written aside and renamed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """Yield the path of a hidden file beside `path` to write; it takes the name `path` when the block ends.

    A block that raises leaves nothing behind, and `path` as it was. Several processes may write the same file.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield aside
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file as UTF-8 with the line ends that the text has, whole or not at all; makes its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_aside(path) as aside:
        aside.write_text(text, encoding="utf-8", newline="\n")
