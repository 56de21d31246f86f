"""A point of a scrambled Sobol sequence of few dimensions, without the statistics library that has them of all.

Sobol, *On the distribution of points in a cube* (1967), with the direction numbers of Joe and Kuo (2008); scrambled by
a random linear map of the binary digits and a shift (Matousek, *On the L2-discrepancy for anchored boxes*, 1998).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_BITS = 30
#: The inner coefficients of each dimension's primitive polynomial over GF(2), and its first odd numbers m_1, m_2 ...;
#: the first dimension has none (van der Corput).
_DIRECTIONS: tuple[tuple[int, tuple[int, ...]], ...] = ((0, ()), (0, (1,)), (1, (1, 3)), (1, (1, 3, 1)), (2, (1, 1, 1)))
#: The most dimensions that are known here.
MOST_DIMENSIONS = len(_DIRECTIONS)


def scrambled_sobol_point(dimensions: int, index: int, rng: np.random.Generator) -> list[float]:
    """Return a point of the sequence that `rng` scrambles, counted from 0 in the order of Gray codes.

    The points are those of `scipy.stats.qmc.Sobol(dimensions, scramble=True, rng=rng)`, bit for bit. Raises
    `ValueError` for more than `MOST_DIMENSIONS` dimensions.
    """
    if not 1 <= dimensions <= MOST_DIMENSIONS:
        message = f"{dimensions} dimensions are not from 1 to {MOST_DIMENSIONS}"
        raise ValueError(message)
    own = rng.spawn(1)[0]
    shift = own.integers(2, size=(dimensions, _BITS), dtype=np.uint32)
    maps = np.tril(own.integers(2, size=(dimensions, _BITS, _BITS), dtype=np.uint32))
    maps[:, range(_BITS), range(_BITS)] = 1
    gray = index ^ (index >> 1)
    taken = [bit for bit in range(_BITS) if gray >> bit & 1]
    point = []
    for dimension in range(dimensions):
        digits = _direction_digits(*_DIRECTIONS[dimension])[:, taken].sum(axis=1)
        scrambled = (maps[dimension] @ digits + shift[dimension, ::-1]) % 2
        point.append(float(scrambled @ 2.0 ** -np.arange(1, _BITS + 1)))
    return point


def _direction_digits(inner: int, first: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """Return the binary digits of the direction numbers, a column for each, the most significant first."""
    degree = len(first)
    numbers = list(first) or [1] * _BITS
    for j in range(len(numbers), _BITS):
        found = numbers[j - degree] ^ (numbers[j - degree] << degree)
        for k in range(1, degree):
            if inner >> (degree - 1 - k) & 1:
                found ^= numbers[j - k] << k
        numbers.append(found)
    aligned = [number << (_BITS - 1 - j) for j, number in enumerate(numbers)]
    return np.array([[value >> (_BITS - 1 - row) & 1 for value in aligned] for row in range(_BITS)], dtype=np.int64)
