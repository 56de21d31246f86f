"""Predicting how the loss of a job falls: SLAQ's two families and Optimus' convergence model.

Sources: SLAQ (SoCC'17, section 4), Optimus (EuroSys'18, section 3.1). Losses are measured at iteration numbers that
rise; nothing here knows how long an iteration takes.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares, nnls

from simsched.errors import input_error

Numbers = npt.NDArray[np.float64]
#: A fitted curve: the loss expected at an iteration.
Curve = Callable[[float], float]

_DECAY = 0.9
_FEWEST = 4


@dataclass(frozen=True)
class Fit:
    """A curve of a `family`, and its weighted sum of squared residuals."""

    family: str
    parameters: tuple[float, ...]
    residual: float

    def loss(self, iteration: float) -> float:
        """Return the loss expected at an iteration."""
        return float(_FAMILIES[self.family](np.asarray([iteration]), *self.parameters)[0])


def fit_slaq(iterations: Sequence[float], losses: Sequence[float], decay: float = _DECAY) -> Fit:
    """Fit both of SLAQ's families and return the closer: 1/(a k^2 + b k + c) + d, or mu^(k - b) + c.

    The last point weighs 1 and every one before it `decay` times the next (the paper says exponential and no rate; 0.9
    is ours). Raises `InputError` with fewer than four points.
    """
    k, y = _points(iterations, losses)
    weights = decay ** np.arange(len(k) - 1, -1, -1.0)
    return min((_fit_sublinear(k, y, weights), _fit_geometric(k, y, weights)), key=lambda fit: fit.residual)


def _sublinear(k: Numbers, a: float, b: float, c: float, d: float) -> Numbers:
    return 1 / (a * k * k + b * k + c) + d


def _geometric(k: Numbers, rate: float, scale: float, c: float) -> Numbers:
    return scale * np.exp(-rate * k) + c


def _fit_sublinear(k: Numbers, y: Numbers, weights: Numbers) -> Fit:
    span = max(float(y[0] - y.min()), 1e-9)
    floor = float(y.min()) - 0.1 * span
    c, reach = 1 / (y[0] - floor), float(k[-1]) or 1.0
    slope = max(float(1 / (y[-1] - floor) - c), 1e-9) / reach
    start = [slope / reach, slope, float(c), floor]
    lower, upper = [0.0, 0.0, 1e-12, -np.inf], [np.inf] * 4
    return _fit("sublinear", k, y, weights, start, (lower, upper))


def _fit_geometric(k: Numbers, y: Numbers, weights: Numbers) -> Fit:
    span = max(float(y[0] - y.min()), 1e-9)
    floor = float(y.min()) - 0.1 * span
    reach = float(k[-1] - k[0]) or 1.0
    rate = max(math.log(float((y[0] - floor) / (y[-1] - floor))), 1e-3) / reach
    start = [rate, float(y[0] - floor) * math.exp(min(rate * float(k[0]), 50.0)), floor]
    return _fit("geometric", k, y, weights, start, ([1e-12, 0.0, -np.inf], [np.inf] * 3))


_FAMILIES: dict[str, Callable[..., Numbers]] = {"sublinear": _sublinear, "geometric": _geometric}


def _fit(
    family: str,
    k: Numbers,
    y: Numbers,
    weights: Numbers,
    start: list[float],
    bounds: tuple[list[float], list[float]],
) -> Fit:
    curve, root = _FAMILIES[family], np.sqrt(weights)

    def residuals(parameters: Numbers) -> Numbers:
        return np.asarray(root * (curve(k, *parameters) - y))

    found = least_squares(residuals, start, bounds=bounds, x_scale=np.maximum(np.abs(start), 1e-9), max_nfev=200)
    return Fit(family, tuple(float(value) for value in found.x), float(2 * found.cost))


def _points(iterations: Sequence[float], losses: Sequence[float]) -> tuple[Numbers, Numbers]:
    k, y = np.asarray(iterations, dtype=np.float64), np.asarray(losses, dtype=np.float64)
    if len(k) != len(y) or len(k) < _FEWEST:
        raise input_error(
            "loss curve", f"has {len(k)} iterations and {len(y)} losses", "a fit needs four of each or more"
        )
    if not np.isfinite(y).all() or (np.diff(k) <= 0).any():
        raise input_error(
            "loss curve", "has a loss that is not finite, or iterations that do not rise", "leave them out"
        )
    return k, y


def normalised_gain(fit: Fit, now: float, later: float, largest_drop: float) -> float:
    """Return the loss reduction expected between two iterations over the largest drop seen so far (SLAQ, section 3)."""
    drop = fit.loss(now) - fit.loss(later)
    return max(0.0, drop) / largest_drop if largest_drop > 0 else max(0.0, drop)


def allocate_by_gain(gains: Sequence[Callable[[int], float]], units: int) -> tuple[int, ...]:
    """Return the units of every job: one each, then each further one to the largest predicted increase.

    `gains[i](n)` is the gain of job i with n units in the next epoch, and gains(0) is 0. With fewer units than jobs the
    largest gains(1) come first. Optimal where gains are concave; O(units x log jobs).
    """
    counts = [0] * len(gains)
    first = sorted(range(len(gains)), key=lambda i: (-gains[i](1), i))[: max(units, 0)]
    for i in first:
        counts[i] = 1
    heap = [(-(gains[i](2) - gains[i](1)), i) for i in sorted(first)]
    heapq.heapify(heap)
    for _ in range(units - len(first)):
        if not heap or heap[0][0] >= 0:
            break
        _, i = heapq.heappop(heap)
        counts[i] += 1
        heapq.heappush(heap, (-(gains[i](counts[i] + 1) - gains[i](counts[i])), i))
    return tuple(counts)


@dataclass(frozen=True)
class Convergence:
    """Optimus' model of the normalised loss: 1/(slope k + offset) + floor, all parameters at least 0."""

    slope: float
    offset: float
    floor: float
    residual: float

    def loss(self, step: float) -> float:
        """Return the loss expected at a step, as a share of the first one."""
        denominator = self.slope * step + self.offset
        return self.floor + (1 / denominator if denominator > 0 else 0.0)

    def last_step(self, threshold: float, epoch_steps: float, epochs: int = 3, most_epochs: int = 100_000) -> int:
        """Return the step at the end of the first epoch after which `epochs` in a row lower the loss too little.

        Too little is a relative decrease under `threshold`; the estimate ends at `most_epochs`.
        """
        calm = 0
        before = self.loss(0)
        for epoch in range(1, most_epochs + 1):
            after = self.loss(epoch * epoch_steps)
            calm = calm + 1 if before - after < threshold * before else 0
            if calm == epochs:
                return round(epoch * epoch_steps)
            before = after
        return round(most_epochs * epoch_steps)


