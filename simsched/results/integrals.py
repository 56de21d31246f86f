"""Integrals over time of what holds for intervals: allocations, and the values of successive decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from simsched.arithmetic import dot
from simsched.results.metric import Columns

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]


def integral(rounds: pd.DataFrame | Columns, column: str, until_s: int) -> int:
    """Integrate a whole-numbered column of the table of rounds from second 0 to `until_s`.

    The unit is that of the column times seconds; 0 where there is no decision.
    """
    start, end, value = held_between_rounds(rounds, column, until_s)
    end -= start
    return round(dot(end, value))


def held_between_rounds(rounds: pd.DataFrame | Columns, column: str, until_s: float) -> tuple[Floats, Floats, Floats]:
    """Return start, end (seconds) and value of the intervals up to `until_s` in which a column of the rounds holds.

    A value holds from its decision to the next one, the first from second 0 on; of several decisions in one second the
    last counts.
    """
    start = np.array(rounds["time_s"], dtype=np.float64)
    np.minimum(start, until_s, out=start)
    start[:1] = 0.0
    end = np.append(start[1:], until_s)[: len(start)]
    lasting = end > start
    start, end = start[lasting], end[lasting]
    return start, end, np.asarray(rounds[column])[lasting].astype(np.float64, copy=False)


def integrals(start: Floats, end: Floats, weight: Floats, edges: Floats) -> Floats:
    """Integrate over each bin the sum of the weights of the intervals that cover an instant."""
    return np.diff(integral_until(start, end, weight, edges))


def integral_until(start: Floats, end: Floats, weight: Floats, until: Floats) -> Floats:
    """Integrate from the left, up to each of some instants, the sum of the weights of the intervals that cover one.

    The sum is a step function of time: its integral is piecewise linear between the breakpoints.
    """
    if not len(start):
        return np.zeros(until.shape)
    times, place = np.unique(np.concatenate([start, end]), return_inverse=True)
    level = np.cumsum(np.bincount(place, weights=np.concatenate([weight, -weight])))
    sums = np.concatenate([[0.0], np.cumsum(level[:-1] * np.diff(times))])
    return np.asarray(np.interp(until, times, sums), dtype=np.float64)
