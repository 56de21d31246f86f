"""What a batch rule reads and what it answers."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class BatchState(NamedTuple):
    """Where a training stands: its batches are totals in examples, `epoch` counts from 0."""

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
    """What a training measures of itself; a figure that it does not measure is None.

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
    """Answers the total batch, in examples, that a training should go on with."""

    def __call__(self, state: BatchState, metrics: BatchMetrics) -> int:
        """Return the batch; the present one where nothing should change or a metric is missing."""
