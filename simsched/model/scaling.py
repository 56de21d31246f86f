"""How the batches that tuned jobs run with scale over GPUs, beyond what classes of placement say.

Measured step times are not smooth in the number of GPUs: gains stall where one GPU more opens a node, and end where
synchronisation outgrows what is left to compute. Policies that follow marginal gains act on that, so a fitted
application may carry a curve of factors for each total batch that its tuned jobs run with.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simsched.arithmetic import log
from simsched.model.batch import micro_batches

Floats = NDArray[np.float64]

_LN2 = math.log(2)


@dataclass(frozen=True)
class ScalingCurve:
    """The factor by which steps take longer (computation and synchronisation alike) at one total batch.

    `factor[i]` holds on `gpus[i]` GPUs (ascending) that fill nodes of `gpus_per_node` one after the other; between them
    it follows straight lines, beyond them it stays. It fades out, linearly in the logarithm, until the per-GPU batch is
    twice or half the one that `batch` has on as many GPUs.
    """

    batch: int
    gpus_per_node: int
    gpus: tuple[int, ...]
    factor: tuple[float, ...]

    def at(self, gpus: ArrayLike) -> Floats:
        """Return the factor at the curve's own batch."""
        return np.asarray(np.interp(np.asarray(gpus, dtype=np.float64), self.gpus, self.factor), dtype=np.float64)

    def octaves(self, nodes: Floats, gpus: Floats, fullest: Floats, local_bsz: Floats, most: int) -> Floats:
        """Return how far per-GPU batches are from the curve's own, infinite on placements that do not fill nodes."""
        filled = (nodes == np.ceil(gpus / self.gpus_per_node)) & (fullest == np.minimum(gpus, self.gpus_per_node))
        own, _ = micro_batches(self.batch, gpus, most)
        return np.where(filled, np.abs(log(local_bsz / own)) / _LN2, np.inf)


def scaling_factor(
    curves: Sequence[ScalingCurve], nodes: Floats, gpus: Floats, fullest: Floats, local_bsz: Floats, most: int
) -> Floats:
    """Return the factor of the curve whose per-GPU batch is nearest, of the first where several are.

    All arrays broadcast; `most` is the largest per-GPU batch.
    """
    away = np.array([curve.octaves(nodes, gpus, fullest, local_bsz, most) for curve in curves])
    excess = np.array([np.broadcast_to(curve.at(gpus) - 1, away.shape[1:]) for curve in curves])
    nearest = np.argmin(away, axis=0)[None]
    holds = np.maximum(1 - np.take_along_axis(away, nearest, axis=0), 0.0)
    return np.asarray((1 + holds * np.take_along_axis(excess, nearest, axis=0))[0], dtype=np.float64)
