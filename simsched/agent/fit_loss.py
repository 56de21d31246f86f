"""The compiled loss of the throughput model's fit; apart, so that only runs that fit anything load the compiler."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from simsched.jit import jit

Floats = NDArray[np.float64]

_ALPHA_C, _BETA_C, _ALPHA_N, _BETA_N, _ALPHA_R, _BETA_R, _GAMMA = range(7)
_OVERLAP_PRIOR = 1e-3  # weight of (gamma - 1)^2
_SLOPE_PRIOR = 1e-2  # weight of (beta / alpha)^2 of both kinds of synchronisation


@jit
def add_slope(
    at: Floats,
    local_bsz: Floats,
    sync_terms: Floats,
    alone_s: Floats,
    log_compute: Floats,
    log_step: Floats,
    slope: Floats,
) -> float:
    """Return the loss and add its gradient to `slope`, which holds zeros; loops, because the arrays are short."""
    count, gamma = local_bsz.shape[0], at[_GAMMA]
    grad, sync, share = np.empty(count), np.empty(count), np.empty(count)
    by_gamma, grad_miss, step_miss = np.empty(count), np.empty(count), np.empty(count)
    grad_squares = step_squares = 0.0
    for i in range(count):
        grad[i] = at[_ALPHA_C] + at[_BETA_C] * local_bsz[i]
        sync[i] = alone_s[i]
        for k in range(4):
            sync[i] += at[_ALPHA_N + k] * sync_terms[k, i]
        log_grad, log_sync = math.log(grad[i]), math.log(sync[i])
        grad_power = math.exp(gamma * log_grad)
        total = grad_power + math.exp(gamma * log_sync)
        log_total, share[i] = math.log(total), grad_power / total
        by_gamma[i] = (share[i] * log_grad + (1 - share[i]) * log_sync - log_total / gamma) / gamma
        grad_miss[i], step_miss[i] = log_grad - log_compute[i], log_total / gamma - log_step[i]
        grad_squares += grad_miss[i] ** 2
        step_squares += step_miss[i] ** 2
    grad_rms, step_rms = math.sqrt(grad_squares / count), math.sqrt(step_squares / count)
    for i in range(count):
        # The derivative of a root mean square is 0 at its kink. T_iter depends on T_grad by its share / T_grad, on
        # T_sync likewise, and on gamma by what the product rule leaves.
        grad_weight = grad_miss[i] / (count * grad_rms) if grad_rms > 0 else 0.0
        step_weight = step_miss[i] / (count * step_rms) if step_rms > 0 else 0.0
        by_grad = (grad_weight + step_weight * share[i]) / grad[i]
        by_sync = step_weight * (1 - share[i]) / sync[i]
        slope[_ALPHA_C] += by_grad
        slope[_BETA_C] += by_grad * local_bsz[i]
        for k in range(4):
            slope[_ALPHA_N + k] += by_sync * sync_terms[k, i]
        slope[_GAMMA] += step_weight * by_gamma[i]
    loss: float = grad_rms + step_rms + _OVERLAP_PRIOR * (gamma - 1) ** 2
    slope[_GAMMA] += 2 * _OVERLAP_PRIOR * (gamma - 1)
    for alpha in (_ALPHA_N, _ALPHA_R):
        ratio = at[alpha + 1] / at[alpha]
        loss += _SLOPE_PRIOR * ratio**2
        slope[alpha + 1] += 2 * _SLOPE_PRIOR * ratio / at[alpha]
        slope[alpha] -= 2 * _SLOPE_PRIOR * ratio**2 / at[alpha]
    return loss
