"""Jobs drawn from published summary statistics of a cluster: median and mean duration, and mean size."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar

from simsched.errors import input_error
from simsched.keys import key
from simsched.model import JobSpec
from simsched.workload.recipes.recipe import Ingredients, jobs_key

#: Mean seconds between submissions; `offered_load` scales them.
_MEAN_GAP_S = 60.0
_USUAL_JOBS = 160
#: Steps that halve the interval of the exponent of the widths.
_HALVINGS = 200


@dataclass(frozen=True)
class LogNormalRecipe:
    """Draw jobs with random arrivals, log-normal durations, and powers of two as widths.

    A log-normal distribution is fixed by its median and mean. The widths follow the maximum-entropy distribution on
    powers of two up to `widest` with mean `mean_gpus`, which assumes nothing else: p(w) ~ exp(-a w).
    """

    needs_trace: ClassVar[bool] = False
    unread: ClassVar[Collection[str]] = ()

    jobs: int | None = jobs_key()
    median_s: float = key(600.0, "recipe 'log-normal': median duration, in seconds", ge=1, le=1e9)
    mean_s: float = key(6000.0, "recipe 'log-normal': mean duration, in seconds", ge=1, le=1e9)
    mean_gpus: float = key(2.0, "recipe 'log-normal': mean GPUs of a job, in powers of two", ge=1, le=1e6)
    widest: int = key(32, "recipe 'log-normal': most GPUs of a job, a power of two", ge=1, le=1 << 20)

    def make(self, ingredients: Ingredients) -> list[JobSpec]:
        """Return the jobs in order of submission; raises `InputError` if the statistics are impossible."""
        widths, shares = self._widths()
        if self.mean_s < self.median_s:
            message = f"{self.mean_s:g} is below the median, {self.median_s:g}, which a log-normal mean never is"
            raise input_error("workload.mean_s", message, "give the mean and the median of the same durations")
        count, rng = self.jobs or _USUAL_JOBS, ingredients.rng("log-normal")
        sigma = math.sqrt(2 * math.log(self.mean_s / self.median_s))
        submit_s = rng.exponential(_MEAN_GAP_S, count).cumsum()
        normal, gpus = rng.standard_normal(count), rng.choice(widths, count, p=shares)
        drawn = zip(submit_s.tolist(), normal.tolist(), gpus.tolist(), strict=True)
        return [
            JobSpec(f"job-{number}", int(at_s), width, duration_s=max(1, round(self.median_s * math.exp(sigma * z))))
            for number, (at_s, z, width) in enumerate(drawn)
        ]

    def extremes(self, ingredients: Ingredients, most_gpus: int) -> list[JobSpec]:
        """Return one job of each width."""
        return [JobSpec(f"a-job-of-{width}-gpus", 0, width, duration_s=1) for width in self._widths()[0]]

    def _widths(self) -> tuple[Sequence[int], Sequence[float]]:
        """Return the widths and their shares; bisects for the exponent."""
        widths = [1 << power for power in range(self.widest.bit_length())]
        if widths[-1] != self.widest:
            raise input_error("workload.widest", f"{self.widest} is not a power of two", f"give {widths[-1]}")
        if not (self.mean_gpus == 1 == self.widest or 1 < self.mean_gpus < self.widest):
            message = f"{self.mean_gpus:g} is not a possible mean of widths from 1 to {self.widest}"
            raise input_error("workload.mean_gpus", message, "give one between them")
        low, high = -1.0, 1.0 * self.widest
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            shares = _shares(widths, middle)
            below = sum(width * share for width, share in zip(widths, shares, strict=True)) < self.mean_gpus
            low, high = (low, middle) if below else (middle, high)
        return widths, _shares(widths, low)


def _shares(widths: Sequence[int], exponent: float) -> list[float]:
    most = max(-exponent * width for width in widths)
    weights = [math.exp(-exponent * width - most) for width in widths]
    return [weight / sum(weights) for weight in weights]
