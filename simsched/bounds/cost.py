"""The least cost of a job with a deadline on nodes that come, go and cost by the hour."""

from __future__ import annotations

from math import gcd

import numpy as np
from numpy.typing import NDArray

#: Units of work of a job up to which all of them are counted.
_MOST_UNITS = 50_000


def least_cost(
    work_s: float, restart_s: float, tick_s: float, prices: NDArray[np.float64], *, last_tick: bool = True
) -> float:
    """Return the least dollars for `work_s` seconds of work, infinite if they do not fit.

    `prices`, shape (kinds of nodes, ticks), has the dollars of a second, infinite where a kind is not to be had. The
    job chooses one kind or none for each tick; each launch takes `restart_s` seconds. Kinds are equally far from each
    other. It pays by the second to its end, or with `last_tick` false nothing for the tick in which it ends.

    The dynamic program is exact if tick and restart are whole seconds; else work is rounded in the job's favour.
    """
    unit_s = float(gcd(round(tick_s), round(restart_s)))
    if unit_s == 0 or {tick_s % 1, restart_s % 1} != {0} or work_s / unit_s > _MOST_UNITS:
        unit_s = max(tick_s / 64, work_s / _MOST_UNITS)
    units = int(work_s // unit_s)
    rests = [max(restart_s - ticks * tick_s, 0.0) for ticks in range(int(restart_s // tick_s) + 2)]
    gains = [-int(-max(tick_s - rest, 0.0) // unit_s) for rest in rests]
    # dollars by ticks since the launch, kind and units done, and of holding nothing
    held, nothing, best = np.full((len(rests), len(prices), units + 1), np.inf), np.full(units + 1, np.inf), np.inf
    nothing[0], left_s = 0.0, work_s - unit_s * np.arange(units + 1)
    for price in prices.T:
        nothing = np.minimum(nothing, held.min(axis=(0, 1)))
        begun = np.concatenate([np.broadcast_to(nothing, (1, *held.shape[1:])), held[:-1]])
        begun[-1] = np.minimum(begun[-1], held[-1])
        held = np.full_like(held, np.inf)
        there = np.isfinite(price)
        for place, (rest_s, gain) in enumerate(zip(rests, gains, strict=True)):
            ends = left_s <= gain * unit_s
            seconds = np.maximum(left_s[ends], 0) + rest_s if last_tick else 0 * left_s[ends]
            if gain:
                whole = begun[place][there][:, ends] + price[there, None] * seconds
                best = min(best, float(whole.min(initial=np.inf)))
            held[place, :, gain:] = begun[place, :, : max(units + 1 - gain, 0)] + price[:, None] * tick_s
    return best
