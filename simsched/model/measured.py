"""Applications whose physics is measured: interpolated tables of step times and of gradient statistics.

The rules of interpolation are those of the simulator published with Pollux (OSDI'21, artifact), so that its runs can be
replayed to the second. This includes its quirks: the triangulation over unscaled coordinates (which depends on the
order of its points) and gradient statistics used as they are, even where noise made them negative.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import fsum

import numpy as np
from numpy.typing import NDArray

from simsched.model.application import (
    Application,
    BatchChoice,
    BatchLimits,
    GradientStats,
    LossCurve,
    Running,
    StepTime,
)
from simsched.model.placement import Shape, Site, canonical_rotation

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MOST_NODES = 16  # cap on nodes for placements that were not measured


@dataclass(frozen=True)
class StepTable:
    """Step times measured on one placement: per-GPU batch sizes ascending, seconds of step and of synchronisation."""

    local_bsz: tuple[int, ...]
    step_s: tuple[float, ...]
    sync_s: tuple[float, ...]

    def at(self, local_bsz: int) -> StepTime:
        """Interpolate linearly between measured batch sizes; `ValueError` outside them."""
        sizes = self.local_bsz
        if not sizes[0] <= local_bsz <= sizes[-1]:
            raise ValueError(f"per-GPU batch {local_bsz} lies outside {sizes[0]} to {sizes[-1]}")
        high = max(bisect_left(sizes, local_bsz), 1)
        return StepTime(self._line(self.step_s, high, local_bsz), self._line(self.sync_s, high, local_bsz))

    def _line(self, values: tuple[float, ...], high: int, local_bsz: int) -> float:
        low = high - 1
        slope = (values[high] - values[low]) / (self.local_bsz[high] - self.local_bsz[low])
        return slope * (local_bsz - self.local_bsz[low]) + values[low]


@dataclass(frozen=True)
class ScalabilityRow:
    """A step time measured on a number of nodes and GPUs of any shape."""

    nodes: int
    gpus: int
    local_bsz: int
    step_s: float
    sync_s: float


@dataclass(frozen=True)
class TrainingCurve:
    """A whole training run at one total batch size, one value per epoch.

    `progress` (iterations at the initial batch size) and `iterations` are totals at the end of the epoch. `metric` is
    the evaluation at that time, () if unknown.
    """

    batch_size: int
    progress: tuple[float, ...]
    iterations: tuple[float, ...]
    grad_sqr: tuple[float, ...]
    grad_var: tuple[float, ...]
    metric: tuple[float, ...] = ()


@dataclass(frozen=True)
class Bounds:
    """Bounds on an application beyond the measurements; None if they give it or if there is no bound."""

    max_local_bsz: int | None = None
    fixed_batch_size: int | None = None
    max_gpus: int | None = None
    restart_delay_s: float | None = None


class MeasuredApplication(Application):
    """An application known by measurements on one GPU type.

    `placements` maps shapes (their smallest rotations) to step times; `scalability` holds further step times by numbers
    of nodes and GPUs; `curves` holds at least two training runs over the same number of epochs, by ascending batch
    size. Answers are cached.
    """

    def __init__(
        self,
        name: str,
        placements: Mapping[Shape, StepTable],
        scalability: Sequence[ScalabilityRow],
        curves: Sequence[TrainingCurve],
        *,
        bounds: Bounds = Bounds(),
        gpu_type: str = "t4",
        loss_curve: LossCurve | None = None,
    ) -> None:
        """Take the tables; they are not copied and must not change."""
        self.name = name
        self.placements = placements
        self.scalability = scalability
        self.curves = curves
        self.gpu_types: tuple[str, ...] = (gpu_type,)
        self.batch_sizes = tuple(curve.batch_size for curve in curves)
        self.limits: BatchLimits = _limits_of(placements, self.batch_sizes, bounds)
        self.fixed_batch_size = bounds.fixed_batch_size
        self.max_gpus = bounds.max_gpus
        self.restart_delay_s = bounds.restart_delay_s
        self.start_delay_s = bounds.restart_delay_s
        self.loss_curve = loss_curve
        self.reports_loss = loss_curve is not None
        self.epochs = len(curves[0].progress)
        self._ends = tuple(min(curve.progress[epoch] for curve in curves) for epoch in range(self.epochs))
        self._least: dict[tuple[int, tuple[int, ...], bytes], tuple[Floats, Floats]] = {}
        self._steps: dict[tuple[Shape, int], StepTime] = {}
        self._runs: dict[tuple[Site, BatchChoice, int], Running] = {}

    def epoch_end(self, epoch: int) -> float:
        """Return the least progress of any measured run at the end of a 0-based epoch."""
        return self._ends[epoch]

    def step_time(self, site: Site, local_bsz: int) -> StepTime:
        """Return the step time on a site, in seconds; `ValueError` outside the measurements."""
        self._check_type(site.gpu_type)
        shape = site.shape
        found = self._steps.get((shape, local_bsz))
        if found is None:
            found = self._steps[shape, local_bsz] = self._interpolate(shape, local_bsz)
        if site.sync_factor == 1:
            return found
        slower_s = found.sync_s * site.sync_factor
        return StepTime(found.step_s - found.sync_s + slower_s, slower_s)

    def times_s(self, gpus: int, nodes: Sequence[int], local_bsz: Ints) -> tuple[Floats, Floats]:
        """Return the least seconds of computation and of a whole step on `gpus` GPUs, by per-GPU batch.

        Takes the minimum over measured placements and others on these numbers of `nodes`; infinite if none is known.
        """
        key = gpus, tuple(sorted({min(one, _MOST_NODES) for one in nodes})), local_bsz.tobytes()
        if key not in self._least:
            self._least[key] = self._least_times_s(gpus, key[1], local_bsz)
        return self._least[key]

    def _least_times_s(self, gpus: int, nodes: Sequence[int], local_bsz: Ints) -> tuple[Floats, Floats]:
        step, compute = (np.full(len(local_bsz), np.inf) for _ in range(2))
        for shape, table in sorted(self.placements.items()):
            if sum(shape) == gpus:
                steps_s, syncs_s = (
                    np.interp(local_bsz, table.local_bsz, values, left=np.inf, right=np.inf)
                    for values in (table.step_s, np.subtract(table.step_s, table.sync_s))
                )
                step, compute = np.minimum(step, steps_s), np.minimum(compute, syncs_s)
        try:
            surface = self._surface
        except ValueError:  # nothing is known of other placements
            nodes = ()
        for many in nodes if len(local_bsz) else ():
            steps_s, syncs_s = surface([(many, gpus, int(size)) for size in local_bsz]).T
            step, compute = np.fmin(step, steps_s), np.fmin(compute, steps_s - syncs_s)
        return np.where(np.isfinite(step), compute, 0.0), step

    def gradient(self, batch_size: float, epoch: int) -> GradientStats:
        """Return the gradient statistics of an epoch, interpolated over total batch sizes."""
        low, high = self._bracket(batch_size)
        sqr = _between(batch_size, low, high, low.grad_sqr[epoch], high.grad_sqr[epoch])
        var = _between(batch_size, low, high, low.grad_var[epoch], high.grad_var[epoch])
        return GradientStats(sqr, var)

    def iterations(self, batch_size: float, epoch: int) -> float:
        """Return the iterations done by the end of an epoch, interpolated over total batch sizes."""
        low, high = self._bracket(batch_size)
        return _between(batch_size, low, high, low.iterations[epoch], high.iterations[epoch])

    def run(self, site: Site, batch: BatchChoice, epoch: int) -> Running:
        """Return the performance of the job; `ValueError` outside the measurements."""
        found = self._runs.get((site, batch, epoch))
        if found is None:
            found = self._runs[site, batch, epoch] = self._running(site, batch, epoch)
        return found

    def _running(self, site: Site, batch: BatchChoice, epoch: int) -> Running:
        step = self.step_time(site, batch.local_bsz)
        gradient = self.gradient(batch.total(site.gpus), epoch)
        return Running.training(step, gradient, batch, site.gpus, self.limits.init_batch_size)

    def _check_type(self, gpu_type: str) -> None:
        if gpu_type != self.gpu_types[0]:
            raise ValueError(f"{self.name} was measured on GPUs of type {self.gpu_types[0]}, not on {gpu_type}")

    def _bracket(self, batch_size: float) -> tuple[TrainingCurve, TrainingCurve]:
        """Find the curves of the largest measured batch not above and the smallest not below."""
        sizes = self.batch_sizes
        if not sizes[0] <= batch_size <= sizes[-1]:
            raise ValueError(f"{self.name}: total batch {batch_size:g} lies outside {sizes[0]} to {sizes[-1]}")
        high = bisect_left(sizes, batch_size)
        low = high if sizes[high] == batch_size else high - 1
        return self.curves[low], self.curves[high]

    def _interpolate(self, shape: Shape, local_bsz: int) -> StepTime:
        if not shape:
            raise ValueError(f"{self.name} cannot run on no GPU")
        table = self.placements.get(canonical_rotation(shape))
        if table is None:
            return self._by_counts(shape, local_bsz)
        try:
            return table.at(local_bsz)
        except ValueError as error:
            raise ValueError(f"{self.name} on {shape} GPUs: {error}") from None

    def _by_counts(self, shape: Shape, local_bsz: int) -> StepTime:
        """Interpolate over numbers of nodes, of GPUs and the batch, for shapes without measurements."""
        [(step, sync)] = self._surface([(min(len(shape), _MOST_NODES), sum(shape), local_bsz)])
        if np.isnan(step):
            message = (
                f"{self.name}: {sum(shape)} GPUs on {len(shape)} nodes at a per-GPU batch of {local_bsz} lie outside "
                "what was measured"
            )
            raise ValueError(message)
        return StepTime(float(step), float(sync))

    @cached_property
    def _surface(self) -> _Surface:
        return _Surface(self.name, self.placements, self.scalability)


class _Surface:
    """Step times over (nodes, GPUs, per-GPU batch), linear within the simplices of a Delaunay triangulation."""

    def __init__(self, name: str, placements: Mapping[Shape, StepTable], rows: Sequence[ScalabilityRow]) -> None:
        from scipy.spatial import Delaunay, QhullError  # large, and few runs need it

        # Qhull breaks ties by the order of the points: first the averaged, sorted placements, then the rows as given.
        averaged = _average(placements)
        points = [*averaged, *((row.nodes, row.gpus, row.local_bsz) for row in rows)]
        values = [*averaged.values(), *((row.step_s, row.sync_s) for row in rows)]
        try:
            self._triangulation = Delaunay(np.array(points, dtype=np.float64))
        except (QhullError, ValueError):
            raise ValueError(f"{name} was measured on too few placements to tell its speed on others") from None
        self._values = np.array(values)

    def __call__(self, places: Sequence[tuple[int, int, int]]) -> Floats:
        """Return step and synchronisation at places (nodes, GPUs, per-GPU batch), NaN for places outside.

        The weights of the corners follow from Cramer's rule, exact except for one division, as places are whole
        numbers; those of `scipy.interpolate` come out of LAPACK, whose last bits differ between processors.
        """
        at = np.array(places, dtype=np.float64)
        # One by one: if simplices touch, a search for many places starts elsewhere and may find another simplex.
        simplices = np.array([int(self._triangulation.find_simplex(place)) for place in at])
        corners = self._triangulation.simplices[simplices]
        points = self._triangulation.points[corners]
        last = points[:, 3]
        edges, away = points[:, :3] - last[:, None], at - last
        normals = np.cross(edges[:, [1, 2, 0]], edges[:, [2, 0, 1]])
        shares = (normals * away[:, None]).sum(axis=2) / (normals[:, 0] * edges[:, 0]).sum(axis=1)[:, None]
        weights = np.append(shares, 1.0 - shares.sum(axis=1)[:, None], axis=1)
        found = np.asarray((weights[:, :, None] * self._values[corners]).sum(axis=1), dtype=np.float64)
        found[simplices < 0] = np.nan
        return found


def _average(placements: Mapping[Shape, StepTable]) -> dict[tuple[int, int, int], tuple[float, float]]:
    """Average placements with the same numbers of nodes and GPUs, keyed and sorted by (nodes, GPUs, per-GPU batch)."""
    gathered: dict[tuple[int, int, int], list[tuple[float, float]]] = {}
    for shape, table in sorted(placements.items()):
        for size, step, sync in zip(table.local_bsz, table.step_s, table.sync_s, strict=True):
            gathered.setdefault((len(shape), sum(shape), size), []).append((step, sync))
    return {
        key: (fsum(step for step, _ in times) / len(times), fsum(sync for _, sync in times) / len(times))
        for key, times in sorted(gathered.items())
    }


def _between(batch: float, low: TrainingCurve, high: TrainingCurve, low_value: float, high_value: float) -> float:
    """Interpolate linearly between the values of two curves."""
    if low is high:
        return low_value
    weighted = (batch - low.batch_size) * high_value + (high.batch_size - batch) * low_value
    return weighted / (high.batch_size - low.batch_size)


def _limits_of(placements: Mapping[Shape, StepTable], batch_sizes: Sequence[int], bounds: Bounds) -> BatchLimits:
    sizes = [size for table in placements.values() for size in table.local_bsz]
    return BatchLimits(batch_sizes[0], batch_sizes[-1], min(sizes), bounds.max_local_bsz or max(sizes))
