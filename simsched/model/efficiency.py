"""What an example is worth to the training when the batch grows (Pollux, OSDI'21, section 3.1)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simsched.model.application import GradientStats

Floats = NDArray[np.float64]


def gain(gradient: GradientStats, scale: ArrayLike) -> Floats:
    """Return the AdaScale gain r of batches `scale` times the initial: iterations at the initial size per iteration.

    It is 1 where the estimates of the statistics are so noisy that the formula's denominator is not positive.
    """
    times = np.asarray(scale, dtype=np.float64)
    below = gradient.var / times + gradient.sqr
    usable = below > 0
    return np.where(usable, (gradient.var + gradient.sqr) / np.where(usable, below, 1.0), 1.0)


def efficiency(gradient: GradientStats, scale: ArrayLike) -> Floats:
    """Return the statistical efficiency of batches `scale` times the initial one, relative to it (equation 6)."""
    return gain(gradient, scale) / np.asarray(scale, dtype=np.float64)


def noise_scale(gradient: GradientStats, init_batch_size: int) -> float:
    """Return the gradient noise scale phi, in examples, of statistics taken at the initial batch size.

    With it the efficiency is (phi + M0) / (phi + M). It is infinite where the mean gradient is estimated as nothing.
    """
    return init_batch_size * gradient.var / gradient.sqr if gradient.sqr > 0 else float("inf")


def gradient_of(noise: float, init_batch_size: int) -> GradientStats:
    """Return gradient statistics, of unit squared mean, whose gradient noise scale is `noise` examples."""
    return GradientStats(1.0, noise / init_batch_size)
