"""Non-negative least squares with few columns, in a fixed order of summation."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from simsched.jit import jit, leaf

Numbers = npt.NDArray[np.float64]

_DEPENDENT = 1e-12  # of a column's length; a smaller residual against earlier columns is rounding


@jit
def nonnegative(columns: Numbers, target: Numbers) -> Numbers:
    """Return the multiples of about ten columns at most, shape (n, k), that come closest to a target, shape (n,).

    Every subset of columns is solved by orthogonal projection (modified Gram-Schmidt); the best without a negative
    multiple is the optimum.
    """
    count, most = columns.shape
    best, least = np.zeros(most), _product(target, target)
    across, along = np.empty((most, count)), np.zeros((most, most))
    share, found, which = np.empty(most), np.empty(most), np.empty(most, np.int64)
    for chosen in range(1, 2**most):
        size, left = 0, target.copy()
        for j in range(most):
            if (chosen >> j) % 2 == 0:
                continue
            rest = columns[:, j].copy()
            whole = _product(rest, rest)
            for i in range(size):
                along[i, size] = _product(across[i], rest)
                rest -= along[i, size] * across[i]
            length = np.sqrt(_product(rest, rest))
            if length <= _DEPENDENT * np.sqrt(whole):
                continue
            along[size, size], which[size] = length, j
            for n in range(count):  # numba takes three seconds to compile an assignment of slices
                across[size, n] = rest[n] / length
            share[size] = _product(across[size], left)
            left -= share[size] * across[size]
            size += 1
        usable = size > 0
        for i in range(size - 1, -1, -1):
            found[i] = share[i]
            for j in range(i + 1, size):
                found[i] -= along[i, j] * found[j]
            found[i] /= along[i, i]
            usable = usable and found[i] >= 0
        error = _product(left, left)
        if usable and error < least:
            least = error
            best[:] = 0.0
            for i in range(size):
                best[which[i]] = found[i]
    return best


@leaf
def _product(one: Numbers, other: Numbers) -> float:
    total = 0.0
    for i in range(one.shape[0]):
        total += one[i] * other[i]
    return total
