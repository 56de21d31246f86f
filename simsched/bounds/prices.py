"""What a search for prices finds, and its steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from simsched.bounds.jobs import Floats

#: What rounding could add to a sum, relative to the parts of the sum, and progress worth noting.
ROUNDING, _PROGRESS = 1e-11, 1e-5
#: Steps without progress before they are shortened.
_PATIENCE = 12


@dataclass(frozen=True, eq=False)
class Prices:
    """Prices, in `PRICE_PARTS`, of the intervals that begin at `starts`, and the sum of flow times that they prove.

    `parts` are what each job adds to it; `own` as in `Certificate`.
    """

    starts: tuple[int, ...]
    prices: tuple[int, ...]
    proved: float
    parts: Floats = field(default_factory=lambda: np.empty(0))
    own: tuple[tuple[int, ...], ...] = ()


def climb(
    value: Callable[[Floats, Floats], float], spans: Floats, prices: Floats, best: float, steps: int, momentum: float
) -> Floats:
    """Improve prices, whose value is `best`, by steps that keep a part of the last direction; returns the best found.

    `value` returns that of prices and writes by how much each is too low, in units of what is priced over `spans`.
    """
    wanting, direction, top = np.empty(len(prices)), np.zeros(len(prices)), prices
    hoped, idle = 0.1 * abs(best), 0
    for _ in range(steps):
        found = value(prices, wanting)
        idle = 0 if found > best + _PROGRESS * abs(best) else idle + 1
        if found > best:
            best, top = found, prices
        if idle > _PATIENCE:
            hoped, idle, prices = hoped / 2, 0, top
            direction[:] = 0.0
            continue
        wanting[(prices <= 0) & (wanting < 0)] = 0.0
        direction = wanting + momentum * direction
        norm = float((direction * direction * spans).sum())
        if norm <= 0:
            break
        prices = np.maximum(0.0, prices + max(best + hoped - found, 0.0) / norm * direction)
    return top
