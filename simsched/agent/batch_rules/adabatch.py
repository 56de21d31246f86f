"""AdaBatch: the batch doubles on a schedule while the learning rate falls less (Devarakonda et al., 2017)."""

from __future__ import annotations

from dataclasses import dataclass

from simsched.agent.batch_rules.rule import BatchMetrics, BatchState


@dataclass(frozen=True)
class AdaBatch:
    """Multiply the batch by `factor` every `epochs` epochs.

    With the defaults the learning rate decays by 0.75 at each doubling where a fixed batch would decay it by 0.375: the
    same rate per example (arXiv 1712.02029).
    """

    epochs: int = 20
    factor: int = 2
    decay: float = 0.75

    def __call__(self, state: BatchState, metrics: BatchMetrics) -> int:
        """Return the batch of the state's epoch, within its bounds."""
        return state.clip(state.initial * self.factor ** (state.epoch // self.epochs))

    def learning_rate(self, initial: float, epoch: int) -> float:
        """Return the learning rate of an epoch that began with `initial`."""
        return initial * float(self.decay ** (epoch // self.epochs))
