"""CABS: the batch is coupled to the learning rate, the loss and the gradients' variance (Balles et al., UAI'17)."""

from __future__ import annotations

from simsched.agent.batch_rules.rule import BatchMetrics, BatchState


def cabs(state: BatchState, metrics: BatchMetrics) -> int:
    """Return learning rate x gradient variance / loss, rounded into the bounds.

    The batch stays where a figure is not measured or the loss is not positive.
    """
    rate, variance, loss = metrics.learning_rate, metrics.gradient_variance, metrics.loss
    if rate is None or variance is None or loss is None or loss <= 0:
        return state.batch
    return state.clip(rate * variance / loss)
