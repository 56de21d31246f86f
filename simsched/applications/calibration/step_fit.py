"""Fits the step times of placements (`simsched.model.step_model.PlacementModel`) to measurements."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simsched.model.measured import MeasuredApplication
from simsched.model.step_model import PlacementClass, PlacementModel, Placements, StepModel

Floats = NDArray[np.float64]

_MOST_KNOTS = 11  # of computation over per-GPU batch sizes
_ONE_NODE_WEIGHT = 4.0  # few placements, but most jobs run on one of them
_CONSOLIDATED_WEIGHT = 3.0  # schedulers place jobs on few nodes, so errors there cost most
_UNUSABLE_WEIGHT = 0.3  # of total batches that no job may use; they only stabilise the curve
_COMPUTE_WEIGHT = 0.5  # computation alone counts only when gradients are accumulated
_OUTLIER = 0.1  # residuals beyond 10 % count less than their square
_SHRINK = 0.02  # pulls contention and exponents that the data do not determine towards 0
_EXPONENTS = 3  # of fill on two and on more nodes, and of the number of nodes


@dataclass(frozen=True)
class Measured:
    """All measured step times that jobs can have, as arrays of equal length.

    `consolidated` marks placements on as few nodes as their GPUs allow, `usable` total batches that jobs may use.
    """

    placements: Placements
    local_bsz: Floats
    step_s: Floats
    sync_s: Floats
    consolidated: NDArray[np.bool_]
    usable: NDArray[np.bool_]

    @classmethod
    def of(cls, application: MeasuredApplication) -> Measured:
        """Gather an application's measurements up to its largest per-GPU batch."""
        rows = [
            (len(shape), sum(shape), max(shape), size, step, sync)
            for shape, table in sorted(application.placements.items())
            for size, step, sync in zip(table.local_bsz, table.step_s, table.sync_s, strict=True)
        ]
        rows += [
            (row.nodes, row.gpus, -(-row.gpus // row.nodes), row.local_bsz, row.step_s, row.sync_s)
            for row in application.scalability
        ]
        kept = [row for row in rows if row[3] <= application.limits.max_local_bsz]
        nodes, gpus, fullest, size, step, sync = np.array(kept, dtype=np.float64).T
        per_node = max(max(shape) for shape in application.placements)
        placements = Placements(nodes, gpus, fullest)
        total = gpus * size
        usable = (total >= application.limits.init_batch_size) & (total <= application.limits.max_batch_size * 1.05)
        return cls(placements, size, step, sync, nodes == np.ceil(gpus / per_node), usable)


def step_errors(table: Measured, model: StepModel) -> tuple[Floats, Floats]:
    """Return the absolute relative errors of step and of computation, one for each measurement."""
    compute, step = model.times_s(table.placements, table.local_bsz)
    true_compute = table.step_s - table.sync_s
    return np.abs(step / table.step_s - 1), np.abs(compute / true_compute - 1)


def fit_placement_model(table: Measured) -> PlacementModel:
    """Fit by robust least squares of logarithms of step and computation time."""
    from scipy.optimize import least_squares  # slow to load

    space = _Space.of(table)
    weight = np.where(table.consolidated, _CONSOLIDATED_WEIGHT, 1.0)
    weight = np.where(table.placements.nodes == 1, _ONE_NODE_WEIGHT, weight)
    weight = weight * np.where(table.usable, 1.0, _UNUSABLE_WEIGHT)
    log_step, log_compute = np.log(table.step_s), np.log(table.step_s - table.sync_s)

    def residuals(at: Floats) -> Floats:
        compute, step = space.model(at).times_s(table.placements, table.local_bsz)
        parts = [
            (np.log(step) - log_step) * weight,
            (np.log(compute) - log_compute) * weight * _COMPUTE_WEIGHT,
            at[-space.loose :] * _SHRINK,
        ]
        return np.concatenate(parts)

    found = least_squares(
        residuals, space.start, bounds=space.bounds, loss="soft_l1", f_scale=_OUTLIER, ftol=1e-5, max_nfev=100
    )
    return space.model(np.asarray(found.x, dtype=np.float64))


@dataclass(frozen=True)
class _Space:
    """Positions of a placement model's parameters in a flat vector; times and overlaps are logarithms."""

    knots: tuple[int, ...]
    widths: tuple[int, int, int]  # sync values of the three classes
    start: Floats
    bounds: tuple[Floats, Floats]
    loose: int  # trailing parameters that are pulled towards 0
    second_s: float  # the unit of contention in seconds: the shortest computation measured

    @classmethod
    def of(cls, table: Measured) -> _Space:
        """Lay out the parameters that the measurements determine."""
        sizes = np.unique(table.local_bsz)
        chosen = np.unique(np.linspace(0, len(sizes) - 1, min(len(sizes), _MOST_KNOTS)).round().astype(int))
        alone = table.placements.gpus == 1
        order = np.argsort(table.local_bsz[alone])
        compute = (table.step_s - table.sync_s)[alone][order]
        grad = np.interp(sizes[chosen], table.local_bsz[alone][order], compute)
        most = int(table.placements.fullest.max())
        widths = max(most - 1, 1), most, most
        sync = np.full(sum(widths), np.log(np.median(table.sync_s) + 1e-3))
        overlaps = np.log(np.full(3, 1.5))
        loose = np.zeros(2 * sum(widths) + _EXPONENTS)
        start = np.concatenate([np.log(grad), sync, overlaps, loose])
        low, high = np.full(len(start), -np.inf), np.full(len(start), np.inf)
        low[len(grad) : len(grad) + len(sync)] = np.log(1e-6)
        low[len(grad) + len(sync) :][:3], high[len(grad) + len(sync) :][:3] = -1e-9, np.log(10.0)
        low[-len(loose) :], high[-len(loose) :] = -0.25, 1.0
        return cls(
            tuple(int(size) for size in sizes[chosen]), widths, start, (low, high), len(loose), float(grad.min())
        )

    def model(self, at: Floats) -> PlacementModel:
        """Read a placement model off a vector."""
        grad, rest = np.split(at, [len(self.knots)])
        parts = np.split(rest, np.cumsum([*self.widths, 3, *self.widths, *self.widths]))
        syncs, overlap, slower, seconds, exponents = parts[:3], parts[3], parts[4:7], parts[7:10], parts[10]
        fills = (0.0, float(exponents[0]), float(exponents[1]))
        growth = (0.0, 0.0, float(exponents[2]))
        one, two, more = (
            PlacementClass(
                tuple(np.exp(syncs[i]).tolist()),
                float(np.exp(overlap[i])),
                tuple(slower[i].tolist()),
                tuple((seconds[i] * self.second_s).tolist()),
                fills[i],
                growth[i],
            )
            for i in range(3)
        )
        return PlacementModel(self.knots, tuple(np.exp(grad).tolist()), one, two, more)
