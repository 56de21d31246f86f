"""Files of measured pairs of jobs on one GPU."""

from __future__ import annotations

from pathlib import Path

from simsched.model.colocation import PairTable, read_pairs
from simsched.reading import read_text


def read_pair_table(path: Path, default: float | None = None) -> PairTable:
    """Read a CSV of pairs; raises `InputError` naming file and line for everything that is wrong with it."""
    return read_pairs(read_text(path), str(path), default)
