"""A CSV file read by column; reports every wrong cell by line and column."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt
import pandas as pd

from simsched.errors import Problem, and_alike, input_error
from simsched.reading import check_header, first_lines, open_text, other_width, unused
from simsched.workload.readers.clock import Clock
from simsched.workload.trace import raise_all

_MEND = "correct the line, or leave it out"
#: How logs write a value that was not recorded.
MISSING = ("", "None", "NULL", "null", "nan", "NaN", "NA", "N/A", "\\N")


@dataclass
class Sheet:
    """The cells of a CSV file as text, and the problems found so far in converting them.

    `idle` names known columns that the format does not use, and `read` the columns read so far.
    """

    path: Path
    cells: pd.DataFrame
    first_line: int
    problems: list[Problem] = field(default_factory=list)
    idle: Collection[str] = ()
    read: set[str] = field(default_factory=set)

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

    def missing(self, column: str) -> npt.NDArray[np.bool_]:
        """Return a mask of a column's cells that hold no value."""
        self.read.add(column)
        return self.cells[column].str.strip().isin(MISSING).to_numpy("bool")

    def text(self, column: str) -> Any:
        """Return a column as stripped text; missing values and missing columns are empty."""
        if column not in self:
            return ""
        return self.cells[column].str.strip().mask(self.missing(column), "")

    def number(
        self, column: str, *, least: float = -np.inf, most: float = 2.0**53, whole: bool = False
    ) -> npt.NDArray[np.float64]:
        """Return a column as numbers from `least` to `most`; record a problem for any other cell."""
        values = pd.to_numeric(self.cells[column], errors="coerce").to_numpy("float64", copy=True)
        missing = self.missing(column)
        self.blame(column, missing, "is missing")
        self.blame(column, ~missing & ~np.isfinite(values), "is not a number")
        with np.errstate(invalid="ignore"):
            self.blame(column, values < least, f"is below {least:g}")
            self.blame(column, np.isfinite(values) & (values > most), f"is above {most:g}")
            if whole:
                self.blame(column, np.isfinite(values) & (values % 1 != 0), "is not a whole number")
        return values

    def moment(self, column: str) -> npt.NDArray[np.int64]:
        """Return a column of timestamps as whole seconds since 1970-01-01.

        Timestamps with an offset are converted to UTC, others are kept. Raises `InputError` if the column has both.
        """
        seconds = Clock(self.path).seconds(self.cells[column], self.first_line + self.rows)
        missing = self.missing(column)
        self.blame(column, missing, "is missing")
        self.blame(column, ~missing & np.isnan(seconds), "is not a timestamp such as 2017-10-09 07:01:55")
        return np.floor(np.nan_to_num(seconds)).astype(np.int64)

    def one_of(self, column: str, known: Sequence[str]) -> Any:
        """Return a column of names, each either known or missing."""
        names = self.text(column)
        if isinstance(names, str):
            return names
        self.blame(column, ~names.isin(["", *known]).to_numpy("bool"), f"is not one of {', '.join(known)}")
        return names

    def unique(self, column: str) -> Any:
        """Return a column of unique names, none missing."""
        self.blame(column, self.missing(column), "is missing")
        names = self.text(column)
        self.blame(column, ((names != "") & names.duplicated()).to_numpy("bool"), "also names an earlier row")
        return names

    def check(self) -> tuple[str, ...]:
        """Raise `InputError` with the problems so far, by line; after reading all columns, return the unread ones.

        Warns about columns that the format does not know.
        """
        raise_all(str(self.path), iter(self.problems))
        return unused(self.path, map(str, self.cells.columns), self.read, self.idle)

    def line(self, row: int) -> int:
        """Return the 1-based line of a 0-based data row."""
        return self.first_line + row

    def blame(self, column: str, mask: npt.NDArray[np.bool_], what: str) -> None:
        """Record the cells of a column where `mask` holds as one problem; `what` follows the first cell's text."""
        wrong = np.flatnonzero(mask)
        if len(wrong):
            cell = str(self.cells[column].iat[wrong[0]]).strip()
            lines = [self.line(row) for row in self.rows[wrong].tolist()]
            message = f"column '{column}': {repr(cell) + ' ' if cell else ''}{what}{and_alike(lines)}"
            self.problems.append(Problem(str(self.path), message, _MEND, lines[0]))


def open_sheet(path: Path, required: Sequence[str], idle: Collection[str] = ()) -> Sheet:
    """Read a CSV file (plain or .gz) that has at least the `required` columns.

    Lines at the top that begin with # and blank lines are skipped. `idle` are columns that its format does not use.
    Raises `InputError` if the file is missing, empty, truncated or not text, lacks a column or names one twice.
    """
    lines = first_lines(path)
    skip = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
    with open_text(path) as stream:
        for _ in range(skip):
            next(stream)
        rows = _rows(path, stream, skip)
        header = [name.strip() for _, row in islice(rows, 1) for name in row]
        if not header:
            raise input_error(path, "the file is empty", "give a header line and one line a job")
        check_header(path, header, required, skip + 1)
        held, cells = [], []
        for line, row in rows:
            if len(row) > len(header):
                raise other_width(path, len(row), len(header), line)
            if any(row):
                held.append(line - skip - 2)
                cells.append(row if len(row) == len(header) else [*row, *[""] * (len(header) - len(row))])
    if not cells:
        raise input_error(path, "the file holds a header and no job", "give one line a job")
    table = pd.DataFrame(cells, columns=header, index=np.array(held, dtype=np.int64), dtype=str)
    return Sheet(path, table, skip + 2, idle=idle)


def _rows(path: Path, stream: TextIO, skip: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a CSV file with the lines at which they begin; raises `InputError` for a broken quote."""
    reader = csv.reader(stream, strict=True)
    line = skip + 1
    try:
        for row in reader:
            yield line, row
            line = skip + reader.line_num + 1
    except csv.Error as error:
        if "unexpected end" in str(error):
            message, remedy = "a quote that begins here is never closed", "close it, or double it"
        else:
            message, remedy = f"is no CSV: {error}", "is a quote not closed, or is this not CSV?"
        raise input_error(path, message, remedy, line=line) from None
