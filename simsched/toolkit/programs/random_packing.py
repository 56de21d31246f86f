"""Gandiva's packing as in Gavel's comparison: pairs of jobs drawn at random and kept while they pay off."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

import numpy as np

from simsched.toolkit.programs.problem import Floats, Integers

#: Rates of a job alone, or of both jobs of a pair, by GPU type: shape (types,) or (2, types).
Rates = Callable[[tuple[str, ...]], Floats]
Unit = tuple[str, ...]


class RandomPacking:
    """Units that persist across calls: each job is alone or in one pair.

    Nothing is packed while all jobs fit. Otherwise draws two of the jobs without a unit, as often as there are such
    jobs, and pairs them if both still have none and ask for the same number of GPUs. A pair breaks up when one of its
    rates is 0 or its normalised rates, summed over both jobs and all types, fall below 1 (Gavel's simulator; the sum
    over types makes this rare).
    """

    def __init__(self, rng: Random) -> None:
        """Start without units; `rng` draws the pairs."""
        self._rng = rng
        self._pairs: list[Unit] = []

    def shares(self, sizes: Mapping[str, int], num_gpus: Integers | Floats, rates: Rates) -> Mapping[Unit, Floats]:
        """Return the share of each unit on each type; `sizes` maps jobs to their GPUs in the order of arrival."""
        if sum(sizes.values()) <= num_gpus.sum():
            self._pairs = []
            return _equal([(job,) for job in sizes], sizes, num_gpus)
        self._pairs = [pair for pair in self._pairs if all(job in sizes for job in pair)]
        self._pairs = [pair for pair in self._pairs if _pays(pair, rates)]
        self._draw(sizes, rates)
        paired = {job for pair in self._pairs for job in pair}
        units = [*((job,) for job in sizes if job not in paired), *self._pairs]
        return _equal(units, sizes, num_gpus)

    def _draw(self, sizes: Mapping[str, int], rates: Rates) -> None:
        paired = {job for pair in self._pairs for job in pair}
        single = [job for job in sizes if job not in paired]
        for _ in range(len(single)):
            if len(single) < 2:
                break
            first, second = self._rng.sample(single, 2)
            if sizes[first] == sizes[second] and _pays((first, second), rates):
                self._pairs.append((first, second))
                single.remove(first)
                single.remove(second)


def _pays(pair: Unit, rates: Rates) -> bool:
    together = rates(pair)
    alone = np.stack([rates((job,)) for job in pair])
    if (together <= 0).any() or (alone <= 0).any():
        return False
    return bool((together / alone).sum() >= 1.0)


def _equal(units: Sequence[Unit], sizes: Mapping[str, int], num_gpus: Integers | Floats) -> Mapping[Unit, Floats]:
    """Return N_k / (units x GPUs) for every unit, rows capped at 1."""
    shares = {}
    for unit in units:
        row = num_gpus / len(units) / sizes[unit[0]]
        shares[unit] = np.asarray(row / max(1.0, float(row.sum())))
    return shares
