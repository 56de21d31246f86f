"""What a batch rule reads and returns, and the rules of AdaBatch, CABS and the gradient noise scale."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class BatchState(NamedTuple):
    """The state of a training: its batches are totals in examples, `epoch` counts from 0."""

    initial: int
    batch: int
    epoch: int
    gpus: int
    smallest: int
    largest: int

    def clip(self, batch: float) -> int:
        """Round a batch, half to even, into the bounds of this training."""
        return round(min(max(batch, self.smallest), self.largest))


class BatchMetrics(NamedTuple):
    """The measurements of a training; a figure that it does not measure is None.

    `noise_scale` is the gradient noise scale in examples, `gradient_variance` the trace of the covariance of one
    example's gradient, `loss` the training loss, `learning_rate` the optimizer's step, `gradient_sqr` the squared norm
    of the mean gradient.
    """

    noise_scale: float | None = None
    gradient_variance: float | None = None
    loss: float | None = None
    learning_rate: float | None = None
    gradient_sqr: float | None = None


NOTHING_MEASURED = BatchMetrics()


class BatchRule(Protocol):
    """Returns the total batch, in examples, with which a training should continue."""

    def __call__(self, state: BatchState, metrics: BatchMetrics) -> int:
        """Return the batch; the current one if nothing should change or a metric is missing."""


@dataclass(frozen=True)
class AdaBatch:
    """Multiply the batch by `factor` every `epochs` epochs.

    Source: Devarakonda et al., 2017, arXiv 1712.02029, where the learning rate decays by 0.75 at each doubling.
    """

    epochs: int = 20
    factor: int = 2

    def __call__(self, state: BatchState, metrics: BatchMetrics) -> int:
        """Return the batch of the state's epoch, within its bounds."""
        return state.clip(state.initial * self.factor ** (state.epoch // self.epochs))


def cabs(state: BatchState, metrics: BatchMetrics) -> int:
    """Return learning rate x gradient variance / loss, rounded into the bounds.

    The batch stays if a figure is not measured or the loss is not positive. Source: Balles et al., UAI'17.
    """
    rate, variance, loss = metrics.learning_rate, metrics.gradient_variance, metrics.loss
    if rate is None or variance is None or loss is None or loss <= 0:
        return state.batch
    return state.clip(rate * variance / loss)


#: The weight of the newest estimate in the moving averages. Its value is KungFu's; that it weighs the newest, not the
#: previous estimates, is an assumption.
NEWEST = 0.6


class NoiseAverage(NamedTuple):
    """Moving averages of the gradients' variance (numerator) and of the squared norm of their mean (denominator)."""

    variance: float
    squared_norm: float

    @property
    def noise_scale(self) -> float:
        """Return the noise scale in examples; infinite if the estimated mean gradient is 0."""
        return self.variance / self.squared_norm if self.squared_norm > 0 else math.inf


def averaged(before: NoiseAverage | None, newest: NoiseAverage, weight: float = NEWEST) -> NoiseAverage:
    """Return the averages after a new estimate; the first estimate stands for itself."""
    if before is None:
        return newest
    return NoiseAverage(*(weight * new + (1 - weight) * old for new, old in zip(newest, before, strict=True)))


def noise_doubling(state: BatchState, metrics: BatchMetrics) -> int:
    """Return twice the batch if the measured noise scale is at least that, else the batch.

    Measures what Shockwave's jobs take from a published schedule (Zheng et al., NSDI'23); the threshold is ours.
    """
    if metrics.noise_scale is None or metrics.noise_scale < 2 * state.batch:
        return state.batch
    return state.clip(2 * state.batch)


def noise_rule(state: BatchState, metrics: BatchMetrics) -> int:
    """Return the measured noise scale as the batch, rounded into the bounds (KungFu: Mai et al., OSDI'20)."""
    if metrics.noise_scale is None:
        return state.batch
    return state.clip(metrics.noise_scale)
