"""The compiled fit of the throughput model; separate, so that only runs that fit anything load the compiler.

The loss is smooth except where all errors of a kind are 0, which is possible with few measurements: there a root mean
square has a kink. The fit therefore adds the square of a width to its square, and shrinks the width until it is
negligible.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from simsched.jit import jit, leaf
from simsched.kernels import exp, log
from simsched.model.throughput import TINY

Floats = NDArray[np.float64]

_ALPHA_C, _BETA_C, _ALPHA_N, _BETA_N, _ALPHA_R, _BETA_R, _GAMMA = range(7)
_OVERLAP_PRIOR = 1e-3  # weight of (gamma - 1)^2
_SLOPE_PRIOR = 1e-2  # weight of (beta / alpha)^2 of both kinds of synchronisation
_WIDEST, _NARROWER, _NARROWEST = 1e-3, 1e-3, 1e-9  # widths of the kinks: first, factor, last
_NEGLIGIBLE = 1e-4  # share of an error below which a width is negligible
_MOST_STEPS = 100  # of one width
_CONVERGED = 1e-9  # change of the loss that a step promises, relative to the loss
_LEAST_DAMPING, _MOST_DAMPING = 1e-12, 1e12


@jit
def points_of(measured: Floats) -> Floats:
    """Build the points of a fit, one row per measurement, as `loss_at` reads them.

    A row of `measured` holds nodes, GPUs, per-GPU batch, and the seconds of a step and of its synchronisation.
    """
    points = np.zeros((measured.shape[0], 8))
    for i in range(measured.shape[0]):
        nodes, gpus, step_s, sync_s = measured[i, 0], measured[i, 1], measured[i, 3], measured[i, 4]
        points[i, 0] = measured[i, 2]
        if gpus > 1:
            # T_sync is linear in its four parameters: alpha_n, beta_n, alpha_r, beta_r.
            kind = 1 if nodes > 1 else 3
            points[i, kind], points[i, kind + 1] = 1.0, max(gpus - 2, TINY)
        else:
            points[i, 5] = TINY + TINY * TINY
        points[i, 6], points[i, 7] = log(step_s - sync_s), log(step_s)
    return points


@jit
def best_fit(start: Floats, lowest: Floats, highest: Floats, measured: Floats) -> tuple[Floats, float]:
    """Return the best of the points to which three starts lead, and its loss; ties go to the first.

    If synchronisation is near 0 or overlaps almost fully, the loss hardly depends on it, and a descent may get stuck
    there. Two starts therefore attribute all of a measured step, or all but the computation, to synchronisation.
    """
    points = points_of(measured)
    best, least = start.copy(), np.inf
    for trial in range(3 if points[:, 1:5].max() > 0.0 else 1):
        at = start.copy()
        if trial > 0:
            at[_GAMMA] = 4.0 - trial
            for alpha in (_ALPHA_N, _ALPHA_R):
                at[alpha] = _mean_sync_s(points, measured, alpha - 1, trial - 1.0)
                at[alpha + 1] = 0.01 * at[alpha]
        for j in range(7):
            at[j] = min(max(at[j], lowest[j]), highest[j])
        loss = minimise(at, lowest, highest, points)
        if loss < least * (1 - _CONVERGED):
            best, least = at, loss
    return best, least


@leaf
def _mean_sync_s(points: Floats, measured: Floats, kind: int, compute_share: float) -> float:
    """Return the mean of steps less a share of their computation, over steps with one kind of synchronisation."""
    total, count = 0.0, 0
    for i in range(points.shape[0]):
        if points[i, kind] > 0:
            total += measured[i, 3] - compute_share * (measured[i, 3] - measured[i, 4])
            count += 1
    return total / count if count else 0.1


@jit
def loss_at(at: Floats, points: Floats, width: float, slope: Floats, bend: Floats, rms: Floats) -> float:
    """Return the loss, and fill in its gradient, its Hessian and the two errors.

    `points` has one row per measurement: per-GPU batch, four terms of T_sync, the rest of T_sync, and the logarithms of
    T_grad and T_iter. `width` rounds the kinks off.
    """
    count, gamma = points.shape[0], at[_GAMMA]
    grad_square = step_square = 0.0
    grad_slope, step_slope, own = np.zeros_like(at), np.zeros_like(at), np.zeros_like(at)
    grad_bend, step_bend = np.zeros_like(bend), np.zeros_like(bend)
    for i in range(count):
        size = points[i, 0]
        grad = at[_ALPHA_C] + at[_BETA_C] * size
        sync = points[i, 5]
        for k in range(4):
            sync += at[_ALPHA_N + k] * points[i, 1 + k]
        log_grad, log_sync = log(grad), log(sync)
        apart = log_sync - log_grad
        lesser = exp(-gamma * abs(apart))
        log_step = max(log_grad, log_sync) + log(1.0 + lesser) / gamma
        share = 1.0 / (1.0 + lesser) if apart <= 0 else lesser / (1.0 + lesser)
        other = 1.0 - share if apart > 0 else lesser / (1.0 + lesser)
        both = share * other
        grad_miss, step_miss = log_grad - points[i, 6], log_step - points[i, 7]
        grad_square += grad_miss * grad_miss
        step_square += step_miss * step_miss
        # T_grad: the logarithm's first and second derivative along (1, size).
        first, second = 1.0 / grad, -1.0 / (grad * grad)
        weight = first * first + grad_miss * second
        grad_slope[_ALPHA_C] += grad_miss * first
        grad_slope[_BETA_C] += grad_miss * first * size
        grad_bend[_ALPHA_C, _ALPHA_C] += weight
        grad_bend[_BETA_C, _ALPHA_C] += weight * size
        grad_bend[_BETA_C, _BETA_C] += weight * size * size
        # T_iter: by the shares of both logarithms in it, and by gamma.
        by_grad, by_sync = share / grad, other / sync
        by_gamma = (share * log_grad + other * log_sync - log_step) / gamma
        own[_ALPHA_C], own[_BETA_C] = by_grad, by_grad * size
        for k in range(4):
            own[_ALPHA_N + k] = by_sync * points[i, 1 + k]
        own[_GAMMA] = by_gamma
        for j in range(7):
            step_slope[j] += step_miss * own[j]
            for k in range(j + 1):
                step_bend[j, k] += own[j] * own[k]
        of_grad = step_miss * (gamma * both - share) / (grad * grad)
        of_sync = step_miss * (gamma * both - other) / (sync * sync)
        of_both = -step_miss * gamma * both / (grad * sync)
        shift = -step_miss * both * apart
        step_bend[_ALPHA_C, _ALPHA_C] += of_grad
        step_bend[_BETA_C, _ALPHA_C] += of_grad * size
        step_bend[_BETA_C, _BETA_C] += of_grad * size * size
        step_bend[_GAMMA, _ALPHA_C] += shift / grad
        step_bend[_GAMMA, _BETA_C] += shift / grad * size
        for j in range(4):
            term = points[i, 1 + j]
            if term != 0.0:
                step_bend[_ALPHA_N + j, _ALPHA_C] += of_both * term
                step_bend[_ALPHA_N + j, _BETA_C] += of_both * term * size
                step_bend[_GAMMA, _ALPHA_N + j] -= shift / sync * term
                for k in range(j + 1):
                    step_bend[_ALPHA_N + j, _ALPHA_N + k] += of_sync * term * points[i, 1 + k]
        step_bend[_GAMMA, _GAMMA] += step_miss * (both * apart * apart - 2.0 * by_gamma) / gamma
    rms[0], rms[1] = math.sqrt(grad_square / count), math.sqrt(step_square / count)
    grad_rms = math.sqrt(grad_square / count + width * width)
    step_rms = math.sqrt(step_square / count + width * width)
    _fill(slope, bend, grad_slope, grad_bend, grad_rms, step_slope, step_bend, step_rms, count)
    return grad_rms + step_rms + _add_priors(at, slope, bend)


@leaf
def _fill(
    slope: Floats,
    bend: Floats,
    grad_slope: Floats,
    grad_bend: Floats,
    grad_rms: float,
    step_slope: Floats,
    step_bend: Floats,
    step_rms: float,
    count: int,
) -> None:
    """Fill in the gradient and Hessian of the sum of two root mean squares from the sums of each."""
    by_grad, by_step = _over(1.0, count * grad_rms), _over(1.0, count * step_rms)
    for j in range(7):
        slope[j] = grad_slope[j] * by_grad + step_slope[j] * by_step
        for k in range(j + 1):
            found = 0.0
            if by_grad > 0:
                found += (grad_bend[j, k] - grad_slope[j] * grad_slope[k] * by_grad / grad_rms) * by_grad
            if by_step > 0:
                found += (step_bend[j, k] - step_slope[j] * step_slope[k] * by_step / step_rms) * by_step
            bend[j, k] = found


@leaf
def _over(one: float, other: float) -> float:
    return one / other if other > 0 else 0.0


@leaf
def _add_priors(at: Floats, slope: Floats, bend: Floats) -> float:
    """Return the priors' part of the loss, and add their gradient and Hessian."""
    beyond_one = at[_GAMMA] - 1.0
    loss: float = _OVERLAP_PRIOR * beyond_one * beyond_one
    slope[_GAMMA] += 2 * _OVERLAP_PRIOR * beyond_one
    bend[_GAMMA, _GAMMA] += 2 * _OVERLAP_PRIOR
    for alpha in (_ALPHA_N, _ALPHA_R):
        ratio, per = at[alpha + 1] / at[alpha], 1.0 / at[alpha]
        loss += _SLOPE_PRIOR * ratio * ratio
        slope[alpha + 1] += 2 * _SLOPE_PRIOR * ratio * per
        slope[alpha] -= 2 * _SLOPE_PRIOR * ratio * ratio * per
        bend[alpha + 1, alpha + 1] += 2 * _SLOPE_PRIOR * per * per
        bend[alpha + 1, alpha] -= 4 * _SLOPE_PRIOR * ratio * per * per
        bend[alpha, alpha] += 6 * _SLOPE_PRIOR * ratio * ratio * per * per
    return loss


