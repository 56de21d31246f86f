"""The two batch rules of Shockwave's evaluation, Accordion and a gradient-noise schedule (Zheng et al., NSDI'23)."""

from __future__ import annotations

from dataclasses import dataclass

from simsched.agent.batch_rules.rule import BatchMetrics, BatchState
from simsched.model.regimes import RUN_TIME_EPOCHS, BatchRegimes


@dataclass(frozen=True)
class Accordion:
    """Train critical epochs with the initial batch, the others with the largest."""

    regimes: BatchRegimes

    def __call__(self, state: BatchState, metrics: BatchMetrics) -> int:
        """Return the largest batch outside critical epochs; back in one, the initial batch.

        A batch that was changed to the smallest never goes down, and one never climbs but from the initial batch.
        """
        if not self.regimes.is_critical(state.initial, state.epoch):
            return state.largest if state.batch == state.initial else state.batch
        return state.batch if state.batch == state.smallest else state.initial


@dataclass(frozen=True)
class NoiseSchedule:
    """Double the batch when the published schedule does so in this epoch or the next."""

    regimes: BatchRegimes

    def __call__(self, state: BatchState, metrics: BatchMetrics) -> int:
        """Return twice the batch if the schedule is ahead of it and the largest is not reached."""
        epochs = max(RUN_TIME_EPOCHS, state.epoch + 2)
        ahead = (
            self.regimes.doubled(state.initial, state.gpus, epoch, epochs) for epoch in (state.epoch, state.epoch + 1)
        )
        return 2 * state.batch if state.batch != state.largest and max(ahead) > state.batch else state.batch
