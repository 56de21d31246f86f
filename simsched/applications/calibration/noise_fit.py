"""Fits the gradient noise scale over training (`simsched.model.fitted.NoiseCurve`) to measured efficiency."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simsched.applications.calibration.loss_fit import cheapest_bends
from simsched.model.fitted import NoiseCurve
from simsched.model.measured import MeasuredApplication

Floats = NDArray[np.float64]

_MOST_KNOTS = 12  # most knots of the curve
_GOOD_ENOUGH = 0.015  # root-mean-square error of efficiency at which no more knots are added
_ANCHORS = 3  # total batch sizes at which the curve is given
_SMOOTH = 0.003  # pulls neighbouring anchors together where efficiency does not determine them


@dataclass(frozen=True)
class _Data:
    """Measured efficiency at batch sizes (rows) and epochs (columns), except the initial size, where it is 1."""

    init_batch_size: int
    log_batch: Floats
    efficiency: Floats
    log_anchors: Floats

    @property
    def epochs(self) -> int:
        return int(self.efficiency.shape[1])


def fit_noise(application: MeasuredApplication) -> NoiseCurve:
    """Fit with the fewest knots that the accuracy of efficiency requires, placed where they help most."""
    data = _gather(application)
    knots = _bends(data)
    logs = _fit_at(data, knots)
    anchors = tuple(round(float(size)) for size in np.exp(data.log_anchors))
    return NoiseCurve(tuple(knots), anchors, tuple(tuple(row) for row in np.exp(logs).tolist()))


def _bends(data: _Data) -> list[int]:
    """Choose the epochs of the knots by a shortest path over linear pieces between any two epochs."""
    enough = _GOOD_ENOUGH**2 * data.efficiency.size
    return cheapest_bends(_piece_costs(data), _MOST_KNOTS, enough)


def _piece_costs(data: _Data) -> Floats:
    """Return the squared errors of efficiency over the epochs after i and up to j, for a straight piece from i to j."""
    direct = _direct_logs(data)
    costs = np.full((data.epochs, data.epochs), np.inf)
    for i in range(data.epochs - 1):
        for j in range(i + 1, data.epochs):
            part = (np.arange(i + 1, j + 1) - i)[:, None] / (j - i)
            logs = direct[i] + part * (direct[j] - direct[i])
            off = _efficiency_of(data, logs) - data.efficiency[:, i + 1 : j + 1]
            costs[i, j] = np.sum(off**2)
    return costs


def _direct_logs(data: _Data) -> Floats:
    """Return the logarithm of the noise that each efficiency implies, at the anchors; epochs x anchors."""
    batch = np.exp(data.log_batch)[:, None]
    lowest, highest = _bounds(data)
    lost = np.maximum(1 - data.efficiency, 1e-12)
    noise = np.maximum(data.efficiency * batch - data.init_batch_size, 1e-12) / lost
    logs = np.clip(np.log(noise), lowest, highest)
    return np.array([np.interp(data.log_anchors, data.log_batch, column) for column in logs.T])


def _gather(application: MeasuredApplication) -> _Data:
    init = application.limits.init_batch_size
    sizes = np.array(application.batch_sizes[1:], dtype=np.float64)
    curves = application.curves[1:]
    sqr = np.array([curve.grad_sqr for curve in curves])
    var = np.array([curve.grad_var for curve in curves])
    scale = (sizes / init)[:, None]
    # A negative estimate of the squared mean means that noise dominates the gradient: efficiency 1.
    efficiency = np.where(sqr > 0, (var + sqr) / (var / scale + sqr) / scale, 1.0)
    log_anchors = np.linspace(np.log(sizes[0]), np.log(sizes[-1]), min(_ANCHORS, len(sizes)))
    return _Data(init, np.log(sizes), efficiency, np.log(np.round(np.exp(log_anchors))))


def _efficiency(data: _Data, knots: list[int], logs: Floats) -> Floats:
    """Return the efficiency of noise whose logarithms at knots (rows) and anchors (columns) are `logs`."""
    epochs = np.arange(data.epochs)
    return _efficiency_of(data, np.array([np.interp(epochs, knots, column) for column in logs.T]).T)


def _efficiency_of(data: _Data, logs: Floats) -> Floats:
    """Return the efficiency, batch sizes x epochs, of noise given by logarithms, epochs x anchors."""
    anchors, at = data.log_anchors, data.log_batch
    if len(anchors) == 1:
        by_batch = np.repeat(logs, len(at), axis=1)
    else:
        right = np.clip(np.searchsorted(anchors, at, side="left"), 1, len(anchors) - 1)
        part = np.clip((at - anchors[right - 1]) / (anchors[right] - anchors[right - 1]), 0.0, 1.0)
        by_batch = logs[:, right - 1] * (1 - part) + logs[:, right] * part
    noise = np.exp(by_batch.T)
    return np.asarray((noise + data.init_batch_size) / (noise + np.exp(at)[:, None]), dtype=np.float64)


def _bounds(data: _Data) -> tuple[float, float]:
    """Clip the logarithm of the noise to the range where it matters."""
    return float(np.log(data.init_batch_size * 1e-3)), float(data.log_batch[-1] + np.log(1e3))


def _fit_at(data: _Data, knots: list[int]) -> Floats:
    """Fit the noise at given knots: efficiency by logarithm (so that time per epoch counts), smoothly over anchors."""
    from scipy.optimize import least_squares  # slow to load

    size = len(knots), len(data.log_anchors)
    target = np.log(data.efficiency)

    def residuals(at: Floats) -> Floats:
        logs = at.reshape(size)
        off = np.log(_efficiency(data, knots, logs)) - target
        return np.concatenate([off.ravel(), _SMOOTH * np.diff(logs, axis=1).ravel()])

    start = np.clip(_direct_logs(data)[knots].ravel(), _bounds(data)[0] + 1e-6, _bounds(data)[1] - 1e-6)
    found = least_squares(residuals, start, bounds=_bounds(data))
    return np.asarray(found.x, dtype=np.float64).reshape(size)
