"""Fits the throughput model to what a job has measured of itself (Pollux, OSDI'21, section 4.1).

The loss is the root-mean-square error of logarithms of T_grad and of T_iter, plus two mild priors; L-BFGS-B minimises
it within bounds. What a job cannot know yet (it has never crossed nodes, say) is held at next to nothing, so that an
unexplored configuration looks better than it is and gets tried.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simsched.model import TINY, StepTime, ThroughputParams

Floats = NDArray[np.float64]

#: A configuration on one GPU type: nodes, GPUs, per-GPU batch.
Configuration = tuple[int, int, int]

#: Step times on one GPU type by configuration, in the order in which they were first measured.
Profile = Mapping[Configuration, StepTime]

_START = (0.1, 0.01, 0.1, 0.01, 0.1, 0.01, 1.001)
_LOWEST = (TINY, TINY, TINY, TINY, TINY, TINY, 1.0)
_HIGHEST = (np.inf, np.inf, np.inf, np.inf, np.inf, np.inf, 10.0)
_ALPHA_C, _, _ALPHA_N, _BETA_N, _ALPHA_R, _BETA_R, _ = range(7)
_NONE_HELD: Mapping[int, float] = MappingProxyType({})
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

    def fit_across(self, profile: Profile, within: ThroughputParams) -> ThroughputParams:
        """Fit only the synchronisation across nodes, to a profile across levels above the nodes.

        What is left is that of `within`: the third pair of parameters that Pollux (OSDI'21, section 3.2) foresees.
        """
        key = (within, None, *profile.items())
        found = self._known.get(key)
        if found is None:
            known = {place: value for place, value in enumerate(astuple(within)) if place not in (_ALPHA_N, _BETA_N)}
            found = self._known[key] = fit(profile, start=within, held=known)
        return found.params


def fit(profile: Profile, *, start: ThroughputParams | None = None, held: Mapping[int, float] = _NONE_HELD) -> Fit:
    """Fit the seven parameters to a profile.

    `start` replaces the published starting point (for models known from earlier runs), and `held` has the parameters
    that are known, by their place. Raises `ValueError` where the profile is empty.
    """
    from scipy.optimize import minimize  # large, and few runs fit anything

    seen = Observations(profile)
    at = np.array(astuple(start) if start else _START, dtype=np.float64)
    lowest, highest = np.array(_LOWEST), np.array(_HIGHEST)
    for index, value in {**_held(seen), **held}.items():
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
    """Return the loss at a point (the seven parameters in their order) and its gradient, derived by hand."""
    from simsched.agent.fit_loss import add_slope  # brings numba

    slope = np.zeros(7)
    loss = add_slope(at, seen.local_bsz, seen.sync_terms, seen.alone_s, seen.log_compute, seen.log_step, slope)
    return float(loss), slope
