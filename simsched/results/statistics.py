"""Means over seeds with their uncertainty, and differences between policies seed by seed."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

CONFIDENCE = 0.95

Replica = TypeVar("Replica", bound=Hashable)


@dataclass(frozen=True)
class Estimate:
    """A mean over `n` replications and, from two of them on, the interval in which the true mean probably lies.

    `low` and `high` are None where there is no interval.
    """

    mean: float
    n: int
    low: float | None = None
    high: float | None = None

    @property
    def half_width(self) -> float | None:
        """How far the interval reaches from the mean, to the farther end where it is cut off; None without interval."""
        return None if self.low is None or self.high is None else max(self.high - self.mean, self.mean - self.low)

    @property
    def excludes_zero(self) -> bool:
        """Whether there is an interval and it leaves zero out."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


@dataclass(frozen=True)
class Difference:
    """How much a policy differs from a reference on the same seeds.

    `absolute` estimates value - reference, `relative` estimates (value - reference) / reference, each seed by seed;
    `relative` is None where the reference is zero for some seed.
    """

    absolute: Estimate
    relative: Estimate | None


#: The least and the greatest value that something can have.
Range = tuple[float, float]
ANY_VALUE: Range = (-math.inf, math.inf)


def estimate(values: Iterable[float], confidence: float = CONFIDENCE, within: Range = ANY_VALUE) -> Estimate:
    """Average one value per seed, with the interval of Student's t.

    The interval is mean +- t(n - 1) * s / sqrt(n), s being the standard deviation with n - 1 in the denominator. It
    holds if the seeds are independent and their values not too far from normal. What lies outside the range `within`
    which all values are is cut off: the true mean cannot be there, so the rest covers it as often. One value has no
    interval; no value raises `ValueError`.
    """
    sample = np.asarray(list(values), dtype=float)
    n = sample.size
    if n == 0:
        message = "there is nothing to average"
        raise ValueError(message)
    mean = float(sample.mean())
    if n == 1:
        return Estimate(mean, 1)
    half = student_t(n - 1, confidence) * float(sample.std(ddof=1)) / math.sqrt(n)
    least, greatest = within
    return Estimate(mean, n, min(mean, max(mean - half, least)), max(mean, min(mean + half, greatest)))


def student_t(degrees: int, confidence: float) -> float:
    """Return within how many standard errors of its mean a share `confidence` of Student's t distribution lies."""
    from scipy.special import stdtrit  # slow to load, and a single seed has no interval

    return float(stdtrit(degrees, 0.5 + confidence / 2))


def paired_difference(
    values: Mapping[Replica, float], reference: Mapping[Replica, float], confidence: float = CONFIDENCE
) -> Difference | None:
    """Compare two policies on the seeds that both have run; None where there is no such seed.

    Under one seed both faced the same jobs, so the difference varies far less than either value does.
    """
    shared = [key for key in values if key in reference]
    if not shared:
        return None
    pairs = [(values[key], reference[key]) for key in shared]
    absolute = estimate((a - b for a, b in pairs), confidence)
    if any(b == 0 for _, b in pairs):
        return Difference(absolute, None)
    return Difference(absolute, estimate(((a - b) / b for a, b in pairs), confidence))
