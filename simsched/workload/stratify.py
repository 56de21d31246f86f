"""Stratifies the number of jobs of each class over seeds: variance reduction for experiments with few seeds.

Drawing `n` jobs of a trace gives each class a hypergeometric number of jobs. This module inverts that distribution at a
point of the unit cube. Successive seeds use the points of a scrambled Sobol sequence, which fills the cube evenly: each
eight seeds from 1, 9, 17 ... fall into eight different eighths. Every seed's counts still follow their distribution and
every job has the same probability, so means do not change (Owen, *Scrambled net variance for integrals of smooth
functions*, Annals of Statistics 25(4), 1997).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

#: The period of the sequence.
_PERIOD = 2**24


def class_counts(sizes: Sequence[int], jobs: int, seed: int, scramble: int = 0) -> list[int]:
    """Return how many of `jobs` jobs a seed draws from each class; `sizes` has the number of jobs of each.

    The counts add up to `jobs` and follow the multivariate hypergeometric distribution, both for one seed over all
    scrambles and for one scramble over all seeds. The rarest class is drawn first; ties keep their order.
    """
    if len(sizes) == 1:
        return [jobs]
    from scipy.stats import hypergeom  # large, and needed only here
    from scipy.stats.qmc import Sobol

    points = Sobol(len(sizes) - 1, scramble=True, rng=np.random.default_rng(scramble))
    point = points.fast_forward((seed - 1) % _PERIOD).random(1)[0] if seed != 1 else points.random(1)[0]
    counts = [0] * len(sizes)
    left, remaining = sum(sizes), jobs
    *rare, commonest = sorted(range(len(sizes)), key=lambda i: (sizes[i], i))
    for index, u in zip(rare, point.tolist(), strict=True):
        counts[index] = int(hypergeom.ppf(u, left, sizes[index], remaining))
        left, remaining = left - sizes[index], remaining - counts[index]
    counts[commonest] = remaining
    return counts


def stratified_sample(classes: npt.ArrayLike, jobs: int, seed: int, random_state: int) -> npt.NDArray[np.intp]:
    """Draw the indices of `jobs` jobs without replacement, with `class_counts` jobs of each class.

    `classes` names the class of each candidate. The indices are in random order.
    """
    labels = np.asarray(classes)
    names = np.unique(labels)
    places = [np.flatnonzero(labels == name) for name in names]
    counts = class_counts([len(p) for p in places], jobs, seed)
    rng = np.random.default_rng([random_state, *b"strata"])
    chosen = np.concatenate([rng.choice(p, size=n, replace=False) for p, n in zip(places, counts, strict=True)])
    return rng.permutation(chosen)
