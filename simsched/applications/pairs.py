"""Files of measured pairs of jobs on one GPU."""

from __future__ import annotations

from pathlib import Path

from simsched.errors import input_error
from simsched.model.colocation.pairs import PairTable, read_pairs


def read_pair_table(path: Path, default: float | None = None) -> PairTable:
    """Read a CSV of pairs; raises `InputError` naming file and line for everything that is wrong with it."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise input_error(path, f"cannot be read ({error})", "name a CSV of measured pairs") from error
    return read_pairs(text, str(path), default)
