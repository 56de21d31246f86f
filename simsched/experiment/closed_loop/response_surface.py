"""What accuracy a trial of hyper-parameter tuning ends at: a synthetic response surface.

Nobody has published the accuracies of Pollux's trials (OSDI'21, section 5.4, Table 3), so they come from a formula that
looks like what is known of ResNet-18 on CIFAR-10: a smooth peak in the effective learning rate lr / (1 - momentum), in
weight decay and in annealing, a small gain from width, and a spread between runs that differ in nothing but their seed.
It knows nothing of GPUs, batch sizes or time: whatever a scheduler does, a trial with the same hyper-parameters and the
same number ends at the same accuracy.

The height of the peak and the spread are calibrated, and nothing else is: with 100 trials of a TPE, four at a time, the
five best should average 95.4 to 95.5 % with a standard deviation of 0.2 to 0.3 among them, as published.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

#: Widths that a network may have, as multiples of ResNet-18's.
WIDTHS = (0.75, 0.875, 1.0, 1.125, 1.25)
#: Ranges of the continuous hyper-parameters; all but momentum are searched over their logarithm.
LEARNING_RATE = (0.003, 1.0)
ANNEALING = (0.001, 1.0)
MOMENTUM = (0.5, 0.99)
WEIGHT_DECAY = (1e-5, 1e-2)

PEAK = 94.6  # per cent, at width 1 and everything else at its best
SPREAD = 0.65  # per cent, standard deviation between runs that differ in their seed alone
_CHANCE = 10.0  # per cent, ten classes


@dataclass(frozen=True)
class Hyperparameters:
    """What a trial varies.

    `annealing` is the final learning rate as a share of the initial one, `width` the network's as a multiple of
    ResNet-18's.
    """

    learning_rate: float
    annealing: float
    momentum: float
    weight_decay: float
    width: float


def expected_accuracy(chosen: Hyperparameters) -> float:
    """Return the accuracy in per cent, without the spread between runs.

    Losses are quadratic in decades of the effective learning rate (best at 1), of weight decay (at 5e-4) and of
    annealing (at 0.01), and in momentum (at 0.9); a doubling of the width gains 0.6 less 0.15 for each doubling.
    """
    decades = math.log10(chosen.learning_rate / (1 - chosen.momentum))
    loss = 1.6 * decades**2
    loss += 0.6 * math.log10(chosen.weight_decay / 5e-4) ** 2
    loss += 0.4 * math.log10(chosen.annealing / 0.01) ** 2
    loss += 10.0 * (chosen.momentum - 0.9) ** 2
    doublings = math.log2(chosen.width)
    return max(PEAK - loss + 0.6 * doublings - 0.15 * doublings**2, _CHANCE)


def accuracy(chosen: Hyperparameters, rng: np.random.Generator) -> float:
    """Draw the accuracy in per cent at which one run ends, between chance and 100."""
    drawn = expected_accuracy(chosen) + SPREAD * float(rng.standard_normal())
    return min(max(drawn, _CHANCE), 100.0)


def step_factor(width: float) -> float:
    """Return how much longer a step takes than at width 1: arithmetic and gradients both grow as its square."""
    return width**2
