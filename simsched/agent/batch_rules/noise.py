"""The batch follows the gradient noise scale, as KungFu's users write it (Mai et al., OSDI'20)."""

from __future__ import annotations

import math
from typing import NamedTuple

from simsched.agent.batch_rules.rule import BatchMetrics, BatchState

#: How much the newest estimate counts in the moving averages. Its value is KungFu's; that it weighs the newest, and not
#: what was there before, is an assumption.
NEWEST = 0.6


class NoiseAverage(NamedTuple):
    """Moving averages of the gradients' variance (numerator) and of the squared norm of their mean (denominator)."""

    variance: float
    squared_norm: float

    @property
    def noise_scale(self) -> float:
        """Return the noise scale in examples; infinite where the mean gradient is estimated as nothing."""
        return self.variance / self.squared_norm if self.squared_norm > 0 else math.inf


def estimate(small: int, small_sqr: float, big: int, big_sqr: float) -> NoiseAverage:
    """Estimate variance and squared norm from the squared norms of a small and a big batch's mean gradients.

    Unbiased (McCandlish et al., 2018, appendix A.1): one worker's batch is the small one, all workers' the big one.
    Raises `ValueError` unless `big` exceeds `small`.
    """
    if big <= small:
        raise ValueError(f"the big batch ({big}) must exceed the small one ({small})")
    squared_norm = (big * big_sqr - small * small_sqr) / (big - small)
    variance = (small_sqr - big_sqr) / (1 / small - 1 / big)
    return NoiseAverage(variance, squared_norm)


def averaged(before: NoiseAverage | None, newest: NoiseAverage, weight: float = NEWEST) -> NoiseAverage:
    """Return the averages after a new estimate; the first estimate stands for itself."""
    if before is None:
        return newest
    return NoiseAverage(*(weight * new + (1 - weight) * old for new, old in zip(newest, before, strict=True)))


def noise_doubling(state: BatchState, metrics: BatchMetrics) -> int:
    """Return twice the batch where the measured noise scale is at least that, else the batch.

    What Shockwave's jobs do on a published schedule (Zheng et al., NSDI'23), by measurement; the threshold is ours.
    """
    if metrics.noise_scale is None or metrics.noise_scale < 2 * state.batch:
        return state.batch
    return state.clip(2 * state.batch)


def noise_rule(state: BatchState, metrics: BatchMetrics) -> int:
    """Return the measured noise scale as the batch, rounded into the bounds."""
    if metrics.noise_scale is None:
        return state.batch
    return state.clip(metrics.noise_scale)
