"""Time limits as users give them, for logs that have none."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from simsched.model import JobSpec

#: How limits come about: the duration itself, a random multiple of it, or that rounded up to a popular value.
Kind = Literal["exact", "uniform", "rounded"]

_MINUTE, _HOUR = 60, 3600
#: Round values such as users choose, in seconds. That a score of them serves nearly all jobs is Tsafrir et al.'s
#: finding; which ones they are differs from site to site, and this list is an assumption.
POPULAR_S: Sequence[int] = (
    5 * _MINUTE, 10 * _MINUTE, 15 * _MINUTE, 20 * _MINUTE, 30 * _MINUTE, 1 * _HOUR, 2 * _HOUR, 3 * _HOUR, 4 * _HOUR,
    6 * _HOUR, 8 * _HOUR, 10 * _HOUR, 12 * _HOUR, 18 * _HOUR, 24 * _HOUR, 36 * _HOUR, 48 * _HOUR, 72 * _HOUR,
    96 * _HOUR, 120 * _HOUR, 168 * _HOUR,
)  # fmt: skip


def with_estimates(jobs: Sequence[JobSpec], kind: Kind, factor: float, rng: np.random.Generator) -> list[JobSpec]:
    """Return the jobs, those without a time limit and with a duration given one.

    `uniform` draws it evenly between the duration and (1 + `factor`) times it (Mu'alem and Feitelson, TPDS 2001,
    section 4); `rounded` rounds that up to the next of `POPULAR_S`, beyond the last to whole weeks, because users name
    few, round values (Tsafrir, Etsion and Feitelson, JSSPP 2005). No limit is below the duration. One number is drawn
    for each job, whether it needs it or not.
    """
    draws = rng.random(len(jobs)).tolist()
    return [
        replace(job, time_limit_s=_limit(job.duration_s, kind, factor, draw))
        if job.time_limit_s is None and job.duration_s > 0
        else job
        for job, draw in zip(jobs, draws, strict=True)
    ]


def _limit(duration_s: float, kind: Kind, factor: float, draw: float) -> float:
    if kind == "exact":
        return math.ceil(duration_s)
    estimate = math.ceil(duration_s * (1 + factor * draw))
    return estimate if kind == "uniform" else popular(estimate)


def popular(seconds: float) -> int:
    """Return the least of `POPULAR_S` that is no less, or whole weeks beyond them."""
    place = bisect_left(POPULAR_S, seconds)
    return POPULAR_S[place] if place < len(POPULAR_S) else math.ceil(seconds / POPULAR_S[-1]) * POPULAR_S[-1]
