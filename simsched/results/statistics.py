"""Means over seeds with their uncertainty, and paired differences between policies by seed."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import numpy as np

CONFIDENCE = 0.95
#: Seeds of the first look of `seeds: auto`, doubled at every look.
FIRST_LOOK = 8

Replica = TypeVar("Replica", bound=Hashable)


@dataclass(frozen=True)
class Estimate:
    """A mean over `n` replications and, for two or more, its confidence interval.

    `low` and `high` are None without an interval.
    """

    mean: float
    n: int
    low: float | None = None
    high: float | None = None

    @property
    def half_width(self) -> float | None:
        """The distance from the mean to the farther end of the interval; None without interval."""
        return None if self.low is None or self.high is None else max(self.high - self.mean, self.mean - self.low)

    @property
    def excludes_zero(self) -> bool:
        """Whether there is an interval that excludes zero."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


@dataclass(frozen=True)
class Difference:
    """The difference of a policy from a reference on the same seeds.

    `absolute` estimates value - reference, `relative` estimates (value - reference) / reference, each seed by seed;
    `relative` is None if the reference is zero for some seed.
    """

    absolute: Estimate
    relative: Estimate | None


#: The smallest and the largest possible value.
Range = tuple[float, float]
ANY_VALUE: Range = (-math.inf, math.inf)


def estimate(values: Iterable[float], confidence: float = CONFIDENCE, within: Range = ANY_VALUE) -> Estimate:
    """Average one value per seed, with the interval of Student's t.

    The interval is mean +- t(n - 1) * s / sqrt(n), s being the standard deviation with n - 1 in the denominator. It
    assumes independent seeds with roughly normal values. It is clipped to the range `within` which all values lie: the
    true mean cannot be outside, so coverage is unaffected. One value has no interval; no values raise `ValueError`.
    """
    sample = np.asarray(list(values), dtype=float)
    n = sample.size
    if n == 0:
        raise ValueError("there is nothing to average")
    mean = float(sample.mean())
    if n == 1:
        return Estimate(mean, 1)
    half = student_t(n - 1, confidence) * float(sample.std(ddof=1)) / math.sqrt(n)
    least, greatest = within
    return Estimate(mean, n, min(mean, max(mean - half, least)), max(mean, min(mean + half, greatest)))


def ratio(
    values: Mapping[Replica, float], reference: Mapping[Replica, float], confidence: float = CONFIDENCE
) -> Estimate | None:
    """Estimate the factor between `values` and `reference` on their common replications; None without any.

    The geometric mean of the ratios by replication, with the interval of Student's t for the mean of their logarithms:
    effects common to the jobs of a seed cancel out, and no interval reaches below 0. If a value is not above 0 it is
    `ratio_of_means`, or None if that does not exist either.
    """
    pairs = _pairs(values, reference)
    if not pairs:
        return None
    if any(above <= 0 or below <= 0 for above, below in pairs):
        return ratio_of_means(values, reference, confidence)
    return geometric((above / below for above, below in pairs), confidence)


def geometric(ratios: Iterable[float], confidence: float = CONFIDENCE) -> Estimate:
    """Return the geometric mean of positive ratios: `estimate` of their logarithms, exponentiated."""
    logs = estimate((math.log(one) for one in ratios), confidence)
    low, high = (None if end is None else math.exp(end) for end in (logs.low, logs.high))
    return Estimate(math.exp(logs.mean), logs.n, low, high)


def ratio_of_means(
    values: Mapping[Replica, float], reference: Mapping[Replica, float], confidence: float = CONFIDENCE
) -> Estimate | None:
    """Estimate mean(values) / mean(reference) over their common replications; None without any.

    The interval is that of the ratio estimator (Cochran, Sampling Techniques, 1977, equation 6.13): with R the ratio
    and e = value - R reference, R +- t(n - 1) s(e) / (sqrt(n) mean(reference)). Effects common to all jobs of a seed
    enter e only as far as they change the ratio.
    """
    pairs = _pairs(values, reference)
    above, below = (np.array([pair[i] for pair in pairs], dtype=float) for i in (0, 1))
    if not pairs or not below.mean():
        return None
    n, found = len(pairs), float(above.mean() / below.mean())
    if n == 1:
        return Estimate(found, 1)
    spread = float((above - found * below).std(ddof=1)) / (math.sqrt(n) * abs(float(below.mean())))
    half = student_t(n - 1, confidence) * spread
    return Estimate(found, n, found - half, found + half)


def _pairs(values: Mapping[Replica, float], reference: Mapping[Replica, float]) -> list[tuple[float, float]]:
    return [(values[key], reference[key]) for key in values if key in reference]


@cache
def student_t(degrees: int, confidence: float) -> float:
    """Return the two-sided critical value of Student's t distribution for `confidence`."""
    from scipy.special import stdtrit  # slow to load, and a single seed has no interval

    return float(stdtrit(degrees, 0.5 + confidence / 2))


def paired_difference(
    values: Mapping[Replica, float], reference: Mapping[Replica, float], confidence: float = CONFIDENCE
) -> Difference | None:
    """Compare two policies on their common seeds; None without any.

    Under one seed both face the same jobs, so the difference varies far less than either value.
    """
    pairs = _pairs(values, reference)
    if not pairs:
        return None
    absolute = estimate((a - b for a, b in pairs), confidence)
    if any(b == 0 for _, b in pairs):
        return Difference(absolute, None)
    return Difference(absolute, estimate(((a - b) / b for a, b in pairs), confidence))