@leaf
def _solved(bend: Floats, damping: float, free: Floats, right: Floats, factor: Floats, step: Floats) -> bool:
    """Solve for the free part of a damped Newton step by Cholesky; False if the Hessian is not positive definite."""
    for j in range(7):
        if free[j] == 0.0:
            continue
        for k in range(j + 1):
            if free[k] == 0.0:
                continue
            left = bend[j, k]
            if j == k:
                left += damping * (abs(bend[j, j]) + 1e-12)
            for i in range(k):
                if free[i] != 0.0:
                    left -= factor[j, i] * factor[k, i]
            if j != k:
                factor[j, k] = left / factor[k, k]
            elif left <= 1e-12 * abs(bend[j, j]):
                return False
            else:
                factor[j, j] = math.sqrt(left)
    for j in range(7):
        if free[j] != 0.0:
            left = right[j]
            for i in range(j):
                if free[i] != 0.0:
                    left -= factor[j, i] * step[i]
            step[j] = left / factor[j, j]
    for j in range(6, -1, -1):
        if free[j] != 0.0:
            left = step[j]
            for i in range(j + 1, 7):
                if free[i] != 0.0:
                    left -= factor[i, j] * step[i]
            step[j] = left / factor[j, j]
    return True


@jit
def _find_step(
    at: Floats, lowest: Floats, highest: Floats, slope: Floats, bend: Floats, damping: float, step: Floats
) -> float:
    """Fill a damped Newton step within the bounds and return the predicted decrease of the loss; -1 for none."""
    free, right, factor = np.zeros_like(at), np.zeros_like(at), np.zeros_like(bend)
    for j in range(7):
        step[j] = 0.0
        outward = (at[j] <= lowest[j] and slope[j] >= 0) or (at[j] >= highest[j] and slope[j] <= 0)
        free[j] = 0.0 if outward else 1.0
    whole = False
    while not whole:
        for j in range(7):
            right[j] = -slope[j]
            for k in range(7):
                if free[k] == 0.0:
                    right[j] -= (bend[j, k] if j >= k else bend[k, j]) * step[k]
        if not _solved(bend, damping, free, right, factor, step):
            return -1.0
        whole = True
        for j in range(7):
            if free[j] != 0.0 and not lowest[j] <= at[j] + step[j] <= highest[j]:
                step[j] = (lowest[j] if at[j] + step[j] < lowest[j] else highest[j]) - at[j]
                free[j], whole = 0.0, False
    promise = 0.0
    for j in range(7):
        promise -= step[j] * (slope[j] + 0.5 * bend[j, j] * step[j])
        for k in range(j):
            promise -= step[j] * bend[j, k] * step[k]
    return promise