def without_outliers(losses: Sequence[float], window: int = 2) -> Numbers:
    """Return losses in which a point outside the range of its neighbours is replaced by their mean.

    `window` neighbours on either side count; the ends, which have one side only, stay (Optimus, section 3.1).
    """
    y = np.asarray(losses, dtype=np.float64)
    cleaned = y.copy()
    for i in range(1, len(y) - 1):
        near = np.concatenate([y[max(0, i - window) : i], y[i + 1 : i + 1 + window]])
        if not near.min() <= y[i] <= near.max():
            cleaned[i] = near.mean()
    return cleaned


def fit_convergence(steps: Sequence[float], losses: Sequence[float], floors: int = 40) -> Convergence:
    """Fit Optimus' convergence model to losses, by non-negative least squares over a grid of `floors`.

    Losses are divided by the first and freed of outliers. For a given floor the inverse of what is left is linear in
    the step, which `nnls` solves; the floor with the least squared error in the loss wins.
    """
    k, y = _points(steps, losses)
    if y[0] <= 0:
        raise input_error("loss curve", f"starts at {y[0]:g}", "Optimus' model needs positive losses")
    y = without_outliers((y / y[0]).tolist())
    fits = (_fit_floor(k, y, floor) for floor in np.linspace(0.0, float(y.min()), floors, endpoint=False))
    return min(fits, key=lambda fit: fit.residual)


def _fit_floor(k: Numbers, y: Numbers, floor: float) -> Convergence:
    above = y - floor
    # Dividing a row by 1/above^2 turns errors of the inverse into errors of the loss, to first order.
    design = np.column_stack([k, np.ones_like(k)]) * (above**2)[:, None]
    (slope, offset), _ = nnls(design, above)
    model = Convergence(float(slope), float(offset), float(floor), 0.0)
    error = float(sum((model.loss(step) - loss) ** 2 for step, loss in zip(k, y, strict=True)))
    return Convergence(model.slope, model.offset, model.floor, error)
