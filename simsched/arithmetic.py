"""Functions whose results are the same bits on every processor.

IEEE 754 fixes the results of adding, multiplying, dividing, rounding and taking square roots. It does not fix those of
exponentials, logarithms and powers, for which numpy and the C library choose code by processor, nor the order of sums
in linear algebra. What lies between a seed and a table uses these functions instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
PER_LN2 = 1.44269504088896338700
ROOT_HALF = 0.70710678118654752440
_OVERFLOWS, VANISHES = 709.782712893384, -745.1332191019411


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


def log(x: ArrayLike) -> Floats:
    """Return natural logarithms; of 0 minus infinity, of what is negative nothing (NaN)."""
    given = np.asarray(x, dtype=np.float64)
    usable = (given > 0) & (given < np.inf)
    part, power = np.frexp(np.where(usable, given, 1.0))
    low = part < ROOT_HALF
    found = log_of_parts(np.where(low, 2.0 * part, part), power - low)
    return np.where(usable, found, np.where(given == 0, -np.inf, np.where(given > 0, np.inf, np.nan)))


def exp(x: ArrayLike) -> Floats:
    """Return e to the power of each number."""
    given = np.asarray(x, dtype=np.float64)
    within = np.clip(given, VANISHES - 1, _OVERFLOWS)
    known = np.where(np.isnan(within), 0.0, within)
    power = np.rint(known * PER_LN2)
    found = np.ldexp(exp_of_parts(known, power), power.astype(np.int64))
    return np.where(np.isnan(given), np.nan, np.where(given > _OVERFLOWS, np.inf, found))
