"""Fits how tuned batches scale over GPUs (`simsched.model.batch.ScalingCurve`) to measurements."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from simsched.applications.calibration.loss_fit import cheapest_bends
from simsched.model import Site
from simsched.model.batch import ScalingCurve, micro_batches
from simsched.model.measured import MeasuredApplication
from simsched.model.placement import consolidated_shape
from simsched.model.step_model import PlacementModel, Placements

Floats = NDArray[np.float64]

_MOST_KNOTS = 16  # most knots of a curve, in numbers of GPUs
_GOOD_ENOUGH = 0.01  # root-mean-square error at which no more knots are added
_GAIN_WEIGHT = 3e-3  # weight of the squared relative error of a marginal gain relative to that of the level
_WRONG_SIGN = 1.0  # the cost of a spurious or a missed gain
_SMALLEST_GAIN = 0.03  # least marginal gain that is distinguished; errors count relative to at least this


@dataclass(frozen=True)
class Scaling:
    """A total batch on ascending numbers of GPUs that fill node after node: measured and modelled seconds per step."""

    gpus: NDArray[np.int64]
    measured_s: Floats
    modelled_s: Floats


def fit_scaling(application: MeasuredApplication, model: PlacementModel, batches: set[int]) -> PlacementModel:
    """Return the model with its scaling curves replaced by one for each of the total batches.

    Micro-batches that two total batches share belong to the curve of the smaller one.
    """
    plain, per_node = replace(model, scaling=()), _gpus_per_node(application)
    curves: list[ScalingCurve] = []
    for batch in sorted(batches):
        found = scaling_of(application, plain, batch, smaller=[size for size in batches if size < batch])
        if len(found.gpus):
            curves.append(_curve(batch, per_node, found))
    return replace(plain, scaling=tuple(curves))


def scaling_of(
    application: MeasuredApplication, model: PlacementModel, batch: int, smaller: Collection[int] = ()
) -> Scaling:
    """Return the times of steps with accumulation where they were measured and do not belong to a `smaller` batch."""
    limits, per_node = application.limits, _gpus_per_node(application)
    most = max([max(map(sum, application.placements)), *(row.gpus for row in application.scalability)])
    most = min(most, batch // limits.min_local_bsz, application.max_gpus or most)
    rows = []
    for gpus in range(1, most + 1):
        local_bsz, parts = (int(value) for value in micro_batches(batch, gpus, limits.max_local_bsz))
        shared = any(micro_batches(size, gpus, limits.max_local_bsz)[0] == local_bsz for size in smaller)
        shape = consolidated_shape(gpus, per_node)
        true = None if shared else _true_time(application, shape, local_bsz, parts - 1)
        if true is not None:
            compute, step = model.times_s(Placements.of(shape), [local_bsz])
            rows.append((gpus, true, float(step[0] + (parts - 1) * compute[0])))
    gpus_s, measured, modelled = zip(*rows, strict=True) if rows else ((), (), ())
    return Scaling(np.array(gpus_s, dtype=np.int64), np.array(measured), np.array(modelled))


def _true_time(application: MeasuredApplication, shape: tuple[int, ...], local_bsz: int, accum: int) -> float | None:
    """Return the measured seconds of a step, None outside the measured range."""
    try:
        step = application.step_time(Site(shape, application.gpu_types[0]), local_bsz)
    except ValueError:
        return None
    return step.step_s + accum * (step.step_s - step.sync_s)


def _curve(batch: int, per_node: int, scaling: Scaling) -> ScalingCurve:
    """Fit a piecewise linear curve to the ratios of measured and modelled times, with knots where they help most."""
    ratio = scaling.measured_s / scaling.modelled_s
    enough = _GOOD_ENOUGH**2 * float(np.sum(1 / scaling.gpus))
    at = cheapest_bends(_piece_costs(scaling, ratio), _MOST_KNOTS, enough)
    return ScalingCurve(batch, per_node, tuple(scaling.gpus[at].tolist()), tuple(ratio[at].tolist()))


def _piece_costs(scaling: Scaling, ratio: Floats) -> Floats:
    """Return the cost of a linear piece between any two points.

    Squared errors of the level, and up to the first stall of the marginal gain, weighted by 1 / GPUs: every doubling of
    the GPUs counts equally. Errors of a gain count relative to it; a spurious or a missed gain costs most, because that
    is where policies stop.
    """
    gpus, level = scaling.gpus.astype(np.float64), np.log(scaling.modelled_s)
    true = -np.diff(np.log(scaling.measured_s))
    stalls = np.flatnonzero(true <= 0)
    sought = np.arange(len(true)) <= (stalls[0] if len(stalls) else len(true))
    costs = np.full((len(gpus), len(gpus)), np.inf)
    for i in range(len(gpus) - 1):
        for j in range(i + 1, len(gpus)):
            line = np.interp(gpus[i : j + 1], gpus[[i, j]], ratio[[i, j]])
            gains = -np.diff(level[i : j + 1] + np.log(line))
            off = (gains - true[i:j]) / np.maximum(np.abs(true[i:j]), _SMALLEST_GAIN)
            wrong = _WRONG_SIGN * ((gains > 0) != (true[i:j] > 0))
            squares = (line / ratio[i : j + 1] - 1)[1:] ** 2 + sought[i:j] * (_GAIN_WEIGHT * off**2 + wrong)
            costs[i, j] = np.sum(squares / gpus[i + 1 : j + 1])
    return costs


def _gpus_per_node(application: MeasuredApplication) -> int:
    return max(map(max, application.placements))
