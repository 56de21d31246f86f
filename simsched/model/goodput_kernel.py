"""The compiled search for the batch with the largest goodput; apart, so that only its users load the compiler."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simsched.jit import jit
from simsched.kernels import exp, log

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@jit
def best_of(
    gamma: float,
    grad: Floats,
    sync_s: Floats,
    gradient: Floats,
    init_batch_size: int,
    gpus: Ints,
    local: Ints,
    accum: Ints,
    goodput: Floats,
    best: Ints,
) -> None:
    """Fill the largest goodput of each row of candidates and where it stands, 0 and the first where none fits.

    `grad` holds the two parameters of T_grad, `sync_s` T_sync of each row, `gradient` squared norm and variance.
    Formulas as in `GoodputModel.evaluate`.
    """
    square, variance = gradient[0], gradient[1]
    for row in range(gpus.shape[0]):
        goodput[row], best[row] = 0.0, 0
        for at in range(local.shape[1]):
            batch = gpus[row] * local[row, at] * (accum[row, at] + 1)
            if batch == 0:
                continue
            scale = batch / init_batch_size
            grad_s = grad[0] + grad[1] * local[row, at]
            less, more = min(grad_s, sync_s[row]), max(grad_s, sync_s[row])
            step_s = more * exp(log(1.0 + exp(gamma * log(less / more))) / gamma)
            below = variance / scale + square
            gain = (variance + square) / below if below > 0 else 1.0
            found = batch / (accum[row, at] * grad_s + step_s) * (gain / scale)
            if found > goodput[row]:
                goodput[row], best[row] = found, at
