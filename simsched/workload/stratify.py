"""How many jobs of each class a seed draws, spread evenly over seeds: variance reduction for experiments of few seeds.

Drawing `n` of the jobs of a trace gives each class a hypergeometric number of them. Here that number is found by
inverting its distribution at a point u in [0, 1), and the points of successive seeds are those of a Kronecker sequence,
frac(shift + seed x irrational number), which fills [0, 1) as evenly as can be however many seeds there are. Each seed's
counts still follow their distribution, every job is drawn with the same chance, so that means stay what they are; but
the mean count over k seeds in a row is off by some 1/k instead of 1/sqrt(k) (Niederreiter, Random Number Generation and
Quasi-Monte Carlo Methods, 1992, chapter 3).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import hypergeom

#: A number for each class drawn, the rarest class first: irrational, and independent over the rationals.
STEPS = (np.sqrt(5) / 2 - 0.5, np.sqrt(2) - 1, np.sqrt(3) - 1, np.sqrt(7) - 2)
#: Where the sequences begin, unless told otherwise.
SHIFT = 0.5


def class_counts(sizes: Sequence[int], jobs: int, seed: int, shift: float = SHIFT) -> list[int]:
    """Return how many of `jobs` jobs a seed draws of each class, of which there are `sizes` jobs.

    The counts add up to `jobs` and follow the multivariate hypergeometric distribution: over all seeds, and for one
    seed over `shift` in [0, 1). The rarest class is drawn first; classes of equal size in their order.
    """
    counts = [0] * len(sizes)
    left, remaining = sum(sizes), jobs
    for place, index in enumerate(sorted(range(len(sizes)), key=lambda i: (sizes[i], i))):
        u = (shift + (seed + 1) * STEPS[place % len(STEPS)]) % 1.0
        counts[index] = int(hypergeom.ppf(u, left, sizes[index], remaining)) if sizes[index] < left else remaining
        left, remaining = left - sizes[index], remaining - counts[index]
    return counts


def stratified_sample(
    table: pd.DataFrame, classes: npt.ArrayLike, jobs: int, seed: int, random_state: int
) -> pd.DataFrame:
    """Draw `jobs` rows without replacement, of each class as many as `class_counts` says, in random order."""
    labels = np.asarray(classes)
    names = np.unique(labels)
    places = [np.flatnonzero(labels == name) for name in names]
    counts = class_counts([len(p) for p in places], jobs, seed)
    rng = np.random.default_rng([random_state, *b"strata"])
    chosen = np.concatenate([rng.choice(p, size=n, replace=False) for p, n in zip(places, counts, strict=True)])
    return table.iloc[rng.permutation(chosen)]
