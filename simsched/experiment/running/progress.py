"""A memory-mapped file in which cells report progress and read whether to stop.

It works across all process boundaries, needs no locks for single words, and survives killed processes.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

_WORD = struct.Struct("=q")


class ProgressFile:
    """The simulated second and finished jobs of each cell, and one stop flag for all."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)

    @staticmethod
    def make(path: Path, cells: int) -> ProgressFile:
        """Create a file for `cells` cells, all at 0."""
        path.write_bytes(bytes(_WORD.size * (1 + 2 * cells)))
        return ProgressFile(path)

    def write(self, cell: int, now_s: int, finished_jobs: int) -> None:
        """Write a cell's progress."""
        self._put(1 + 2 * cell, now_s)
        self._put(2 + 2 * cell, finished_jobs)

    def read(self, cell: int) -> tuple[int, int]:
        """Return the simulated second and finished jobs of a cell."""
        return self._get(1 + 2 * cell), self._get(2 + 2 * cell)

    def cancel(self) -> None:
        """Ask all cells to stop."""
        self._put(0, 1)

    @property
    def cancelled(self) -> bool:
        """Whether cells should stop."""
        return bool(self._get(0))

    def close(self) -> None:
        """Close the file."""
        self._map.close()

    def _put(self, word: int, value: int) -> None:
        _WORD.pack_into(self._map, word * _WORD.size, value)

    def _get(self, word: int) -> int:
        value: int = _WORD.unpack_from(self._map, word * _WORD.size)[0]
        return value
