"""Chooses the knots of a piecewise linear curve by a shortest path over points."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def cheapest_bends(pieces: Floats, most: int, enough: float) -> list[int]:
    """Return the knots, including the first and the last point, of the piecewise linear curve of least cost.

    `pieces[i, j]` is the cost of one piece from point i to point j, infinite unless i < j. Adds pieces until the cost
    is at most `enough` or `most` points are used.
    """
    count = len(pieces)
    reach = np.full(count, np.inf)
    reach[0] = 0.0
    came_from: list[NDArray[np.int64]] = []
    while len(came_from) < min(most, count) - 1:
        through = reach[:, None] + pieces
        came_from.append(np.argmin(through, axis=0))
        reach = np.min(through, axis=0)
        if reach[-1] <= enough:
            break
    path = [count - 1]
    for step in reversed(came_from):
        path.append(int(step[path[-1]]))
    return sorted({0, *path})
