"""Named random streams of one seed.

Each stream is its own function of the seed and its name, so that a draw more in one of them shifts no other, and two
policies under one seed face the same arrivals.
"""

from __future__ import annotations

import zlib

import numpy as np


def stream(seed: int, name: str) -> np.random.Generator:
    """Make the generator of the stream `name` under a non-negative seed."""
    return np.random.default_rng(np.random.SeedSequence([seed, zlib.crc32(name.encode())]))
