"""Fits the throughput model to what a job has measured of itself (Pollux, OSDI'21, section 4.1).

The loss is the root-mean-square error of logarithms of T_grad and of T_iter, plus two mild priors; L-BFGS-B minimises
it within bounds. What a job cannot know yet (it has never crossed nodes, say) is held at next to nothing, so that an
unexplored configuration looks better than it is and gets tried.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import astuple
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from simsched.jit import jit
from simsched.model.application import StepTime
from simsched.model.throughput import TINY, ThroughputParams

Floats = NDArray[np.float64]

#: A configuration on one GPU type: nodes, GPUs, per-GPU batch.
Configuration = tuple[int, int, int]

#: Step times on one GPU type by configuration, in the order in which they were first measured.
Profile = Mapping[Configuration, StepTime]

_START = (0.1, 0.01, 0.1, 0.01, 0.1, 0.01, 1.001)
_LOWEST = (TINY, TINY, TINY, TINY, TINY, TINY, 1.0)
_HIGHEST = (np.inf, np.inf, np.inf, np.inf, np.inf, np.inf, 10.0)
_ALPHA_C, _BETA_C, _ALPHA_N, _BETA_N, _ALPHA_R, _BETA_R, _GAMMA = range(7)
_OVERLAP_PRIOR = 1e-3  # weight of (gamma - 1)^2
_SLOPE_PRIOR = 1e-2  # weight of (beta / alpha)^2 of both kinds of synchronisation
_CROSSING_COST = 1.1  # crossing nodes is assumed to cost at least this multiple of staying within one


class Fit(NamedTuple):
    """Fitted parameters and the loss at them."""

    params: ThroughputParams
    loss: float


class Observations:
    """A profile as arrays, ready for the loss."""

    def __init__(self, profile: Profile) -> None:
        """Take every measurement of a profile; refuse an empty one with `ValueError`."""
        if not profile:
            message = "a throughput model cannot be fitted to no measurements"
            raise ValueError(message)
        keys = np.array(list(profile), dtype=np.float64)
        times = np.array(list(profile.values()), dtype=np.float64)
        self.local_bsz = keys[:, 2]
        self.gpus = keys[:, 1]
        self.across = keys[:, 0] > 1
        self.within = ~self.across & (self.gpus > 1)
        self.beyond_two = np.maximum(self.gpus - 2, TINY)
        self.alone_s = np.where(self.across | self.within, 0.0, TINY + TINY * TINY)
        self.compute_s = times[:, 0] - times[:, 1]
        self.log_compute = np.log(self.compute_s)
        self.log_step = np.log(times[:, 0])
        # T_sync is linear in its four parameters: alpha_n, beta_n, alpha_r, beta_r.
        kinds = [self.across, self.across * self.beyond_two, self.within, self.within * self.beyond_two]
        self.sync_terms = np.array(kinds, dtype=np.float64)


class Fits:
    """Remembers fits, so that jobs of one application that have measured the same are fitted once."""

    def __init__(self) -> None:
        """Start with none."""
        self._known: dict[tuple[object, ...], Fit] = {}

    def fit(self, profile: Profile, *, start: ThroughputParams | None = None) -> Fit:
        """Fit a profile, or recall what was fitted to an equal one (same measurements in the same order)."""
        key = (start, *profile.items())
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = fit(profile, start=start)
        return found


def fit(profile: Profile, *, start: ThroughputParams | None = None) -> Fit:
    """Fit the seven parameters to a profile.

    `start` replaces the published starting point (for models known from earlier runs). Raises `ValueError` where the
    profile is empty.
    """
    seen = Observations(profile)
    at = np.array(astuple(start) if start else _START, dtype=np.float64)
    lowest, highest = np.array(_LOWEST), np.array(_HIGHEST)
    for index, value in _held(seen).items():
        at[index] = lowest[index] = highest[index] = value
    bounds = list(zip(lowest, highest, strict=True))
    found = minimize(loss_and_slope, at, args=(seen,), jac=True, method="L-BFGS-B", bounds=bounds)
    best = np.array(found.x, dtype=np.float64)
    if not seen.across.any():
        best[_ALPHA_N] = max(best[_ALPHA_N], _CROSSING_COST * best[_ALPHA_R])
        best[_BETA_N] = max(best[_BETA_N], _CROSSING_COST * best[_BETA_R])
    return Fit(ThroughputParams(*best.tolist()), loss_and_slope(best, seen)[0])


def _held(seen: Observations) -> dict[int, float]:
    """Say which parameters the profile cannot tell, and what they are held at."""
    held: dict[int, float] = {}
    if np.all(seen.local_bsz == seen.local_bsz[0]):
        held[_ALPHA_C] = float(np.mean(seen.compute_s)) / 2
    if not seen.across.any():
        held |= {_ALPHA_N: TINY, _BETA_N: TINY}
    if not seen.within.any():
        held |= {_ALPHA_R: TINY, _BETA_R: TINY}
    if not (seen.gpus > 2).any():
        held |= {_BETA_N: TINY, _BETA_R: TINY}
    return held


def loss_and_slope(at: Floats, seen: Observations) -> tuple[float, Floats]:
    """Give the loss at a point (the seven parameters in their order) and its gradient, derived by hand."""
    slope = np.zeros(7)
    loss = _loss(at, seen.local_bsz, seen.sync_terms, seen.alone_s, seen.log_compute, seen.log_step, slope)
    return float(loss), slope


@jit
def _loss(
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
