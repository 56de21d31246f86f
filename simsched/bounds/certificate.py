"""The proof of a bound: prices, values and claims as integers, in plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: Prices are whole multiples of 1 / PRICE_PARTS ticks per unit-tick.
PRICE_PARTS = 1 << 40


@dataclass(frozen=True)
class Certificate:
    """Lower bounds, in ticks, on the sum of completion minus release times of jobs, and on their makespan.

    The sum follows from `prices` of the intervals that start at `starts`, the last one endless and free; or from `own`,
    prices of each job's ticks in the intervals from its release on, 0 after these; or, if `fast_machine`, from one
    machine of all GPUs. The makespan follows from `values` of each job's progress, and if `packed` from the sets of
    jobs that fit side by side.
    """

    starts: tuple[int, ...]
    prices: tuple[int, ...]
    own: tuple[tuple[int, ...], ...]
    values: tuple[int, ...]
    fast_machine: bool = False
    packed: bool = False
    flow_sum: int = 0
    makespan: int = 0

    def to_json(self) -> Mapping[str, Any]:
        """Return plain data: all that the check needs besides the jobs."""
        return {**vars(self), "price_parts": PRICE_PARTS}
