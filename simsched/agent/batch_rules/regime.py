"""The two batch rules of Shockwave's evaluation, Accordion and a gradient-noise schedule (Zheng et al., NSDI'23)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from simsched.agent.batch_rules.rules import BatchMetrics, BatchState
from simsched.model.regimes import BatchRegimes


@dataclass(frozen=True)
class Accordion:
    """Train critical epochs with the initial batch, the others with the largest."""

    regimes: BatchRegimes

    def __call__(self, state: BatchState, metrics: BatchMetrics) -> int:
        """Return the largest batch outside critical epochs; inside them, the initial batch.

        The smallest batch never shrinks, and only the initial batch ever grows.
        """
        if not self.regimes.is_critical(state.initial, state.epoch):
            return state.largest if state.batch == state.initial else state.batch
        return state.batch if state.batch == state.smallest else state.initial


@dataclass
class MeasuredAccordion:
    """Accordion by measurement: it compares the gradient's norm every `every` epochs (Agarwal et al., MLSys'21).

    While the norm has changed by at least the fraction `change` since the last comparison, the training is in a
    critical regime and keeps the initial batch; else it gets the largest. The first epochs are critical. Both numbers
    are recalled from the paper. One instance serves one training.
    """

    change: float = 0.5
    every: int = 10
    _norm: float | None = field(default=None, init=False)
    _critical: bool = field(default=True, init=False)

    def __call__(self, state: BatchState, metrics: BatchMetrics) -> int:
        """Return the initial batch in a critical regime, else the largest."""
        if metrics.gradient_sqr is not None and (self._norm is None or state.epoch % self.every == 0):
            norm = math.sqrt(metrics.gradient_sqr)
            if self._norm is not None:
                self._critical = abs(self._norm - norm) >= self.change * self._norm
            self._norm = norm
        return state.initial if self._critical else state.largest


@dataclass(frozen=True)
class NoiseSchedule:
    """Double the batch when the published schedule does so in this epoch or the next."""

    regimes: BatchRegimes

    def __call__(self, state: BatchState, metrics: BatchMetrics) -> int:
        """Return twice the batch if the schedule is ahead of it and it is below the largest."""
        ahead = self.regimes.doubled(state.initial, state.gpus, state.epoch + 1)
        return 2 * state.batch if state.batch != state.largest and ahead > state.batch else state.batch
