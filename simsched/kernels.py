"""The functions of `simsched.arithmetic` for compiled kernels, equal to the bit; apart, as they bring the compiler."""

from __future__ import annotations

import math

import numpy as np

from simsched.arithmetic import PER_LN2, ROOT_HALF, VANISHES, exp_of_parts, log_of_parts
from simsched.jit import leaf

_log_of_parts, _exp_of_parts = leaf(log_of_parts), leaf(exp_of_parts)


@leaf
def log(x: float) -> float:
    """Return the natural logarithm of a number above 0."""
    part, power = math.frexp(x)
    if part < ROOT_HALF:
        part, power = 2.0 * part, power - 1
    found: float = _log_of_parts(part, float(power))
    return found


@leaf
def exp(x: float) -> float:
    """Return e to the power of a number that is at most 709."""
    if x < VANISHES:
        return 0.0
    power = np.rint(x * PER_LN2)
    return math.ldexp(_exp_of_parts(x, power), int(power))
