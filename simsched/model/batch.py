"""How a total batch is split over GPUs and micro-batches."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simsched.arithmetic import exp, log
from simsched.model.application import BatchChoice, BatchLimits

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Total batch sizes that an optimisation tries, geometrically spaced (Pollux's artifact).
CANDIDATES = 50
_SLACK = 1e-8  # below this, a quotient counts as whole


def ceil_slack(value: float) -> int:
    """Round up, but not past a whole number that was missed by rounding error only."""
    return math.ceil(value - _SLACK)


def split_batch(limits: BatchLimits, target: int, gpus: int, *, least_micro_batches: int = 1) -> BatchChoice:
    """Split a target total batch evenly over GPUs and as few micro-batches as fit, each rounded up."""
    local = ceil_slack(target / gpus)
    accum = max(ceil_slack(local / limits.max_local_bsz), least_micro_batches) - 1
    return BatchChoice(ceil_slack(local / (accum + 1)), accum)


def batch_for_target(limits: BatchLimits, target: int, gpus: int) -> BatchChoice:
    """Return the batch that a job runs at to reach a target total batch; it may be missed by rounding up.

    On one GPU a batch above the initial one is always accumulated at least once, so that gradient statistics can be
    taken (Pollux, section 4.3; AdaptDL's data loader). Never exceeds the application's largest batch.
    """
    least = 2 if gpus == 1 and target > limits.init_batch_size else 1
    return clip_to_max(limits, split_batch(limits, target, gpus, least_micro_batches=least), gpus)


def clip_to_max(limits: BatchLimits, batch: BatchChoice, gpus: int) -> BatchChoice:
    """Lower the per-GPU batch until the total does not exceed the application's largest."""
    most = limits.max_batch_size // (gpus * (batch.accum_steps + 1))
    return BatchChoice(min(batch.local_bsz, most), batch.accum_steps)


def micro_batches(batch: int, gpus: ArrayLike, most: int) -> tuple[Floats, Floats]:
    """Return the examples of a micro-batch on one GPU, at most `most`, and how many of them make a step.

    On one GPU there are at least two, as gradient statistics need them (Pollux, OSDI'21, section 4.3).
    """
    count = np.asarray(gpus, dtype=np.float64)
    local = _ceil(batch / count)
    parts = np.maximum(_ceil(local / most), np.where(count == 1, 2.0, 1.0))
    return _ceil(local / parts), parts


def candidate_batches(limits: BatchLimits, gpus: int) -> tuple[Ints, Ints]:
    """Split 50 geometrically spaced total batches over `gpus` GPUs and as few micro-batches as fit.

    Returns the per-GPU batches and accumulation steps, each of length 50; batches that do not fit are 0. Above the
    initial batch, one GPU always accumulates, so that gradient statistics can be taken.
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
