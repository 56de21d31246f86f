"""How numbers are shown: the most readable unit, and only significant digits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

MINUTE_S = 60
HOUR_S = 3600
DAY_S = 86_400


@dataclass(frozen=True)
class Shown:
    """A display unit, and the factor that converts to it."""

    unit: str
    factor: float

    def title(self, text: str) -> str:
        """Add the unit to the title of an axis or a column."""
        return f"{text} ({self.unit})" if self.unit else text


def shown_unit(unit: str, values: Iterable[float]) -> Shown:
    """Choose how values of a metric are shown: seconds as hours unless all are short, shares as per cent."""
    if unit == "s":
        return time_unit(max(values, default=0), days=False)
    if unit == "share":
        return Shown("%", 100)
    return Shown(unit, 1)


def time_unit(longest_s: float, *, days: bool = True) -> Shown:
    """Choose the unit of a time: days (for an axis), hours, minutes or seconds."""
    if days and longest_s > 7 * DAY_S:
        return Shown("days", 1 / DAY_S)
    if longest_s >= HOUR_S / 2:
        return Shown("h", 1 / HOUR_S)
    if longest_s >= 3 * MINUTE_S:
        return Shown("min", 1 / MINUTE_S)
    return Shown("s", 1)


#: Steps of ticks that divide days, hours and minutes evenly, by unit.
_STEPS = {
    "days": (0.25, 0.5, 1, 2, 7, 14, 28, 56, 112, 224),
    "h": (0.25, 0.5, 1, 2, 3, 6, 12, 24, 48),
    "min": (0.5, 1, 2, 5, 10, 15, 30),
    "s": (0.5, 1, 2, 5, 10, 15, 30, 60),
}


def round_step(unit: str, length: float, most: int) -> float:
    """Return the smallest round step, in a unit of time, that divides a length into at most so many parts."""
    return next((step for step in _STEPS[unit] if length <= step * most), length / most)


def number(value: float) -> str:
    """Format a number with two decimals below 10, one below 100, none above; integers above 100 with commas."""
    size = abs(value)
    if size < 9.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if size < 99.95 else f"{value:,.0f}"
