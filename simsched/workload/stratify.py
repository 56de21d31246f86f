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
import pandas as pd
from scipy.special import gammaln

from simsched.workload.sobol import MOST_DIMENSIONS, scrambled_sobol_point

#: Points after which the sequence begins anew.
_PERIOD = 2**24


def class_counts(sizes: Sequence[int], jobs: int, seed: int, scramble: int = 0) -> list[int]:
    """Return how many of `jobs` jobs a seed draws of each class, of which there are `sizes` jobs.

    The counts add up to `jobs` and follow the multivariate hypergeometric distribution, for one seed over all scrambles
    and for one scramble over all seeds. The rarest class is drawn first; classes of equal size in their order.
    """
    if len(sizes) == 1:
        return [jobs]
    point = _point(len(sizes) - 1, (seed - 1) % _PERIOD, np.random.default_rng(scramble))
    counts = [0] * len(sizes)
    left, remaining = sum(sizes), jobs
    *rare, commonest = sorted(range(len(sizes)), key=lambda i: (sizes[i], i))
    for index, u in zip(rare, point, strict=True):
        counts[index] = _hypergeometric_quantile(u, left, sizes[index], remaining)
        left, remaining = left - sizes[index], remaining - counts[index]
    counts[commonest] = remaining
    return counts


def _point(dimensions: int, index: int, rng: np.random.Generator) -> list[float]:
    """Return a point of the scrambled sequence; of many dimensions, from the library that takes long to load."""
    if dimensions <= MOST_DIMENSIONS:
        return scrambled_sobol_point(dimensions, index, rng)
    from scipy.stats.qmc import Sobol

    points = Sobol(dimensions, scramble=True, rng=rng)
    point: list[float] = (points.fast_forward(index) if index else points).random(1)[0].tolist()
    return point


def _hypergeometric_quantile(u: float, total: int, marked: int, drawn: int) -> int:
    """Return the least number of marked among those drawn whose distribution function reaches `u`."""
    counts = np.arange(max(0, drawn - (total - marked)), min(marked, drawn) + 1)
    log = _log_choose(marked, counts) + _log_choose(total - marked, drawn - counts) - _log_choose(total, drawn)
    reached = np.cumsum(np.exp(log)) >= u
    return int(counts[np.argmax(reached)] if reached.any() else counts[-1])


def _log_choose(n: npt.ArrayLike, k: npt.ArrayLike) -> npt.NDArray[np.float64]:
    n, k = np.asarray(n), np.asarray(k)
    found: npt.NDArray[np.float64] = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    return found


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
