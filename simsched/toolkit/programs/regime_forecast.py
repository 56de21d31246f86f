"""Forecasts of the batch regimes that a training has ahead, and of the time that it still needs.

Shockwave (Zheng et al., NSDI'23, section 5) knows which regimes a rule goes through but not how long each lasts, and
takes their shares of the epochs for a Dirichlet variable that what happened updates.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def expected_epochs(epochs: int, past: Sequence[int], current: int, regimes: int) -> Floats:
    """Return the expected epochs of each regime in the whole training: shape (regimes,), adding up to `epochs`.

    `past` are the lengths of the regimes that are over, `current` the epochs so far in the present one, `regimes` how
    many there are. Before anything happened each is expected to be as long as the others. A regime that is over is
    known; the epochs that are left are shared evenly over the present one and those to come, counting what the present
    one had, of which it keeps at least that (a reading of the paper's restated prior). Raises `ValueError` where more
    regimes are over than there are.
    """
    if len(past) >= regimes:
        raise ValueError(f"{len(past)} regimes are over, of {regimes} in all, and one is running")
    rest = epochs - sum(past)
    ahead = regimes - len(past)
    present = max(rest / ahead, float(min(current, rest)))
    later = (rest - present) / (ahead - 1) if ahead > 1 else 0.0
    known = [float(length) for length in past]
    return np.array([*known, rest - later * (ahead - 1), *[later] * (ahead - 1)])


def remaining_s(lengths: Floats, epoch_s: Floats, done: float) -> float:
    """Return the seconds left after `done` epochs, of regimes with these lengths and seconds an epoch."""
    ends = np.cumsum(lengths)
    left = np.clip(ends - done, 0.0, lengths)
    return float(left @ epoch_s)


def remaining_of(epoch_s: Sequence[float], done: float) -> float:
    """Return the seconds left after `done` epochs where the seconds of every epoch are forecast."""
    whole = int(done)
    if whole >= len(epoch_s):
        return 0.0
    return float(sum(epoch_s[whole:])) - (done - whole) * epoch_s[whole]


def epochs_within(epoch_s: Sequence[float], done: float, seconds: float) -> float:
    """Return how many epochs after `done` a training gets through in `seconds`, at most those that are left."""
    place, left = done, seconds
    while left > 0 and int(place) < len(epoch_s):
        whole = int(place)
        needed = (whole + 1 - place) * epoch_s[whole]
        if needed > left:
            return place + left / epoch_s[whole] - done
        place, left = whole + 1.0, left - needed
    return place - done


def expected_profile(epoch_s: Sequence[float], done: float) -> list[float]:
    """Return the seconds of every epoch as expected after `done` epochs, from the seconds that they will really take.

    Which regimes come and how fast each is are known from `epoch_s`, how long they last only where they are over
    (`expected_epochs`); lengths are rounded to whole epochs.
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
