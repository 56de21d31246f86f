"""How the loss of a training falls: a curve of the loss over epochs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LossCurve:
    """The loss after so many epochs of equal progress, from 0 on; epochs ascend and losses, all above 0, do not.

    Between the `epochs` given, the logarithm of the loss follows straight lines over the logarithm of 1 + epochs, so
    that each piece is a power law; beyond the last the loss stays. `noise` is the standard deviation of single
    evaluations around the curve, relative to it.
    """

    epochs: tuple[float, ...]
    losses: tuple[float, ...]
    noise: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what is no curve of a falling loss."""
        if len(self.epochs) != len(self.losses) or len(self.epochs) < 2:
            raise ValueError("a loss curve needs as many losses as epochs, and two of each or more")
        if self.epochs[0] != 0 or (np.diff(self.epochs) <= 0).any():
            raise ValueError("the epochs of a loss curve must begin at 0 and ascend")
        if min(self.losses) <= 0 or (np.diff(self.losses) > 0).any() or self.losses[-1] == self.losses[0]:
            raise ValueError("the losses of a loss curve must be above 0 and fall")

    def at(self, epochs: ArrayLike) -> Floats:
        """Return the losses after `epochs`, an array of the same shape."""
        places, logs = self._logs
        return np.exp(np.interp(np.log1p(np.asarray(epochs, dtype=np.float64)), places, logs))

    @cached_property
    def _logs(self) -> tuple[Floats, Floats]:
        return np.log1p(np.asarray(self.epochs, dtype=np.float64)), np.log(np.asarray(self.losses, dtype=np.float64))
