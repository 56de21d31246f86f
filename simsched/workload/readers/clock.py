"""The timestamps of one file as seconds: all of them say their offset from UTC, or none does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from simsched.errors import input_error
from simsched.workload.trace import EPOCH

_OFFSET = r"(?:[Zz]|[+-]\d\d:?\d\d|:\d\d(?:\.\d+)?\s?[+-]\d\d?)$"
_ZONED, _NAIVE, _COUNTED = "says its offset from UTC", "says no offset from UTC", "is a count of seconds"
_REMEDY = "write all times with an offset, or all without one"


class Clock:
    """Turns the timestamps of a file, all columns and blocks of it, into seconds since 1970-01-01 UTC.

    Those without an offset are in `time_zone`. Of an hour that comes twice the first is meant, one that is skipped
    begins after the skip. A file that has times of several kinds is refused: they would be hours apart.
    """

    def __init__(self, path: Path, time_zone: str = "UTC") -> None:
        """Begin with no time seen; raises `InputError` for an unknown time zone."""
        self._path, self._time_zone = path, time_zone
        self._seen: dict[str, tuple[int, str]] = {}
        try:
            pd.Timestamp("2000-01-01").tz_localize(time_zone)
        except (KeyError, ValueError, OSError):
            message = f"'{time_zone}' is not a time zone"
            raise input_error(path, message, "name one such as Europe/Berlin or UTC") from None

    def seconds(self, text: pd.Series, lines: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Return the seconds of timestamps, NaN where there is none such as Unknown.

        `lines` are those of the file on which they stand. Raises `InputError` naming two times of different kinds.
        """
        text = text.str.strip()
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
        """Return whole seconds of a column of timestamps, or of one of plain numbers, which count seconds already."""
        found = pd.to_numeric(text, errors="coerce").to_numpy("float64", copy=True)
        stamps = np.isnan(found)
        self._note(_COUNTED, ~stamps, text, lines)
        if stamps.any():
            found[stamps] = self.seconds(text[stamps], lines[stamps])
        whole: npt.NDArray[np.float64] = np.floor(found)
        return whole

    def _local(self, stamps: pd.Series) -> npt.NDArray[np.float64]:
        twice = np.ones(len(stamps), dtype=bool)
        return _since_epoch(stamps.dt.tz_localize(self._time_zone, ambiguous=twice, nonexistent="shift_forward"))

    def _note(self, kind: str, mask: npt.NDArray[np.bool_], text: pd.Series, lines: npt.NDArray[np.int64]) -> None:
        """Remember the first time of a kind; raises `InputError` where one of another kind has been seen."""
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
    """Parse timestamps that all have one offset from UTC or none; None where they differ in that."""
    try:
        stamps = pd.to_datetime(text, errors="coerce", format="ISO8601")
    except (ValueError, FutureWarning):
        return None
    return stamps if stamps.dtype.kind == "M" else None


def _has_zone(text: str) -> bool:
    stamp = pd.to_datetime(text, errors="coerce", format="ISO8601")
    return isinstance(stamp, pd.Timestamp) and stamp.tzinfo is not None
