"""Goodput, the product of throughput and statistical efficiency, and the batch that maximises it (Pollux)."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simsched.model.application import BatchLimits, GradientStats
from simsched.model.batch import candidate_batches
from simsched.model.throughput import ThroughputParams

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_IN_ORDER: Final = attrgetter(*(parameter.name for parameter in fields(ThroughputParams)))


class BestBatch(NamedTuple):
    """The largest goodput of each configuration and the batch that reaches it; three arrays of one shape."""

    goodput: Floats
    local_bsz: Ints
    accum_steps: Ints


class CandidateBatches:
    """The batches that an optimisation tries, which depend only on an application's limits.

    Shared by all goodput models of an application, which thus build each set of candidates once.
    """

    def __init__(self, limits: BatchLimits) -> None:
        self.limits = limits
        self._of_gpus: dict[int, tuple[Ints, Ints]] = {}
        self._stacked: dict[bytes, tuple[Ints, Ints]] = {}

    def of(self, gpus: Ints) -> tuple[Ints, Ints]:
        """Return per-GPU batch and accumulation steps; each len(gpus) x 50, invalid ones with a batch of 0."""
        key = gpus.tobytes()
        if key not in self._stacked:
            rows = [self._row(int(count)) for count in gpus]
            self._stacked[key] = np.stack([b for b, _ in rows]), np.stack([a for _, a in rows])
        return self._stacked[key]

    def _row(self, gpus: int) -> tuple[Ints, Ints]:
        if gpus not in self._of_gpus:
            self._of_gpus[gpus] = candidate_batches(self.limits, gpus)
        return self._of_gpus[gpus]


@dataclass(frozen=True)
class GoodputModel:
    """Predicts the goodput of one job, in examples per second that are worth as much as at the initial batch size.

    It combines fitted throughput parameters and gradient statistics of one moment. Throughput only depends on whether
    the job spans nodes, so all numbers of nodes above one give the same goodput.
    """

    params: ThroughputParams
    gradient: GradientStats
    limits: BatchLimits
    candidates: CandidateBatches | None = field(default=None, repr=False, compare=False)

    def evaluate(self, nodes: ArrayLike, gpus: ArrayLike, local_bsz: ArrayLike, accum_steps: ArrayLike) -> Floats:
        """Return the goodput of configurations, as arrays that broadcast against each other."""
        batch = np.asarray(gpus) * np.asarray(local_bsz) * (np.asarray(accum_steps) + 1)
        scale = batch / self.limits.init_batch_size
        throughput = batch / self.params.iteration_time_s(nodes, gpus, local_bsz, accum_steps)
        return np.asarray(throughput * (gain(self.gradient, scale) / scale), dtype=np.float64)

    def optimise(self, nodes: ArrayLike, gpus: ArrayLike) -> BestBatch:
        """Find the batch with the largest goodput on each placement (numbers or flat arrays).

        The smallest total batch of equally good candidates wins. A placement on which no candidate fits gets goodput 0.
        The batch may exceed the largest allowed one by rounding up; the job that runs it clips it.
        """
        spread, count = np.broadcast_arrays(np.asarray(nodes, dtype=np.int64), np.asarray(gpus, dtype=np.int64))
        flat = np.ascontiguousarray(count).reshape(-1)
        local, accum = (self.candidates or CandidateBatches(self.limits)).of(flat)
        from simsched.model.goodput_kernel import best_of  # loads numba, and few runs search for batches

        goodput, best = np.empty(len(flat)), np.empty(len(flat), dtype=np.int64)
        params, gradient = np.array(_IN_ORDER(self.params)), np.array(self.gradient, dtype=np.float64)
        across = np.ascontiguousarray(spread).reshape(-1)
        best_of(params, gradient, self.limits.init_batch_size, across, flat, local, accum, goodput, best)
        shape, at = count.shape, (np.arange(len(flat)), best)
        return BestBatch(goodput.reshape(shape), local[at].reshape(shape), accum[at].reshape(shape))


def gain(gradient: GradientStats, scale: ArrayLike) -> Floats:
    """Return the AdaScale gain r of batches `scale` times the initial one: initial-size iterations per iteration.

    It is 1 if the estimated statistics are so noisy that the formula's denominator is not positive.
    """
    times = np.asarray(scale, dtype=np.float64)
    below = gradient.var / times + gradient.sqr
    usable = below > 0
    return np.where(usable, (gradient.var + gradient.sqr) / np.where(usable, below, 1.0), 1.0)


def efficiency(gradient: GradientStats, scale: ArrayLike) -> Floats:
    """Return the statistical efficiency of batches `scale` times the initial one, relative to it (equation 6)."""
    return gain(gradient, scale) / np.asarray(scale, dtype=np.float64)


def noise_scale(gradient: GradientStats, init_batch_size: int) -> float:
    """Return the gradient noise scale phi, in examples, of statistics taken at the initial batch size.

    With it the efficiency is (phi + M0) / (phi + M). It is infinite if the estimated mean gradient is 0.
    """
    return init_batch_size * gradient.var / gradient.sqr if gradient.sqr > 0 else float("inf")


def gradient_of(noise: float, init_batch_size: int) -> GradientStats:
    """Return gradient statistics of unit squared mean with a gradient noise scale of `noise` examples."""
    return GradientStats(1.0, noise / init_batch_size)
