"""Functions whose results are the same bits on every processor.

IEEE 754 fixes the results of adding, multiplying, dividing, rounding and taking square roots. It does not fix those of
exponentials, logarithms and powers, for which numpy and the C library choose code by processor, nor the order of sums
in linear algebra. What lies between a seed and a table uses these functions instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
PER_LN2 = 1.44269504088896338700
ROOT_HALF = 0.70710678118654752440
_OVERFLOWS, VANISHES = 709.782712893384, -745.1332191019411
#: Numbers of an array up to which it is taken one by one.
_FEW = 12


def ordered_sum(terms: Iterable[float]) -> float:
    """Return the sum from left to right, each step rounded; the sum of Python 3.12 and later compensates floats."""
    total = 0.0
    for term in terms:
        total += term
    return total


def log_of_parts(part: Any, power: Any) -> Any:
    """Return the logarithm of part x 2 ** power, for a part from the root of 1/2 to that of 2.

    The approximation is that of fdlibm (Sun Microsystems, 1993), off by less than a unit in the last place.
    """
    f = part - 1.0
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    odd = z * (
        0.6666666666666735130 + w * (0.2857142874366239149 + w * (0.1818357216161805012 + w * 0.1479819860511658591))
    )
    even = w * (0.3999999999940941908 + w * (0.2222219843214978396 + w * 0.1531383769920937332))
    half = 0.5 * f * f
    return power * _LN2_HIGH - ((half - (s * (half + (odd + even)) + power * _LN2_LOW)) - f)


def exp_of_parts(x: Any, power: Any) -> Any:
    """Return e ** x / 2 ** power, where `power` is the whole number next to x / ln 2; fdlibm's, as above."""
    high, low = x - power * _LN2_HIGH, power * _LN2_LOW
    r = high - low
    t = r * r
    p = 1.66666666666666019037e-01 + t * (
        -2.77777777770155933842e-03
        + t * (6.61375632143793436117e-05 + t * (-1.65339022054652515390e-06 + t * 4.13813679705723846039e-08))
    )
    c = r - t * p
    return 1.0 - ((low - (r * c) / (2.0 - c)) - high)


@overload
def log(x: float) -> float: ...
@overload
def log(x: ArrayLike) -> Floats: ...
def log(x: ArrayLike) -> float | Floats:
    """Return natural logarithms; of 0 minus infinity, of what is negative nothing (NaN)."""
    return _each(x, _log_one, _log_all)


@overload
def exp(x: float) -> float: ...
@overload
def exp(x: ArrayLike) -> Floats: ...
def exp(x: ArrayLike) -> float | Floats:
    """Return e to the power of each number."""
    return _each(x, _exp_one, _exp_all)


@overload
def power(x: float, exponent: float) -> float: ...
@overload
def power(x: ArrayLike, exponent: float) -> Floats: ...
def power(x: ArrayLike, exponent: float) -> float | Floats:
    """Return a power of each number, none below 0; what is off grows with the logarithm of the result."""
    if exponent == 0 or exponent == 1:
        given = np.asarray(x, dtype=np.float64)
        same = given.copy() if exponent else np.ones_like(given)
        return same if given.ndim else float(same)
    return exp(exponent * log(x))


def dot(one: ArrayLike, other: ArrayLike) -> float:
    """Return the sum of products of two vectors, in the order of numpy's own sums, which is the same everywhere."""
    return float(times(one, other))


def times(rows: ArrayLike, vector: ArrayLike) -> Floats:
    """Return the sums of products of rows, shape (..., n), with a vector, shape (n,)."""
    products = np.asarray(rows, dtype=np.float64) * np.asarray(vector, dtype=np.float64)
    return np.asarray(products.sum(axis=-1), dtype=np.float64)


def _each(x: ArrayLike, one: Callable[[float], float], many: Callable[[Floats], Floats]) -> float | Floats:
    """Take numbers and short arrays one by one, which is faster than a dozen passes over an array."""
    if isinstance(x, float | int):
        return one(float(x))
    given = np.asarray(x, dtype=np.float64)
    if given.size > _FEW:
        return many(given)
    found = np.array([one(value) for value in given.ravel().tolist()], dtype=np.float64).reshape(given.shape)
    return found if found.ndim else float(found)


def _log_one(x: float) -> float:
    if not 0.0 < x < math.inf:
        return x if x > 0 else -math.inf if x == 0 else math.nan
    part, power = math.frexp(x)
    if part < ROOT_HALF:
        part, power = 2.0 * part, power - 1
    return float(log_of_parts(part, float(power)))


def _log_all(x: Floats) -> Floats:
    usable = (x > 0) & (x < np.inf)
    part, power = np.frexp(np.where(usable, x, 1.0))
    low = part < ROOT_HALF
    found = log_of_parts(np.where(low, 2.0 * part, part), (power - low).astype(np.float64))
    return np.where(usable, found, np.where(x == 0, -np.inf, np.where(x > 0, np.inf, np.nan)))


def _exp_one(x: float) -> float:
    if not VANISHES <= x <= _OVERFLOWS:
        return 0.0 if x < 0 else math.inf if x > 0 else math.nan
    power = float(round(x * PER_LN2))
    return math.ldexp(float(exp_of_parts(x, power)), int(power))


def _exp_all(x: Floats) -> Floats:
    usable = (x >= VANISHES) & (x <= _OVERFLOWS)
    known = np.where(usable, x, 0.0)
    power = np.rint(known * PER_LN2)
    found = np.ldexp(exp_of_parts(known, power), power.astype(np.int64))
    return np.where(usable, found, np.where(x < 0, 0.0, np.where(x > 0, np.inf, np.nan)))


@dataclass(frozen=True)
class Series:
    """Numbers that each hold for `step_s` seconds, the last one for ever; `source` is their file.

    Prices are paid for every begun `bill_s` seconds of a stay, or for 0 by the second.
    """

    step_s: float
    values: Sequence[float]
    source: str = field(default="", compare=False)
    bill_s: float = 0.0

    def between(self, start_s: float, end_s: float) -> float:
        """Return the integral of the numbers over an interval, in number-seconds."""
        total, at_s = 0.0, start_s
        while at_s < end_s:
            place = int(at_s // self.step_s)
            until_s = end_s if place >= len(self.values) - 1 else min((place + 1) * self.step_s, end_s)
            total += (until_s - at_s) * self.at(at_s)
            at_s = until_s
        return total

    def at(self, time_s: float) -> float:
        """Return the number that holds at a second."""
        return self.values[min(int(time_s // self.step_s), len(self.values) - 1)]
