"""The true time of a step on a placement: the physics behind fitted applications.

Two forms share one interface. `SevenParameters` is Pollux's own form. `PlacementModel` distinguishes more placements
than the scheduler's model does: the computation is piecewise linear in measured batch sizes, and synchronisation
depends on whether one, two or more nodes take part and on how many GPUs of the fullest node share its network link.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simsched.arithmetic import power
from simsched.model.batch import ScalingCurve, scaling_factor
from simsched.model.placement import Shape, Site
from simsched.model.throughput import TINY, ThroughputParams, overlap

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Placements:
    """Placements as arrays of one length: nodes, GPUs in all, GPUs on the fullest node.

    `crossed` counts levels above the nodes, and `sync_factor` is the factor on synchronisation across them, as in
    `simsched.model.placement.Site`.
    """

    nodes: Floats
    gpus: Floats
    fullest: Floats
    crossed: int = 0
    sync_factor: float = 1.0

    @classmethod
    def of(cls, *shapes: Shape) -> Placements:
        """Describe shapes."""
        return cls.counted([len(shape) for shape in shapes], [sum(shape) for shape in shapes], [*map(max, shapes)])

    @classmethod
    def at(cls, site: Site) -> Placements:
        """Describe the placement of a site."""
        return replace(cls.of(site.shape), crossed=site.levels_crossed, sync_factor=site.sync_factor)

    @classmethod
    def counted(cls, nodes: ArrayLike, gpus: ArrayLike, fullest: ArrayLike) -> Placements:
        """Describe placements by their counts."""
        counts = [np.asarray(count, dtype=np.float64) for count in (nodes, gpus, fullest)]
        return cls(counts[0], counts[1], counts[2])


class StepModel(Protocol):
    """Predicts the seconds to compute a micro-batch and those of a whole step without accumulation."""

    def times_s(self, placements: Placements, local_bsz: ArrayLike) -> tuple[Floats, Floats]:
        """Return (computation, step) for placements and per-GPU batch sizes, two arrays of their common shape."""


class SyncPair(NamedTuple):
    """Seconds to synchronise n GPUs: `alpha_s` + `beta_s` x (n - 2), as in equation 9 of Pollux."""

    alpha_s: float
    beta_s: float


def sync_by_level(sync_s: Floats, placements: Placements, pairs: Sequence[SyncPair]) -> Floats:
    """Return the seconds of synchronisation across levels above the nodes.

    The first of `pairs` is for jobs that cross only the lowest level, and so on; the last is for all that cross as many
    levels or more. Without pairs, `sync_s` is multiplied by the placement's factor. Pollux (OSDI'21, section 3.2) names
    a third pair of parameters for racks.
    """
    if not pairs[: placements.crossed]:
        return sync_s * placements.sync_factor
    pair = pairs[: placements.crossed][-1]
    return np.maximum(pair.alpha_s + pair.beta_s * np.maximum(placements.gpus - 2, 0.0), TINY)


@dataclass(frozen=True)
class SevenParameters:
    """The form that Pollux's agents fit: one class of synchronisation within a node, one across nodes.

    `across` are further classes, for the levels above the nodes (`sync_by_level`).
    """

    params: ThroughputParams
    across: tuple[SyncPair, ...] = ()

    def times_s(self, placements: Placements, local_bsz: ArrayLike) -> tuple[Floats, Floats]:
        """Return (computation, step), equations 8 to 10 of Pollux."""
        grad = self.params.grad_time_s(local_bsz)
        sync = self.params.sync_time_s(placements.nodes, placements.gpus)
        step = overlap(grad, sync_by_level(sync, placements, self.across), self.params.gamma)
        return np.broadcast_to(grad, step.shape), step


@dataclass(frozen=True)
class PlacementClass:
    """The parameters of placements on one, on two or on more nodes.

    `sync_s` are the seconds of synchronisation when the fullest node holds 1, 2, ... GPUs (on one node: 2, 3, ...).
    They are multiplied by (nodes / 3) ^ `nodes_exponent` beyond three nodes and by fill ^ `fill_exponent`, the fill
    being GPUs / (nodes x GPUs of the fullest node). The computation takes longer than on a single GPU by the fraction
    `contention` plus `contention_s` seconds (both for the same counts; () for none), because workers share processors
    and input pipelines. `overlap` is the exponent gamma.
    """

    sync_s: tuple[float, ...]
    overlap: float
    contention: tuple[float, ...] = ()
    contention_s: tuple[float, ...] = ()
    fill_exponent: float = 0.0
    nodes_exponent: float = 0.0


@dataclass(frozen=True)
class PlacementModel:
    """Step times by classes of placement.

    `grad_s` are the seconds to compute a micro-batch on one GPU at the per-GPU batch sizes `local_bsz` (ascending, at
    least two); linear between and beyond them. `scaling` corrects steps at the batches of tuned jobs, and `across`
    gives the synchronisation across levels above the nodes (`sync_by_level`).
    """

    local_bsz: tuple[int, ...]
    grad_s: tuple[float, ...]
    one_node: PlacementClass
    two_nodes: PlacementClass
    more_nodes: PlacementClass
    scaling: tuple[ScalingCurve, ...] = ()
    across: tuple[SyncPair, ...] = ()

    def times_s(self, placements: Placements, local_bsz: ArrayLike) -> tuple[Floats, Floats]:
        """Return (computation, step)."""
        nodes = placements.nodes
        grad = interpolate(np.asarray(local_bsz, dtype=np.float64), self.local_bsz, self.grad_s)
        parts = [self._of(kind, first, placements, grad) for kind, first in self._classes()]
        where = [nodes == 1, nodes == 2]
        compute, step = (np.select(where, [one, two], more) for one, two, more in zip(*parts, strict=True))
        if self.scaling:
            counts = (nodes, placements.gpus, placements.fullest)
            size, most = np.asarray(local_bsz, dtype=np.float64), self.local_bsz[-1]
            factor = scaling_factor(self.scaling, *counts, size, most)
            compute, step = compute * factor, step * factor
        return np.asarray(compute, dtype=np.float64), np.asarray(step, dtype=np.float64)

    def _classes(self) -> tuple[tuple[PlacementClass, int], ...]:
        return (self.one_node, 2), (self.two_nodes, 1), (self.more_nodes, 1)

    def _of(self, kind: PlacementClass, first: int, placements: Placements, grad: Floats) -> tuple[Floats, Floats]:
        """Treat all placements as one class, whose `sync_s` start at `first` GPUs on the fullest node."""
        counts = range(first, first + len(kind.sync_s))
        compute = grad
        together = placements.gpus > 1
        if kind.contention:
            compute = compute + grad * np.where(together, np.interp(placements.fullest, counts, kind.contention), 0.0)
        if kind.contention_s:
            compute = compute + np.where(together, np.interp(placements.fullest, counts, kind.contention_s), 0.0)
        compute = np.maximum(compute, TINY)
        sync = np.maximum(interpolate(placements.fullest, counts, kind.sync_s), TINY)
        sync = sync * power(placements.gpus / (placements.nodes * placements.fullest), kind.fill_exponent)
        sync = sync * power(np.maximum(placements.nodes / 3, 1.0), kind.nodes_exponent)
        sync = sync_by_level(np.where(placements.gpus > 1, sync, TINY), placements, self.across)
        return compute, overlap(compute, sync, kind.overlap)


def interpolate(at: Floats, knots: tuple[int, ...] | range, values: tuple[float, ...]) -> Floats:
    """Interpolate linearly between knots and extrapolate the outermost lines; a single value is constant."""
    if len(knots) == 1:
        return np.full_like(at, values[0])
    x, y = np.asarray(knots, dtype=np.float64), np.asarray(values, dtype=np.float64)
    piece = np.clip(np.searchsorted(x, at, side="left"), 1, len(x) - 1)
    slope = np.diff(y) / np.diff(x)
    return np.asarray(y[piece - 1] + slope[piece - 1] * (at - x[piece - 1]), dtype=np.float64)
