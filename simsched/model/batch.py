"""How a total batch is split over GPUs and micro-batches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simsched.arithmetic import exp, log
from simsched.model.application import BatchChoice, BatchLimits

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: The number of total batch sizes that an optimisation tries, geometrically spaced (Pollux's artifact).
CANDIDATES = 50
_SLACK = 1e-8  # below this, a quotient counts as whole


def ceil_slack(value: float) -> int:
    """Round up, except that a rounding error above a whole number does not count."""
    return math.ceil(value - _SLACK)


def split_batch(limits: BatchLimits, target: int, gpus: int, *, least_micro_batches: int = 1) -> BatchChoice:
    """Split a target total batch evenly over GPUs and as few micro-batches as fit, each rounded up."""
    local = ceil_slack(target / gpus)
    accum = max(ceil_slack(local / limits.max_local_bsz), least_micro_batches) - 1
    return BatchChoice(ceil_slack(local / (accum + 1)), accum)


def batch_for_target(limits: BatchLimits, target: int, gpus: int) -> BatchChoice:
    """Return the batch at which a job reaches a target total batch; rounding up may exceed it.

    On one GPU a batch above the initial one is always accumulated at least once, so that the job can take gradient
    statistics (Pollux, section 4.3; AdaptDL's data loader). Never exceeds the application's largest batch.
    """
    least = 2 if gpus == 1 and target > limits.init_batch_size else 1
    return clip_to_max(limits, split_batch(limits, target, gpus, least_micro_batches=least), gpus)


def clip_to_max(limits: BatchLimits, batch: BatchChoice, gpus: int) -> BatchChoice:
    """Lower the per-GPU batch until the total does not exceed the application's largest."""
    most = limits.max_batch_size // (gpus * (batch.accum_steps + 1))
    return BatchChoice(min(batch.local_bsz, most), batch.accum_steps)


def micro_batches(batch: int, gpus: ArrayLike, most: int) -> tuple[Floats, Floats]:
    """Return the examples of a micro-batch on one GPU, at most `most`, and the number of micro-batches per step.

    On one GPU there are at least two, as gradient statistics need them (Pollux, OSDI'21, section 4.3).
    """
    count = np.asarray(gpus, dtype=np.float64)
    local = _ceil(batch / count)
    parts = np.maximum(_ceil(local / most), np.where(count == 1, 2.0, 1.0))
    return _ceil(local / parts), parts


def candidate_batches(limits: BatchLimits, gpus: int) -> tuple[Ints, Ints]:
    """Split 50 geometrically spaced total batches over `gpus` GPUs and as few micro-batches as fit.

    Returns the per-GPU batches and accumulation steps, each of length 50; batches that do not fit are 0. Above the
    initial batch, one GPU always accumulates, so that the job can take gradient statistics.
    """
    smallest = max(limits.init_batch_size, limits.min_local_bsz * gpus)
    most = limits.max_batch_size
    between = exp(np.linspace(log(smallest), log(most), CANDIDATES)[1:-1])
    local = np.array([smallest, *between, most]) / gpus
    accum = _ceil(local / limits.max_local_bsz) - 1
    if gpus == 1:
        accum = np.where(local > limits.init_batch_size + _SLACK, np.maximum(accum, 1), accum)
    local = _ceil(local / (accum + 1))
    fits = (local >= limits.min_local_bsz) & (local <= limits.max_local_bsz)
    return np.where(fits, local, 0).astype(np.int64), accum.astype(np.int64)


def _ceil(values: Floats) -> Floats:
    """Round up as `ceil_slack` does."""
    return np.asarray(np.ceil(values - _SLACK), dtype=np.float64)


# How the batches of tuned jobs scale over GPUs, beyond classes of placement.
#
# Measured step times are not smooth in the number of GPUs: gains stall when an extra GPU opens a node, and end when
# synchronisation outweighs the remaining computation. Policies that follow marginal gains react to this, so a fitted
# application may carry a curve of factors for each total batch of its tuned jobs.


_LN2 = math.log(2)


@dataclass(frozen=True)
class ScalingCurve:
    """The factor on step times (computation and synchronisation alike) at one total batch.

    `factor[i]` applies to `gpus[i]` GPUs (ascending) that fill nodes of `gpus_per_node` one after the other; between
    them it is linear, beyond them constant. It fades out, linearly in the logarithm, until the per-GPU batch is twice
    or half that of `batch` on the same GPUs.
    """

    batch: int
    gpus_per_node: int
    gpus: tuple[int, ...]
    factor: tuple[float, ...]

    def at(self, gpus: ArrayLike) -> Floats:
        """Return the factor at the curve's own batch."""
        return np.asarray(np.interp(np.asarray(gpus, dtype=np.float64), self.gpus, self.factor), dtype=np.float64)

    def octaves(self, nodes: Floats, gpus: Floats, fullest: Floats, local_bsz: Floats, most: int) -> Floats:
        """Return how far per-GPU batches are from the curve's own; infinite on placements that do not fill nodes."""
        filled = (nodes == np.ceil(gpus / self.gpus_per_node)) & (fullest == np.minimum(gpus, self.gpus_per_node))
        own, _ = micro_batches(self.batch, gpus, most)
        return np.where(filled, np.abs(log(local_bsz / own)) / _LN2, np.inf)


def scaling_factor(
    curves: Sequence[ScalingCurve], nodes: Floats, gpus: Floats, fullest: Floats, local_bsz: Floats, most: int
) -> Floats:
    """Return the factor of the curve with the nearest per-GPU batch, ties going to the first.

    All arrays broadcast; `most` is the largest per-GPU batch.
    """
    away = np.array([curve.octaves(nodes, gpus, fullest, local_bsz, most) for curve in curves])
    excess = np.array([np.broadcast_to(curve.at(gpus) - 1, away.shape[1:]) for curve in curves])
    nearest = np.argmin(away, axis=0)[None]
    holds = np.maximum(1 - np.take_along_axis(away, nearest, axis=0), 0.0)
    return np.asarray((1 + holds * np.take_along_axis(excess, nearest, axis=0))[0], dtype=np.float64)
