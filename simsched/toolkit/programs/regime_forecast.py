"""Forecasts of a training's remaining batch regimes and remaining time.

Shockwave (Zheng et al., NSDI'23, section 5) knows the sequence of regimes of a rule but not how long each lasts; their
shares of the epochs are a Dirichlet variable, updated by what happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from simsched.arithmetic import ordered_sum

Floats = NDArray[np.float64]


def expected_epochs(epochs: int, past: Sequence[int], current: int, regimes: int) -> Floats:
    """Return the expected epochs of each regime in the whole training: shape (regimes,), adding up to `epochs`.

    `past` are the lengths of finished regimes, `current` the epochs so far in the present one, `regimes` their number.
    The prior is uniform. Finished regimes are known; the remaining epochs, plus `current`, are shared evenly by the
    present regime, which keeps at least `current`, and those to come (a reading of the paper's restated prior). Raises
    `ValueError` where more regimes are over than there are.
    """
    if len(past) >= regimes:
        raise ValueError(f"{len(past)} regimes are over, of {regimes} in all, and one is running")
    rest = epochs - sum(past)
    ahead = regimes - len(past)
    present = max(rest / ahead, float(min(current, rest)))
    later = (rest - present) / max(ahead - 1, 1)
    known = [float(length) for length in past]
    return np.array([*known, rest - later * (ahead - 1), *[later] * (ahead - 1)])


def remaining_of(epoch_s: Sequence[float], done: float) -> float:
    """Return the seconds left after `done` epochs where the seconds of every epoch are forecast."""
    whole = int(done)
    if whole >= len(epoch_s):
        return 0.0
    return float(ordered_sum(epoch_s[whole:])) - (done - whole) * epoch_s[whole]


def epochs_within(epoch_s: Sequence[float], done: float, seconds: float) -> float:
    """Return how many epochs after `done` a training completes in `seconds`, at most those left."""
    place, left = done, seconds
    for whole in range(int(done), len(epoch_s)):
        needed = (whole + 1 - place) * epoch_s[whole]
        if needed > left:
            return place + left / epoch_s[whole] - done
        place, left = whole + 1.0, left - needed
    return place - done


def expected_profile(epoch_s: Sequence[float], done: float) -> list[float]:
    """Return the expected seconds of every epoch after `done` epochs, given the seconds they will really take.

    `epoch_s` tells which regimes come and how fast each is; lengths are known only for finished regimes
    (`expected_epochs`), and rounded to whole epochs.
    """
    runs = [(second, len(list(same))) for second, same in groupby(epoch_s)]
    past: list[int] = []
    whole, before = min(int(done), len(epoch_s) - 1), 0
    while before + runs[len(past)][1] <= whole:
        before += runs[len(past)][1]
        past.append(runs[len(past)][1])
    lengths = expected_epochs(len(epoch_s), past, whole - before, len(runs))
    ends = np.rint(np.cumsum(lengths)).astype(int).tolist()
    begins = [0, *ends[:-1]]
    found: list[float] = []
    for (second, _), begin, end in zip(runs, begins, ends, strict=True):
        found += [second] * (end - begin)
    return found
