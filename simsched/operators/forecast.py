"""Forecasts the effect of a change on a cluster's waits from replays and their misfit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simsched.operators.evidence import WAITED_S

Numbers = npt.NDArray[np.float64]

DAY_S = 86400
_DRAWS, _SEED = 400, 26
#: Smaller absolute (seconds) and relative changes of a mean wait count as none.
LEAST_CHANGE_S, LEAST_CHANGE = 60.0, 0.05
#: Smaller relative changes also occur by chance, since queues are sensitive to the order of completions.
SURE_CHANGE = 0.25
#: The least uncertainty factor of any replay: the misfit does not cover what the log does not show.
_LEAST_FACTOR = 1.1


@dataclass(frozen=True)
class Forecast:
    """The mean wait of a group of jobs after a change, in seconds, with an interval that includes the misfit.

    `now_s` is the recorded mean. `direction` is `less`, `more`, `as before`, or `cannot tell`.
    """

    now_s: float
    mean_s: float
    low_s: float
    high_s: float
    direction: str


def forecast_mean(recorded: Numbers, before: Numbers, after: Numbers, submit: Numbers) -> Forecast:
    """Forecast the mean wait after a change from recorded waits and the replays before and after it.

    The recorded mean is scaled by the ratio of the replays' means, and shifted by their difference; the forecast is the
    midpoint of the two. The interval covers both, the replay itself, and all three over resampled days (95 %), widened
    by the replay's error (at least a tenth) and by five minutes.
    """
    _, day = np.unique(submit // DAY_S, return_inverse=True)
    days = int(day.max()) + 1
    dice = np.random.default_rng(_SEED).integers(0, days, (_DRAWS, days))
    often = np.vstack([np.ones(days), np.apply_along_axis(np.bincount, 1, dice, minlength=days)])
    counts = often @ np.bincount(day, minlength=days)
    was, old, new = (often @ np.bincount(day, values, days) / counts for values in (recorded, before, after))
    scaled, moved = was * (new + 30) / (old + 30), np.maximum(was + new - old, 0.0)
    middle = (scaled[0] + moved[0]) / 2
    # Resampling days shifts the level, which the change does not, so errors are relative to the level of each draw.
    ways = np.concatenate([way * was[0] / np.maximum(was, 1.0) for way in (scaled, moved)])
    off = max(_LEAST_FACTOR, float(np.exp(abs(np.log((old[0] + 30) / (was[0] + 30))))))
    low, high = np.percentile(ways, (2.5, 97.5))
    low = max(min(low, new[0], middle) / off - WAITED_S, 0.0)
    high = max(high, new[0], middle) * off + WAITED_S
    direction = _direction(float(was[0]), old, new)
    return Forecast(float(was[0]), float(middle), float(low), float(high), direction)


def _direction(recorded: float, before: Numbers, after: Numbers) -> str:
    """Return the direction of the change in waits, if nearly all resamples agree and it exceeds the replay's error."""
    change, at_first = float(after[0] - before[0]), float(before[0])
    low, high = np.percentile(after[1:] - before[1:], (2.5, 97.5))
    if abs(change) < LEAST_CHANGE * at_first and max(abs(low), abs(high)) < max(
        LEAST_CHANGE_S, LEAST_CHANGE * at_first
    ):
        return "as before"
    if abs(change) < max(LEAST_CHANGE_S, SURE_CHANGE * at_first, abs(at_first - recorded)) or low <= 0 <= high:
        return "cannot tell"
    return "less" if change < 0 else "more"
