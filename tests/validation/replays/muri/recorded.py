"""Matchings recorded from Muri's artifact, and a check that they belong to the given jobs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from simsched.toolkit.grouping import exact_matching
from simsched.toolkit.recording import Recording

#: Two matchings whose weights differ by at most this share both have maximum weight.
_SAME = 1e-9
_REMEDY = "give the matchings of this trace and of these settings"


class Matchings:
    """Plays back the matchings of a JSON file, `{"matchings": [...]}`, plain or .gz, in the order of the calls."""

    def __init__(self, path: str) -> None:
        """Read the file; raises `InputError` if it is not a recording."""
        self._recording = Recording(Path(path), "matchings")
        self._next = 0

    def __call__(self, weights: npt.NDArray[np.float64]) -> Sequence[Sequence[int]]:
        """Return the next matching; raises `InputError` unless it is one of maximum weight of these groups."""
        number, entries = self._next, self._recording.entries
        if number == len(entries):
            raise self._recording.problem(number, "is asked for, and there are no more", _REMEDY)
        self._next += 1
        if not _is_matching(entries[number], len(weights)):
            message = f"is no matching of {len(weights)} groups: {entries[number]!r:.60}"
            raise self._recording.problem(number, message, _REMEDY)
        best, found = (sum(weights[i, j] for i, j in pairs) for pairs in (exact_matching(weights), entries[number]))
        if not math.isclose(found, best, rel_tol=_SAME):
            message = f"weighs {found:.6g}, where matchings of these groups weigh up to {best:.6g}"
            raise self._recording.problem(number, message, _REMEDY)
        return cast("Sequence[Sequence[int]]", entries[number])

    def refuse_more(self) -> None:
        """Raise `InputError` if matchings are left."""
        if self._next < len(self._recording.entries):
            message = f"is not asked for: these jobs take {self._next} matchings"
            raise self._recording.problem(self._next, message, _REMEDY)


def _is_matching(pairs: Any, groups: int) -> bool:
    if not isinstance(pairs, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        return False
    ends = list(chain.from_iterable(pairs))
    return all(type(end) is int and 0 <= end < groups for end in ends) and len(set(ends)) == len(ends)
