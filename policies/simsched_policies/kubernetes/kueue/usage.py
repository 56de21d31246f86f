"""Admission fair sharing: the recent usage of each local queue, with exponential decay."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

#: Kueue's defaults: how often usage is sampled, and its half-life.
SAMPLING_S = 300.0
HALF_LIFE_S = 7 * 86400.0


@dataclass
class DecayedUsage:
    """The usage of local queues as an exponential moving average.

    Each sample updates the average a to a * d + u * (1 - d), where u is the current use and d = 0.5 ** (elapsed /
    half-life). A half-life of 0 keeps no history: usage is always 0. Amounts are weighted by resource, default 1.
    Source: Kueue, admission fair sharing (KEP-4136).
    """

    half_life_s: float = HALF_LIFE_S
    sampling_s: float = SAMPLING_S
    resource_weights: Mapping[str, float] = field(default_factory=dict)
    _average: dict[str, dict[str, float]] = field(default_factory=dict)
    _sampled_s: float = 0.0

    def due(self, now_s: float) -> bool:
        """Return whether the next sample is due."""
        return now_s - self._sampled_s >= self.sampling_s

    def sample(self, now_s: float, in_use: Mapping[str, Mapping[str, float]]) -> None:
        """Take a sample: what each local queue holds of each resource at `now_s`; raises `ValueError` for the past."""
        elapsed = now_s - self._sampled_s
        if self.half_life_s == 0:
            return
        if elapsed < 0:
            raise ValueError(f"a sample at {now_s:g} s comes after one at {self._sampled_s:g} s")
        keep = 0.5 ** (elapsed / self.half_life_s)
        for queue in sorted({*self._average, *in_use}):
            old, new = self._average.get(queue, {}), in_use.get(queue, {})
            self._average[queue] = {
                resource: old.get(resource, 0.0) * keep + new.get(resource, 0.0) * (1 - keep)
                for resource in sorted({*old, *new})
            }
        self._sampled_s = now_s

    def charge(self, queue: str, amounts: Mapping[str, float]) -> None:
        """Count an admission at once, so that a queue cannot get many between two samples.

        Adds the weight that the next sample would give to `amounts`.
        """
        if self.half_life_s == 0:
            return
        add = 1 - 0.5 ** (self.sampling_s / self.half_life_s)
        average = self._average.setdefault(queue, {})
        for resource, amount in amounts.items():
            average[resource] = average.get(resource, 0.0) + amount * add

    def of(self, queue: str, weight: float = 1.0) -> float:
        """Return the usage of a local queue over its weight, infinite if the weight is 0."""
        total = sum(
            self.resource_weights.get(resource, 1.0) * amount
            for resource, amount in self._average.get(queue, {}).items()
        )
        return total / weight if weight > 0 else math.inf
