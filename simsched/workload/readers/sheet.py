"""A CSV file read column by column, with every wrong cell named by line and column."""

from __future__ import annotations

import csv
import gzip
import warnings
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from simsched.errors import InputError, Problem, input_error, nearest
from simsched.workload.readers.head import first_lines, unreadable
from simsched.workload.trace import EPOCH, raise_all

_MEND = "mend the line, or leave it out"
#: How the logs write a value that was never recorded.
MISSING = ("", "None", "NULL", "null", "nan", "NaN", "NA", "N/A", "\\N")


@dataclass
class Sheet:
    """The cells of a CSV file as text, and the problems found so far while they are turned into values."""

    path: Path
    cells: pd.DataFrame
    first_line: int
    problems: list[Problem] = field(default_factory=list)

    def __contains__(self, column: str) -> bool:
        """Return whether the file has a column."""
        return column in self.cells.columns

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.cells)

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """The 0-based data row of the file behind each remaining row."""
        return self.cells.index.to_numpy()

    def keep(self, mask: npt.NDArray[np.bool_]) -> int:
        """Drop the rows where `mask` is false; returns how many."""
        before = len(self.cells)
        self.cells = self.cells[mask]
        return before - len(self.cells)

    def missing(self, column: str) -> npt.NDArray[np.bool_]:
        """Return which cells of a column hold no value."""
        return self.cells[column].str.strip().isin(MISSING).to_numpy("bool")

    def text(self, column: str) -> Any:
        """Return a column as text without blanks around it; missing values are empty, as is a column the file lacks."""
        if column not in self:
            return ""
        return self.cells[column].str.strip().mask(self.missing(column), "")

    def number(
        self, column: str, *, least: float = -np.inf, most: float = 2.0**53, whole: bool = False
    ) -> npt.NDArray[np.float64]:
        """Return a column as numbers from `least` to `most`; what is no such number becomes a problem of this sheet."""
        values = pd.to_numeric(self.cells[column], errors="coerce").to_numpy("float64", copy=True)
        missing = self.missing(column)
        self.blame(column, missing, "is missing")
        self.blame(column, ~missing & ~np.isfinite(values), "is no number")
        with np.errstate(invalid="ignore"):
            self.blame(column, values < least, f"is below {least:g}")
            self.blame(column, np.isfinite(values) & (values > most), f"is above {most:g}")
            if whole:
                self.blame(column, np.isfinite(values) & (values % 1 != 0), "is no whole number")
        return values

    def moment(self, column: str, style: str = "ISO8601") -> npt.NDArray[np.int64]:
        """Return a column of timestamps as whole seconds since 1970-01-01.

        Timestamps with an offset are turned into UTC, those without are taken as they stand.
        """
        text = self.cells[column].str.strip()
        moments = pd.to_datetime(text, errors="coerce", format=style, utc=True).dt.tz_localize(None)
        missing = self.missing(column)
        self.blame(column, missing, "is missing")
        self.blame(column, ~missing & moments.isna().to_numpy(), "is no timestamp such as 2017-10-09 07:01:55")
        return ((moments - EPOCH) // pd.Timedelta(seconds=1)).fillna(0).to_numpy("int64").astype(np.int64)

    def one_of(self, column: str, known: Sequence[str]) -> Any:
        """Return a column of names, each of which must be known or missing."""
        names = self.text(column)
        if isinstance(names, str):
            return names
        self.blame(column, ~names.isin(["", *known]).to_numpy("bool"), f"is none of {', '.join(known)}")
        return names

    def unique(self, column: str) -> Any:
        """Return a column of names, none of which may be missing or occur twice."""
        self.blame(column, self.missing(column), "is missing")
        names = self.text(column)
        self.blame(column, ((names != "") & names.duplicated()).to_numpy("bool"), "names an earlier row too")
        return names

    def check(self) -> None:
        """Raise `InputError` with the problems found so far, by line."""
        raise_all(str(self.path), iter(self.problems))

    def line(self, row: int) -> int:
        """Return the line of the file, counted from 1, on which a 0-based data row stands."""
        return self.first_line + row

    def blame(self, column: str, mask: npt.NDArray[np.bool_], what: str) -> None:
        """Note a problem for each cell of a column where `mask` holds: `what` follows the cell's text."""
        for i in np.flatnonzero(mask).tolist():
            cell = str(self.cells[column].iat[i]).strip()
            message = f"column '{column}': {repr(cell) + ' ' if cell else ''}{what}"
            self.problems.append(Problem(str(self.path), message, _MEND, self.line(int(self.rows[i]))))


def open_sheet(path: Path, required: Sequence[str], names: Sequence[str] | None = None) -> Sheet:
    """Read a CSV file (plain or .gz) that has at least the `required` columns.

    Lines at the top that begin with # and blank lines are skipped. `names` are the columns of a file without a header.
    Raises `InputError` for a file that is missing, empty, cut short, no text, or lacks a column.
    """
    skip = _comment_lines(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            cells = pd.read_csv(
                path, dtype=str, keep_default_na=False, skip_blank_lines=False, index_col=False, skiprows=skip,
                header=None if names else 0, names=list(names) if names else None, encoding="utf-8-sig",
            )  # fmt: skip
    except pd.errors.EmptyDataError:
        raise input_error(path, "the file is empty", "give a header line and one line a job") from None
    except (pd.errors.ParserError, pd.errors.ParserWarning):
        raise _malformed(path, skip, len(names) if names else None) from None
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise unreadable(path, error) from None
    cells.columns = cells.columns.astype(str).str.strip()
    _require(path, cells, required, skip)
    empty = (cells == "").all(axis=1)
    cells = cells[~empty]
    if cells.empty:
        raise input_error(path, "the file holds a header and no job", "give one line a job")
    return Sheet(path, cells, skip + (1 if names else 2))


def _comment_lines(path: Path) -> int:
    """Return the number of lines at the top that begin with #."""
    lines = first_lines(path)
    return next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))


def _require(path: Path, cells: pd.DataFrame, required: Sequence[str], skip: int) -> None:
    missing = [column for column in required if column not in cells.columns]
    if missing:
        named = ", ".join(f"'{column}'" for column in missing)
        remedy = nearest(missing[0], [str(column) for column in cells.columns])
        raise input_error(
            path, f"column {named} is missing", f"{remedy} (needed: {', '.join(required)})", line=skip + 1
        )


def _malformed(path: Path, skip: int, fields: int | None) -> InputError:
    """Say in which line a file ceases to be CSV: a quote that is never closed, or other fields than the header has."""
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8-sig", newline="") as stream:
        for _ in range(skip):
            next(stream)
        rows = csv.reader(stream, strict=True)
        line = skip + 1
        try:
            for row in rows:
                fields = fields or len(row)
                if len(row) > fields:
                    message = f"has {len(row)} fields, and the header has {fields}"
                    return input_error(path, message, "quote fields that hold commas, or mend the line", line=line)
                line = skip + rows.line_num + 1
        except csv.Error:
            return input_error(path, "a quote that begins here is never closed", "close it, or double it", line=line)
    return input_error(path, "is no CSV", "give every line the same number of fields as the header")
