"""Fits the loss curve (`simsched.model.LossCurve`) to a training run's evaluations after every epoch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simsched.applications.published import LossMetric
from simsched.model.application import LossCurve
from simsched.model.measured import MeasuredApplication

Floats = NDArray[np.float64]


def cheapest_bends(pieces: Floats, most: int, enough: float) -> list[int]:
    """Return the knots, including the first and the last point, of the piecewise linear curve of least cost.

    `pieces[i, j]` is the cost of one piece from point i to point j, infinite unless i < j. Adds pieces until the cost
    is at most `enough` or `most` points are used.
    """
    count = len(pieces)
    reach = np.full(count, np.inf)
    reach[0] = 0.0
    came_from: list[NDArray[np.int64]] = []
    while len(came_from) < min(most, count) - 1:
        through = reach[:, None] + pieces
        came_from.append(np.argmin(through, axis=0))
        reach = np.min(through, axis=0)
        if reach[-1] <= enough:
            break
    path = [count - 1]
    for step in reversed(came_from):
        path.append(int(step[path[-1]]))
    return sorted({0, *path})


_MOST_KNOTS = 9
_GOOD_ENOUGH = 0.025  # relative root-mean-square error at which no more knots are added
_FLAT = 1e-4  # the least relative decrease over a piece, so that the curve always decreases


def fit_loss(measured: MeasuredApplication, metric: LossMetric) -> LossCurve | None:
    """Fit the run at the initial batch size with as few knots as the accuracy requires.

    Evaluations fluctuate, but the curve never rises; the residuals give its noise. Returns None if the run has no
    evaluations.
    """
    from scipy.optimize import isotonic_regression  # slow to load

    values = np.asarray(measured.curves[0].metric, dtype=np.float64)
    if len(values) < 2:
        return None
    evaluated = metric.scale * values + metric.offset
    start = evaluated[0] ** 2 / evaluated[1] if metric.start is None else metric.start
    logs = np.log(np.concatenate([[start], evaluated]))
    falling = np.asarray(isotonic_regression(logs, increasing=False).x, dtype=np.float64)
    places = np.log1p(np.arange(len(logs), dtype=np.float64))
    enough = _GOOD_ENOUGH**2 * len(logs)
    knots = cheapest_bends(_piece_costs(places, falling), _MOST_KNOTS, enough)
    at_knots = _fit_at(places, falling, knots)
    noise = (
        float(np.std(logs[1:] - np.interp(places, places[knots], at_knots)[1:])) if len(values) > 2 * _MOST_KNOTS else 0
    )
    return LossCurve(tuple(float(knot) for knot in knots), tuple(np.exp(at_knots).tolist()), noise)


def _piece_costs(places: Floats, logs: Floats) -> Floats:
    """Return the squared errors over the points after i and up to j, for a straight piece from i to j."""
    count = len(places)
    costs = np.full((count, count), np.inf)
    for i in range(count - 1):
        for j in range(i + 1, count):
            line = np.interp(places[i + 1 : j + 1], places[[i, j]], logs[[i, j]])
            costs[i, j] = np.sum((line - logs[i + 1 : j + 1]) ** 2)
    return costs


def _fit_at(places: Floats, logs: Floats, knots: list[int]) -> Floats:
    """Fit the logarithms at the knots by least squares, non-increasing and with the first fixed."""
    hats = np.array([np.interp(places, places[knots], row) for row in np.eye(len(knots))]).T
    free = np.linalg.lstsq(hats[:, 1:], logs - hats[:, 0] * logs[0], rcond=None)[0]
    fitted = np.minimum.accumulate(np.concatenate([[logs[0]], free]))
    return np.asarray(fitted - _FLAT * np.arange(len(fitted)), dtype=np.float64)
