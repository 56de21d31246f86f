"""The declared speed-up of jobs of known duration on other numbers of GPUs."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Speedup:
    """Speed as a function of GPUs: the number of GPUs to the power of `exponent`, or a `table` of (GPUs, speed).

    A table is sorted by GPUs, positive, and linear between its entries; beyond the last entry the speed is constant,
    below the first it falls in proportion. Only ratios of speeds matter.
    """

    exponent: float = 1.0
    table: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        """Raise `ValueError` if the parameters are invalid."""
        if not 0 < self.exponent <= 1:
            raise ValueError(f"the exponent of a speed-up lies above 0 and is at most 1, not {self.exponent:g}")
        gpus = [count for count, _ in self.table]
        if gpus != sorted(set(gpus)) or any(count < 1 or speed <= 0 for count, speed in self.table):
            raise ValueError("a table of speed-up lists [GPUs, speed] by ascending GPUs, all above 0")

    @classmethod
    def of(cls, said: Literal["linear"] | float | Sequence[tuple[int, float]]) -> Speedup:
        """Return a speed-up as experiments declare it: `linear`, an exponent, or a table.

        Raises `TypeError` or `ValueError` for anything else.
        """
        if said == "linear":
            return cls()
        return cls(said) if isinstance(said, int | float) else cls(table=tuple((gpus, speed) for gpus, speed in said))

    def speed(self, gpus: int) -> float:
        """Return the speed on `gpus` GPUs, in the table's units or relative to one GPU."""
        if not self.table:
            return math.pow(gpus, self.exponent)
        after = bisect_right(self.table, (gpus, float("inf")))
        if after == 0:
            first, speed = self.table[0]
            return speed * gpus / first
        low, speed = self.table[after - 1]
        if after == len(self.table):
            return speed
        high, faster = self.table[after]
        return speed + (faster - speed) * (gpus - low) / (high - low)
