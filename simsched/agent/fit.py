"""Fits the throughput model to a job's own measurements (Pollux, OSDI'21, section 4.1).

The loss is the root-mean-square error of logarithms of T_grad and of T_iter, plus two mild priors; a damped Newton
method minimises it within bounds. Parameters that a job cannot know yet (say, because it has never crossed nodes) are
held near 0, so that an unexplored configuration looks better than it is and gets tried.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import astuple
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from simsched.model.application import StepTime
from simsched.model.throughput import TINY, ThroughputParams

#: A configuration on one GPU type: nodes, GPUs, per-GPU batch.
Configuration = tuple[int, int, int]

#: Step times on one GPU type by configuration, in the order of first measurement.
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


class Fits:
    """Caches fits, so that jobs of one application with equal measurements are fitted once."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], Fit] = {}

    def fit(self, profile: Profile, *, start: ThroughputParams | None = None) -> Fit:
        """Fit a profile, or return the cached fit of an equal one (same measurements in the same order)."""
        key = (start, *profile.items())
        fitted = self._known.get(key)
        if fitted is None:
            fitted = self._known[key] = fit(profile, start=start)
        return fitted

    def fit_across(self, profile: Profile, within: ThroughputParams) -> ThroughputParams:
        """Fit only the synchronisation across nodes, to a profile across levels above the nodes.

        The other parameters are those of `within`. This is the third pair of parameters that Pollux (OSDI'21, section
        3.2) foresees.
        """
        key = (within, None, *profile.items())
        fitted = self._known.get(key)
        if fitted is None:
            known = {place: value for place, value in enumerate(astuple(within)) if place not in (_ALPHA_N, _BETA_N)}
            fitted = self._known[key] = fit(profile, start=within, held=known)
        return fitted.params


def fit(profile: Profile, *, start: ThroughputParams | None = None, held: Mapping[int, float] = _NONE_HELD) -> Fit:
    """Fit the seven parameters to a profile.

    `start` replaces the published starting point (for models known from earlier runs), and `held` gives the known
    parameters, by index. Raises `ValueError` if the profile is empty.
    """
    from simsched.agent.fit_loss import best_fit, loss_of  # loads numba, and few runs fit anything

    if not profile:
        raise ValueError("a throughput model cannot be fitted to no measurements")
    at = np.array(astuple(start) if start else _START, dtype=np.float64)
    lowest, highest = np.array(_LOWEST), np.array(_HIGHEST)
    for index, value in {**_held(profile), **held}.items():
        at[index] = lowest[index] = highest[index] = value
    measured = np.array([(*place, *times) for place, times in profile.items()], dtype=np.float64)
    best, loss = best_fit(at, lowest, highest, measured)
    if not any(nodes > 1 for nodes, _, _ in profile):
        best[_ALPHA_N] = max(best[_ALPHA_N], _CROSSING_COST * best[_ALPHA_R])
        best[_BETA_N] = max(best[_BETA_N], _CROSSING_COST * best[_BETA_R])
        loss = loss_of(best, measured)
    return Fit(ThroughputParams(*best.tolist()), float(loss))


def _held(profile: Profile) -> dict[int, float]:
    """Return the parameters that the profile cannot determine, with the values at which they are held."""
    held: dict[int, float] = {}
    if len({local_bsz for _, _, local_bsz in profile}) == 1:
        held[_ALPHA_C] = math.fsum(time.step_s - time.sync_s for time in profile.values()) / len(profile) / 2
    if not any(nodes > 1 for nodes, _, _ in profile):
        held |= {_ALPHA_N: TINY, _BETA_N: TINY}
    if not any(nodes == 1 and gpus > 1 for nodes, gpus, _ in profile):
        held |= {_ALPHA_R: TINY, _BETA_R: TINY}
    if not any(gpus > 2 for _, gpus, _ in profile):
        held |= {_BETA_N: TINY, _BETA_R: TINY}
    return held
