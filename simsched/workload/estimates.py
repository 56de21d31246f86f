"""Draws time limits as users give them, for logs without limits."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from simsched.model import JobSpec

#: How a limit is set: the duration itself, a random multiple of it, or that multiple rounded up to a popular value.
Kind = Literal["exact", "uniform", "rounded"]

_MINUTE, _HOUR = 60, 3600
#: Round values that users choose, in seconds. Tsafrir et al. find that about twenty values cover nearly all jobs; the
#: values differ between sites, and this list is an assumption.
POPULAR_S: Sequence[int] = (
    5 * _MINUTE, 10 * _MINUTE, 15 * _MINUTE, 20 * _MINUTE, 30 * _MINUTE, 1 * _HOUR, 2 * _HOUR, 3 * _HOUR, 4 * _HOUR,
    6 * _HOUR, 8 * _HOUR, 10 * _HOUR, 12 * _HOUR, 18 * _HOUR, 24 * _HOUR, 36 * _HOUR, 48 * _HOUR, 72 * _HOUR,
    96 * _HOUR, 120 * _HOUR, 168 * _HOUR,
)  # fmt: skip


def with_estimates(jobs: Sequence[JobSpec], kind: Kind, factor: float, rng: np.random.Generator) -> list[JobSpec]:
    """Give a time limit to each job that has a duration but no limit; return all jobs.

    `uniform` draws it evenly between the duration and (1 + `factor`) times it (Mu'alem and Feitelson, TPDS 2001,
    section 4); `rounded` rounds that up to the next of `POPULAR_S`, or to whole weeks beyond the last, because users
    choose from a few round values (Tsafrir, Etsion and Feitelson, JSSPP 2005). No limit is below the duration. Each job
    consumes one random number, whether it needs one or not.
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
    """Round up to the next of `POPULAR_S`, or to whole weeks beyond the last."""
    place = bisect_left(POPULAR_S, seconds)
    return POPULAR_S[place] if place < len(POPULAR_S) else math.ceil(seconds / POPULAR_S[-1]) * POPULAR_S[-1]
