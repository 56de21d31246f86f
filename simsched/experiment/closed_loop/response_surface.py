"""The final accuracy of a tuning trial: a synthetic response surface.

The accuracies of Pollux's trials (OSDI'21, section 5.4, Table 3) are unpublished. This formula has the known traits of
ResNet-18 on CIFAR-10: a smooth peak in the effective learning rate lr / (1 - momentum), weight decay and annealing, a
small gain from width, and a spread between seeds. It ignores GPUs, batch sizes and time: equal hyper-parameters and
trial numbers give equal accuracy under any scheduler. Only the peak's height and the spread are calibrated: with 100
trials of a TPE, four at a time, the best five should average 95.4 to 95.5 % with a standard deviation of 0.2 to 0.3, as
published.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

#: Network widths, as multiples of ResNet-18's.
WIDTHS = (0.75, 0.875, 1.0, 1.125, 1.25)
#: Ranges of the continuous hyper-parameters; all but momentum are searched on a log scale.
LEARNING_RATE = (0.003, 1.0)
ANNEALING = (0.001, 1.0)
MOMENTUM = (0.5, 0.99)
WEIGHT_DECAY = (1e-5, 1e-2)

PEAK = 94.6  # per cent, at width 1 and everything else at its best
SPREAD = 0.65  # per cent, standard deviation between seeds
_CHANCE = 10.0  # per cent, ten classes


@dataclass(frozen=True)
class Hyperparameters:
    """A trial's hyper-parameters: `annealing` relative to the initial learning rate, `width` to ResNet-18's."""

    learning_rate: float
    annealing: float
    momentum: float
    weight_decay: float
    width: float


def expected_accuracy(chosen: Hyperparameters) -> float:
    """Return the accuracy in per cent, without the spread between runs.

    Losses are quadratic in decades of the effective learning rate (best at 1), weight decay (at 5e-4) and annealing (at
    0.01), and in momentum (at 0.9); doubling the width gains 0.6 less 0.15 for each doubling.
    """
    decades = math.log10(chosen.learning_rate / (1 - chosen.momentum))
    loss = 1.6 * decades**2
    loss += 0.6 * math.log10(chosen.weight_decay / 5e-4) ** 2
    loss += 0.4 * math.log10(chosen.annealing / 0.01) ** 2
    loss += 10.0 * (chosen.momentum - 0.9) ** 2
    doublings = math.log2(chosen.width)
    return max(PEAK - loss + 0.6 * doublings - 0.15 * doublings**2, _CHANCE)


def accuracy(chosen: Hyperparameters, rng: np.random.Generator) -> float:
    """Draw a run's final accuracy in per cent, between chance and 100."""
    drawn = expected_accuracy(chosen) + SPREAD * float(rng.standard_normal())
    return min(max(drawn, _CHANCE), 100.0)


def step_factor(width: float) -> float:
    """Return the step time relative to width 1: arithmetic and gradients both grow with its square."""
    return width**2
