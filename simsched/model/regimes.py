"""Batch regimes of a training over its epochs.

Epochs count from 0. Two rules have published regimes: a gradient-noise schedule that doubles the batch at given epochs,
and Accordion, which trains critical epochs with the initial batch and the others with the largest (Agarwal et al.,
MLSys'21). The shipped figures are those of Shockwave's evaluation (Zheng et al., NSDI'23, artifact).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

Window = tuple[int, int]

#: Under Accordion, a profile treats no epoch before this share of the training as a large-batch one.
PROFILE_WARM_UP = 0.3


@dataclass(frozen=True)
class CriticalEpochs:
    """The epochs that Accordion trains with the initial batch.

    `windows` are half-open ranges, modulo `period` unless that is 0; `by_batch` replaces them for given initial
    batches; `in_profile` are ranges that only a profile of the training treats as critical.
    """

    windows: tuple[Window, ...]
    period: int = 0
    by_batch: Mapping[int, tuple[Window, ...]] = field(default_factory=lambda: MappingProxyType({}))
    in_profile: tuple[Window, ...] = ()

    def holds(self, initial: int, epoch: int) -> bool:
        """Return whether `epoch` is critical for a job with this initial batch."""
        place = epoch % self.period if self.period else epoch
        return any(first <= place < end for first, end in self.by_batch.get(initial, self.windows))


@dataclass(frozen=True)
class BatchRegimes:
    """What is known of a model: its data set, its possible batches, its schedules.

    `samples` is the size of the data set in examples; `smallest` and `largest` bound the batch; `doublings` gives the
    epochs at which the batch doubles by (initial batch, GPUs); `critical` is None if every epoch is.
    """

    samples: int
    smallest: int
    largest: int
    doublings: Mapping[tuple[int, int], tuple[int, ...]]
    critical: CriticalEpochs | None = None

    def steps_per_epoch(self, batch: int) -> int:
        """Return the optimizer steps of one pass over the data set."""
        return math.ceil(self.samples / batch)

    def is_critical(self, initial: int, epoch: int) -> bool:
        """Return whether Accordion trains `epoch` with the initial batch."""
        return self.critical is None or self.critical.holds(initial, epoch)

    def doubled(self, initial: int, gpus: int, epoch: int) -> int:
        """Return the batch in `epoch` in a gradient-noise schedule."""
        times = sum(at <= epoch for at in self.doublings.get((initial, gpus), ()))
        return min(self.largest, initial << times) if times else initial


def profile(regimes: BatchRegimes, rule: str, initial: int, gpus: int, total_steps: float) -> tuple[int, ...]:
    """Predict the batch of each epoch of a training of `total_steps` steps at the initial batch.

    `rule` is `accordion`, `gns` or `static`. Shockwave derives deadlines, fairness and plans from this prediction,
    which differs from what its triggers do at run time: Accordion's first 30 % of epochs and a few further windows
    count as critical, and the last epoch of a gradient-noise schedule falls back to the initial batch once the batch
    has doubled twice. Raises `ValueError` for another rule.
    """
    epochs = math.ceil(total_steps / regimes.steps_per_epoch(initial))
    if rule == "static":
        return (initial,) * epochs
    if rule == "accordion":
        return tuple(_accordion(regimes, initial, epoch, epochs) for epoch in range(epochs))
    if rule != "gns":
        raise ValueError(f"'{rule}' is not a batch rule with published regimes; known: accordion, gns, static")
    batches = [regimes.doubled(initial, gpus, epoch) for epoch in range(epochs)]
    if batches and batches[-1] > 2 * initial:
        batches[-1] = initial
    return tuple(batches)


def _accordion(regimes: BatchRegimes, initial: int, epoch: int, epochs: int) -> int:
    late = regimes.critical.in_profile if regimes.critical else ()
    critical = regimes.is_critical(initial, epoch) or any(first <= epoch < end for first, end in late)
    return initial if critical or epoch <= PROFILE_WARM_UP * epochs else regimes.largest


def epoch_seconds(regimes: BatchRegimes, batches: Sequence[int], rate: Callable[[int], float]) -> tuple[float, ...]:
    """Return the seconds of each epoch: examples over batch over `rate(batch)`, which is in steps per second."""
    return tuple(regimes.samples / batch / rate(batch) for batch in batches)
