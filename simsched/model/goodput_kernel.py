"""The compiled search for the batch with the largest goodput; separate, so that only its users load the compiler."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simsched.jit import jit, leaf
from simsched.kernels import exp, log
from simsched.model.throughput import TINY

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@leaf
def _overlapped(share: float, gamma: float) -> float:
    """Return the factor by which the longer of two times grows if the other is a `share` of it (equation 10)."""
    grown: float = exp(log(1.0 + exp(gamma * log(share))) / gamma)
    return grown


@jit
def best_of(
    params: Floats,
    gradient: Floats,
    init_batch_size: int,
    nodes: Ints,
    gpus: Ints,
    local: Ints,
    accum: Ints,
    goodput: Floats,
    best: Ints,
) -> None:
    """Fill in the largest goodput of each row of candidates and its index; 0 and the first index if none fits.

    `params` are the seven of `ThroughputParams`, `gradient` squared norm and variance. Formulas as in
    `GoodputModel.evaluate`. It computes the overlap of two times only if the longer of them alone does not already rule
    out the candidate.
    """
    alpha_c, beta_c, gamma = params[0], params[1], params[6]
    square, variance = gradient[0], gradient[1]
    near = 0
    for row in range(gpus.shape[0]):
        count = gpus[row]
        alpha = params[2] if nodes[row] > 1 else params[4] if count > 1 else TINY
        beta = params[3] if nodes[row] > 1 else params[5] if count > 1 else TINY
        sync_s = alpha + beta * max(count - 2.0, TINY)
        goodput[row], best[row] = 0.0, 0
        # Start with the best candidate of the previous row, which is rarely far off.
        for trial in range(-1, local.shape[1]):
            at = near if trial < 0 else trial
            batch = count * local[row, at] * (accum[row, at] + 1)
            if batch == 0:
                continue
            scale = batch / init_batch_size
            grad_s = alpha_c + beta_c * local[row, at]
            less, more = min(grad_s, sync_s), max(grad_s, sync_s)
            below = variance / scale + square
            gain = (variance + square) / below if below > 0 else 1.0
            known_s, worth = accum[row, at] * grad_s, gain / scale
            if batch / (known_s + more) * worth < goodput[row]:
                continue
            found = batch / (known_s + more * _overlapped(less / more, gamma)) * worth
            if found > goodput[row] or (found == goodput[row] and at < best[row]):
                goodput[row], best[row] = found, at
        near = best[row]
