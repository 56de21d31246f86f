"""The time of a training iteration, by the seven-parameter model of Pollux (OSDI'21, section 3.2).

All functions take numbers or arrays that broadcast against each other, and return arrays of the common shape.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simsched.arithmetic import exp, log

Floats = NDArray[np.float64]

#: Replaces zero in logarithms and quotients (seconds, GPUs).
TINY = 1e-8


@dataclass(frozen=True, slots=True)
class ThroughputParams:
    """The seven parameters of the model: times in seconds, slopes in seconds per example or per GPU beyond the second.

    `_c` is the computation of the gradient, `_n` its synchronisation across nodes, `_r` within one node, and `gamma` in
    [1, 10] says how far computation and synchronisation overlap (1: not at all). Equation 12 of Pollux.
    """

    alpha_c: float
    beta_c: float
    alpha_n: float
    beta_n: float
    alpha_r: float
    beta_r: float
    gamma: float

    def scaled(self, factor: float) -> ThroughputParams:
        """Return the model for steps that take `factor` times as long."""
        scaled = [factor * time for time in astuple(self)]
        return replace(ThroughputParams(*scaled), gamma=self.gamma)

    def grad_time_s(self, local_bsz: ArrayLike) -> Floats:
        """Return the seconds in which one GPU computes a micro-batch (T_grad, equation 8)."""
        return self.alpha_c + self.beta_c * np.asarray(local_bsz, dtype=np.float64)

    def sync_time_s(self, nodes: ArrayLike, gpus: ArrayLike) -> Floats:
        """Return the seconds to synchronise gradients, within one node or across nodes (T_sync, equation 9)."""
        count = np.asarray(gpus, dtype=np.float64)
        crosses = np.asarray(nodes) > 1
        alpha = np.where(crosses, self.alpha_n, np.where(count > 1, self.alpha_r, TINY))
        beta = np.where(crosses, self.beta_n, np.where(count > 1, self.beta_r, TINY))
        return np.asarray(alpha + beta * np.maximum(count - 2, TINY), dtype=np.float64)

    def step_time_s(self, nodes: ArrayLike, gpus: ArrayLike, local_bsz: ArrayLike) -> Floats:
        """Return the seconds of an iteration without accumulation (equation 10)."""
        return overlap(self.grad_time_s(local_bsz), self.sync_time_s(nodes, gpus), self.gamma)

    def iteration_time_s(
        self, nodes: ArrayLike, gpus: ArrayLike, local_bsz: ArrayLike, accum_steps: ArrayLike
    ) -> Floats:
        """Return the seconds of an iteration with `accum_steps` extra micro-batches (equation 11)."""
        grad = self.grad_time_s(local_bsz)
        step = overlap(grad, self.sync_time_s(nodes, gpus), self.gamma)
        return np.asarray(np.asarray(accum_steps) * grad + step, dtype=np.float64)

    def throughput(self, nodes: ArrayLike, gpus: ArrayLike, local_bsz: ArrayLike, accum_steps: ArrayLike) -> Floats:
        """Return the examples per second."""
        batch = np.asarray(gpus) * np.asarray(local_bsz) * (np.asarray(accum_steps) + 1)
        return np.asarray(batch / self.iteration_time_s(nodes, gpus, local_bsz, accum_steps), dtype=np.float64)


def overlap(grad_s: Floats, sync_s: Floats, gamma: float) -> Floats:
    """Combine computation and synchronisation that overlap in part (equation 10): their gamma-norm."""
    more = np.maximum(grad_s, sync_s)
    relative = exp(gamma * log(np.minimum(grad_s, sync_s) / more))
    return np.asarray(more * exp(log(1.0 + relative) / gamma), dtype=np.float64)
