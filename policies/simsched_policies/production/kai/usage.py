"""Use of the cluster over time, which affects the division of over-quota resources.

Source: KAI-Scheduler, time-based fair share. KAI takes samples; here use is integrated, the limit of ever denser
samples.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from simsched.arithmetic import exp
from simsched_policies.production.kai.model import NOTHING, Amounts, plus

_LN2 = 0.6931471805599453


class _Stretch(NamedTuple):
    """An interval without changes: its seconds, what each queue held, and what the cluster had."""

    start_s: float
    end_s: float
    held: Mapping[str, Amounts]
    capacity: Amounts


class UsageWindow:
    """What queues held in the last `window_s` seconds; with a half-life (above 0), recent use weighs more."""

    def __init__(self, window_s: float, half_life_s: float = 0.0) -> None:
        self._window_s, self._half_life_s = window_s, half_life_s
        self._stretches: deque[_Stretch] = deque()

    def note(self, start_s: float, end_s: float, held: Mapping[str, Amounts], capacity: Amounts) -> None:
        """Add what was held over an interval that follows the last one."""
        if end_s > start_s:
            self._stretches.append(_Stretch(start_s, end_s, dict(held), capacity))

    def at(self, now_s: float) -> dict[str, Amounts]:
        """Return the share of the cluster that each queue used, by resource."""
        while self._stretches and self._stretches[0].end_s <= now_s - self._window_s:
            self._stretches.popleft()
        used: dict[str, Amounts] = {}
        had = NOTHING
        for stretch in self._stretches:
            weight = self._weight(max(stretch.start_s, now_s - self._window_s), stretch.end_s, now_s)
            had = plus(had, stretch.capacity, weight)
            for name, amounts in stretch.held.items():
                used[name] = plus(used.get(name, NOTHING), amounts, weight)
        return {name: _over(amounts, had) for name, amounts in used.items()}

    def _weight(self, start_s: float, end_s: float, now_s: float) -> float:
        if self._half_life_s <= 0:
            return end_s - start_s
        old, new = (exp(-_LN2 * (now_s - at) / self._half_life_s) for at in (start_s, end_s))
        return float(new - old) * self._half_life_s / _LN2


def _over(amounts: Amounts, had: Amounts) -> Amounts:
    cpu, memory, gpu = (used / of if of > 0 else 0.0 for used, of in zip(amounts, had, strict=True))
    return (cpu, memory, gpu)