@jit
def minimise(at: Floats, lowest: Floats, highest: Floats, points: Floats) -> float:
    """Move a point within its bounds to a local minimum of the loss, and return the loss there."""
    slope, bend, rms, step, aim = np.zeros(7), np.zeros((7, 7)), np.zeros(2), np.zeros(7), np.zeros(7)
    new_slope, new_bend = np.zeros(7), np.zeros((7, 7))
    width = _WIDEST
    while True:
        loss = loss_at(at, points, width, slope, bend, rms)
        damping = 1e-3
        for _ in range(_MOST_STEPS):
            promise = _find_step(at, lowest, highest, slope, bend, damping, step)
            if promise >= 0 and promise <= _CONVERGED * loss:
                break
            if promise > 0:
                for j in range(7):
                    aim[j] = min(max(at[j] + step[j], lowest[j]), highest[j])
                found = loss_at(aim, points, width, new_slope, new_bend, rms)
                gained = (loss - found) / promise
                if gained > 1e-4:
                    at[:], slope[:], bend[:], loss = aim, new_slope, new_bend, found
                    if gained > 0.5:
                        damping = max(damping * 0.1, _LEAST_DAMPING)
                    elif gained < 0.1:
                        damping *= 2.0
                    continue
            damping *= 5.0
            if damping > _MOST_DAMPING:
                break
        loss = loss_at(at, points, 0.0, slope, bend, rms)
        if width <= _NARROWEST or width <= _NEGLIGIBLE * min(rms[0], rms[1]):
            return loss
        width *= _NARROWER


@jit
def loss_of(at: Floats, measured: Floats) -> float:
    """Return the loss at a point for measurements as `points_of` takes them."""
    return loss_at(at, points_of(measured), 0.0, np.zeros(7), np.zeros((7, 7)), np.zeros(2))
