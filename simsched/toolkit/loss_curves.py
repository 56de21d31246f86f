"""Predicting how the loss of a job falls: SLAQ's two families and Optimus' convergence model.

Sources: SLAQ (SoCC'17, section 4), Optimus (EuroSys'18, section 3.1). Losses are given at ascending iteration (or
epoch) numbers. Every family is linear in all parameters but one: a narrowing grid searches that one, and the others
follow by least squares. A fit takes about a millisecond and a fixed number of steps.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simsched.arithmetic import dot, exp, log, times
from simsched.errors import input_error
from simsched.jit import jit, leaf

Numbers = npt.NDArray[np.float64]

_DECAY = 0.9
#: Reports that a fit needs.
FEWEST = 4
#: Points of the grids on which the floor of the first family and the rate of the second are searched.
_GRID, _RATES = 9, 33
_NARROWINGS = 4
#: The number of floors with which Optimus' model is fitted.
_FLOORS = 40


@dataclass(frozen=True)
class Fit:
    """A curve of a `family`, and its weighted sum of squared residuals."""

    family: str
    parameters: tuple[float, ...]
    residual: float

    def loss(self, iteration: float) -> float:
        """Return the loss expected at an iteration."""
        if self.family == "sublinear":
            a, b, c, d = self.parameters
            return 1 / ((a * iteration + b) * iteration + c) + d
        rate, scale, c = self.parameters
        return scale * exp(-rate * iteration) + c


def fit_slaq(iterations: Sequence[float], losses: Sequence[float], decay: float = _DECAY) -> Fit:
    """Fit both of SLAQ's families and return the closer: 1/(a k^2 + b k + c) + d, or mu^(k - b) + c.

    The last point weighs 1 and each earlier point `decay` times the next (the paper says exponential, without a rate;
    0.9 is our choice). The floor d lies 1/1000 to 100 times the range of the losses below the least loss, on a
    logarithmic grid of nine points that narrows three times to the neighbours of its best; -log(mu) lies between 1/100
    and 50 over the range of the iterations, on a grid of 33. Raises `InputError` with fewer than four points.
    """
    k, y = _points(iterations, losses)
    weights = exp(log(decay) * np.arange(len(k) - 1, -1, -1.0))
    return min((_fit_sublinear(k, y, weights), _fit_geometric(k, y, weights)), key=lambda fit: fit.residual)


def _fit_sublinear(k: Numbers, y: Numbers, weights: Numbers) -> Fit:
    span = max(float(np.ptp(y)), 1e-9)
    powers = np.column_stack([k * k, k, np.ones_like(k)])

    def fit(log_depth: float) -> Fit:
        floor = float(y.min()) - span * exp(log_depth)
        coefficients, residual = _inverse(powers, y, weights, floor)
        return Fit("sublinear", (*coefficients, floor), residual)

    def residuals(log_depths: Numbers) -> list[float]:
        return [fit(log_depth).residual for log_depth in log_depths.tolist()]

    return fit(_narrowed(residuals, log(1e-3), log(1e2), _GRID))


def _inverse(powers: Numbers, y: Numbers, weights: Numbers, floor: float) -> tuple[tuple[float, ...], float]:
    """Fit 1/(y - floor) by non-negative multiples of `powers`; returns these and the squared residual of y."""
    above = y - floor
    # To first order, weights of above^2 turn errors of the inverse into errors of the loss.
    root = np.sqrt(weights) * above**2
    scale = powers.max(axis=0)
    coefficients = nonnegative(powers / scale * root[:, None], root / above) / scale
    inverse = times(powers, coefficients)
    if not (inverse > 0).all():
        return tuple(coefficients.tolist()), np.inf
    return tuple(coefficients.tolist()), dot(weights, (1 / inverse - above) ** 2)


def _fit_geometric(k: Numbers, y: Numbers, weights: Numbers) -> Fit:
    reach, share = float(k[-1] - k[0]), weights / weights.sum()
    level = dot(share, y)

    def fit(log_rates: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """Return the residual, the scale and the constant for each rate."""
        shapes = exp(-exp(log_rates)[:, None] * (k - k[0]) / reach)
        means = times(shapes, share)
        around = shapes - means[:, None]
        scales = np.maximum(times(around, share * (y - level)) / np.maximum(times(around**2, share), 1e-300), 0.0)
        constants = level - scales * means
        return times((scales[:, None] * shapes + constants[:, None] - y) ** 2, weights), scales, constants

    log_rate = _narrowed(lambda log_rates: fit(log_rates)[0], log(1e-2), log(50.0), _RATES)
    (residual,), (scale,), (constant,) = fit(np.array([log_rate]))
    rate = exp(log_rate) / reach
    return Fit("geometric", (rate, float(scale) * exp(float(rate * k[0])), float(constant)), float(residual))


def _narrowed(residuals: Callable[[Numbers], npt.ArrayLike], low: float, high: float, points: int) -> float:
    """Return the value of least residual on a grid of `points` that narrows to the neighbours of the best."""
    for _ in range(_NARROWINGS):
        grid, step = np.linspace(low, high, points, retstep=True)
        best = float(grid[np.argmin(residuals(grid))])
        low, high = best - float(step), best + float(step)
    return best


def _points(iterations: Sequence[float], losses: Sequence[float]) -> tuple[Numbers, Numbers]:
    k, y = np.asarray(iterations, dtype=np.float64), np.asarray(losses, dtype=np.float64)
    if len(k) != len(y) or len(k) < FEWEST:
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
    """Return the units of every job: one each, then each further unit where the predicted increase is largest.

    `gains[i](n)` is the gain of job i with n units in the next epoch; gains(0) is 0. For concave gains this is optimal
    among allocations that give every job a unit (SLAQ, SoCC'17, section 3.2). With fewer units than jobs, the jobs with
    the largest gains(1) get one each: optimal for that many jobs, though fewer jobs with more units may gain more.
    O(units x log jobs).
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
        """Return the step that ends the first `epochs` epochs in a row with a relative decrease below `threshold`.

        The search ends at `most_epochs`.
        """
        calm = 0
        before = self.loss(0)
        for epoch in range(1, most_epochs):
            after = self.loss(epoch * epoch_steps)
            calm = calm + 1 if before - after < threshold * before else 0
            if calm == epochs:
                return round(epoch * epoch_steps)
            before = after
        return round(most_epochs * epoch_steps)


def without_outliers(losses: Sequence[float]) -> Numbers:
    """Return losses with each point outside the range of its neighbours replaced by their mean.

    The range spans two neighbours on either side; the first and the last point stay (Optimus, section 3.1).
    """
    y = np.asarray(losses, dtype=np.float64)
    cleaned = y.copy()
    for i in range(1, len(y) - 1):
        near = np.concatenate([y[max(0, i - 2) : i], y[i + 1 : i + 3]])
        if not near.min() <= y[i] <= near.max():
            cleaned[i] = near.mean()
    return cleaned


def fit_convergence(steps: Sequence[float], losses: Sequence[float]) -> Convergence:
    """Fit Optimus' convergence model to losses, by non-negative least squares over a grid of `_FLOORS` floors.

    Losses are divided by the first and outliers are removed. For a given floor the inverse of the rest is linear in the
    step, which makes the fit linear; the floor with the least squared error in the loss wins.
    Raises `InputError` if the first loss is not positive.
    """
    k, y = _points(steps, losses)
    if y[0] <= 0:
        raise input_error("loss curve", f"starts at {y[0]:g}", "Optimus' model needs positive losses")
    y = without_outliers((y / y[0]).tolist())
    powers, weights = np.column_stack([k, np.ones_like(k)]), np.ones_like(k)
    grid = np.linspace(0.0, float(y.min()), _FLOORS, endpoint=False)
    fits = [(*_inverse(powers, y, weights, float(floor)), float(floor)) for floor in grid]
    (slope, offset), residual, floor = min(fits, key=lambda fit: fit[1])
    return Convergence(slope, offset, floor, residual)


_DEPENDENT = 1e-12  # of a column's length; a smaller residual against earlier columns is rounding


@jit
def nonnegative(columns: Numbers, target: Numbers) -> Numbers:
    """Return the multiples of about ten columns at most, shape (n, k), that come closest to a target, shape (n,).

    Every subset of columns is solved by orthogonal projection (modified Gram-Schmidt); the best without a negative
    multiple is the optimum.
    """
    count, most = columns.shape
    best, least = np.zeros(most), _product(target, target)
    across, along = np.empty((most, count)), np.zeros((most, most))
    share, found, which = np.empty(most), np.empty(most), np.empty(most, np.int64)
    for chosen in range(1, 2**most):
        size, left = 0, target.copy()
        for j in range(most):
            if (chosen >> j) % 2 == 0:
                continue
            rest = columns[:, j].copy()
            whole = _product(rest, rest)
            for i in range(size):
                along[i, size] = _product(across[i], rest)
                rest -= along[i, size] * across[i]
            length = np.sqrt(_product(rest, rest))
            if length <= _DEPENDENT * np.sqrt(whole):
                continue
            along[size, size], which[size] = length, j
            for n in range(count):  # numba takes three seconds to compile an assignment of slices
                across[size, n] = rest[n] / length
            share[size] = _product(across[size], left)
            left -= share[size] * across[size]
            size += 1
        usable = size > 0
        for i in range(size - 1, -1, -1):
            found[i] = share[i]
            for j in range(i + 1, size):
                found[i] -= along[i, j] * found[j]
            found[i] /= along[i, i]
            usable = usable and found[i] >= 0
        error = _product(left, left)
        if usable and error < least:
            least = error
            best[:] = 0.0
            for i in range(size):
                best[which[i]] = found[i]
    return best


@leaf
def _product(one: Numbers, other: Numbers) -> float:
    total = 0.0
    for i in range(one.shape[0]):
        total += one[i] * other[i]
    return total
