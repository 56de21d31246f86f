"""Converts the timestamps of one file to seconds; either all have an offset from UTC or none has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from simsched.errors import input_error
from simsched.workload.trace import EPOCH, MOST_SECONDS

_OFFSET = r"(?:[Zz]|[+-]\d\d:?\d\d|:\d\d(?:\.\d+)?\s?[+-]\d\d?)$"
_ZONED, _NAIVE, _COUNTED = "has an offset from UTC", "has no offset from UTC", "is a count of seconds"
_YEAR_LAST = r"\d{1,2}[/.]\d{1,2}[/.]\d{4}\b"
#: Units in which times since 1970 may be written, per second, and the earliest second that one may stand for (1973).
_UNITS: Mapping[str, int] = MappingProxyType(
    {"milliseconds": 1000, "microseconds": 1_000_000, "nanoseconds": 1_000_000_000}
)
_EARLIEST_S = 100_000_000
_REMEDY = "write all times with an offset, or all without one"


class Clock:
    """Converts the timestamps of all columns and blocks of a file to seconds since 1970-01-01 UTC.

    Timestamps without an offset are in `time_zone`. When the clocks change, an ambiguous time means the earlier one,
    and a skipped time means the end of the gap. A file that mixes kinds of times is rejected because they would be
    hours apart.
    """

    def __init__(self, path: Path, time_zone: str = "UTC") -> None:
        """Start without any time; raises `InputError` for an unknown time zone."""
        self._path, self._time_zone = path, time_zone
        self._seen: dict[str, tuple[int, str]] = {}
        try:
            pd.Timestamp("2000-01-01").tz_localize(time_zone)
        except (KeyError, ValueError, OSError):
            message = f"'{time_zone}' is not a time zone"
            raise input_error(path, message, "name one such as Europe/Berlin or UTC") from None

    def seconds(self, text: pd.Series, lines: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Return timestamps in seconds, NaN for a cell such as Unknown.

        `lines` are their lines in the file. Raises `InputError` naming two times of different kinds, or a date that
        does not begin with the year.
        """
        text = text.str.strip()
        found = self._stamps(text, lines)
        self._ask_which_is_the_month(text, np.isnan(found), lines)
        return found

    def _stamps(self, text: pd.Series, lines: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        stamps = _parsed(text)
        if stamps is not None and stamps.dt.tz is None:  # the usual case
            found = self._local(stamps)
            self._note(_NAIVE, ~np.isnan(found), text, lines)
            return found
        zoned = np.ones(len(text), dtype=bool)
        if stamps is None:
            zoned = text.str.contains(_OFFSET, regex=True).to_numpy("bool", copy=True)
            if _parsed(text[~zoned]) is None:  # offsets in an unusual style
                zoned |= np.array([_has_zone(one) for one in text])
        found = np.full(len(text), np.nan)
        if not zoned.all():
            found[~zoned] = self._local(pd.to_datetime(text[~zoned], errors="coerce", format="ISO8601"))
            self._note(_NAIVE, ~zoned & ~np.isnan(found), text, lines)
        if zoned.any():
            found[zoned] = _since_epoch(pd.to_datetime(text[zoned], errors="coerce", format="ISO8601", utc=True))
            self._note(_ZONED, zoned & ~np.isnan(found), text, lines)
        return found

    def seconds_or_counts(self, text: pd.Series, lines: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Return a column of timestamps in whole seconds; plain numbers are already seconds."""
        found = self.counts(text, lines)
        stamps = np.isnan(found)
        self._note(_COUNTED, ~stamps, text, lines)
        if stamps.any():
            found[stamps] = self.seconds(text[stamps], lines[stamps])
        whole: npt.NDArray[np.float64] = np.floor(found)
        return whole

    def counts(self, text: pd.Series, lines: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Return a column of plain numbers, NaN for cells without one.

        Raises `InputError` for a number that can only be a time since 1970 in a unit smaller than a second.
        """
        found = pd.to_numeric(text, errors="coerce").to_numpy("float64", copy=True)
        with np.errstate(invalid="ignore"):
            late = np.flatnonzero((found > MOST_SECONDS) & np.isfinite(found))
        if len(late):
            first = int(late[0])
            for unit, parts in _UNITS.items():
                if _EARLIEST_S <= found[first] / parts <= MOST_SECONDS:
                    message = f"the time '{text.iat[first]:.40}' looks like {unit} since 1970"
                    remedy = f"are they? then divide the times by {parts:,}, or write timestamps"
                    raise input_error(self._path, message, remedy, line=int(lines[first]))
        return found

    def _ask_which_is_the_month(
        self, text: pd.Series, unread: npt.NDArray[np.bool_], lines: npt.NDArray[np.int64]
    ) -> None:
        """Raise `InputError` for an ambiguous date such as 05/06/2024, which may be in May or in June."""
        dates = np.flatnonzero(unread & text.str.match(_YEAR_LAST).to_numpy("bool"))
        if len(dates):
            said, line = str(text.iat[dates[0]]), int(lines[dates[0]])
            first, second, year = (part.zfill(2) for part in re.split(r"\D", said)[:3])
            meant = dict.fromkeys((month, day) for month, day in ((first, second), (second, first)) if month <= "12")
            either = " or ".join(f"{year}-{month}-{day}" for month, day in meant)
            message = f"the time '{said:.40}' does not begin with its year, so that day and month may be confused"
            raise input_error(self._path, message, f"write it as {either or 'year-month-day'}", line=line)

    def _local(self, stamps: pd.Series) -> npt.NDArray[np.float64]:
        twice = np.ones(len(stamps), dtype=bool)
        return _since_epoch(stamps.dt.tz_localize(self._time_zone, ambiguous=twice, nonexistent="shift_forward"))

    def _note(self, kind: str, mask: npt.NDArray[np.bool_], text: pd.Series, lines: npt.NDArray[np.int64]) -> None:
        """Remember the first time of a kind; raises `InputError` after a time of another kind."""
        if kind in self._seen or not mask.any():
            return
        first = int(mask.argmax())
        self._seen[kind] = int(lines[first]), str(text.iat[first]).strip()
        if len(self._seen) > 1:
            (other, (before, known)), (this, (line, said)) = sorted(self._seen.items(), key=lambda one: one[1])
            message = f"the time '{said:.40}' {this}, and '{known:.40}' in line {before} {other}"
            raise input_error(self._path, message, _REMEDY, line=line)


def _since_epoch(stamps: Any) -> npt.NDArray[np.float64]:
    plain = stamps.dt.tz_convert("UTC").dt.tz_localize(None)
    seconds: npt.NDArray[np.float64] = ((plain - EPOCH) / pd.Timedelta(seconds=1)).to_numpy("float64")
    return seconds


def _parsed(text: pd.Series) -> pd.Series | None:
    """Parse timestamps if all have the same offset from UTC or none has one; otherwise return None."""
    try:
        stamps = pd.to_datetime(text, errors="coerce", format="ISO8601")
    except (ValueError, FutureWarning):
        return None
    return stamps if stamps.dtype.kind == "M" else None


def _has_zone(text: str) -> bool:
    stamp = pd.to_datetime(text, errors="coerce", format="ISO8601")
    return isinstance(stamp, pd.Timestamp) and stamp.tzinfo is not None
