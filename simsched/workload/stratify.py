"""How many jobs of each class a seed draws, spread evenly over seeds: variance reduction for experiments of few seeds.

Drawing `n` of the jobs of a trace gives each class a hypergeometric number of them. Here that number is found by
inverting its distribution at a point of the unit cube, and the points of successive seeds are those of a scrambled
Sobol sequence, which fill the cube evenly: each eight seeds from 1, 9, 17 ... on fall into eight different eighths.
Every seed's counts still follow their distribution and every job is drawn with the same chance, so means stay what
they are (Owen, *Scrambled net variance for integrals of smooth functions*, Annals of Statistics 25(4), 1997).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

#: The points after which the sequence repeats.
_PERIOD = 2**24


def class_counts(sizes: Sequence[int], jobs: int, seed: int, scramble: int = 0) -> list[int]:
    """Return how many of `jobs` jobs a seed draws of each class, of which there are `sizes` jobs.

    The counts add up to `jobs` and follow the multivariate hypergeometric distribution, for one seed over all scrambles
    and for one scramble over all seeds. The rarest class is drawn first; classes of equal size in their order.
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
    """Draw the places of `jobs` jobs without replacement, of each class as many as `class_counts` says.

    `classes` names the class of each job that may be drawn. The places are in random order.
    """
    labels = np.asarray(classes)
    names = np.unique(labels)
    places = [np.flatnonzero(labels == name) for name in names]
    counts = class_counts([len(p) for p in places], jobs, seed)
    rng = np.random.default_rng([random_state, *b"strata"])
    chosen = np.concatenate([rng.choice(p, size=n, replace=False) for p, n in zip(places, counts, strict=True)])
    return rng.permutation(chosen)
