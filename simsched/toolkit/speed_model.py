"""Optimus' model of training speed, fitted online to the speeds that jobs achieve (EuroSys'18, section 3.2).

Synchronous training of a batch of M examples on w workers takes M/w theta0 + theta1 + w theta2 seconds a step, all
theta at least 0: the paper's model without its terms for parameter servers, which all-reduce does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simsched.arithmetic import dot
from simsched.errors import input_error
from simsched.model import Site
from simsched.policy.signals import Speed
from simsched.toolkit.loss_curves import nonnegative

#: The weight of a second saved by a young job (section 4.1).
DAMPING = 0.95


class SpeedSample(NamedTuple):
    """Steps per second of a job on `workers`."""

    workers: int
    steps_per_s: float


@dataclass(frozen=True)
class SpeedModel:
    """A fitted model for one total batch size, in examples."""

    batch_size: int
    theta: tuple[float, ...]

    def step_s(self, workers: int) -> float:
        """Return the seconds of a step."""
        return dot(_terms(self.batch_size, workers), self.theta)

    def steps_per_s(self, workers: int) -> float:
        """Return the steps in a second, 0 without workers."""
        seconds = self.step_s(workers) if workers else 0.0
        return 1 / seconds if seconds > 0 else 0.0


def fit_speed(samples: Sequence[SpeedSample], batch_size: int) -> SpeedModel:
    """Fit the model by non-negative least squares; errors are relative to the measured seconds.

    Raises `InputError` without samples or if a speed is not positive. With fewer samples than terms, some terms stay 0.
    """
    if not samples or any(sample.steps_per_s <= 0 or sample.workers < 1 for sample in samples):
        raise input_error("speed samples", "are missing, or without speed or workers", "measure a few steps first")
    seconds = np.array([1 / sample.steps_per_s for sample in samples])
    design = np.array([_terms(batch_size, sample.workers) for sample in samples])
    theta = nonnegative(design / seconds[:, None], np.ones(len(samples)))
    return SpeedModel(batch_size, tuple(float(value) for value in theta))


def samples_of(speeds: Mapping[Site, Speed]) -> tuple[SpeedSample, ...]:
    """Return a job's measurements on sites of one GPU type as samples, by GPUs."""
    samples = (SpeedSample(site.gpus, 1 / speed.iteration_s) for site, speed in speeds.items() if speed.iteration_s)
    return tuple(sorted(samples))


class SpeedModels:
    """The models of several jobs, each refitted only when its samples change."""

    def __init__(self) -> None:
        self._models: dict[str, tuple[tuple[SpeedSample, ...], SpeedModel]] = {}

    def of(self, job_id: str, samples: tuple[SpeedSample, ...], batch_size: int) -> SpeedModel:
        """Return the model of a job; raises as `fit_speed` does."""
        known = self._models.get(job_id)
        if known is None or known[0] != samples:
            known = self._models[job_id] = (samples, fit_speed(samples, batch_size))
        return known[1]

    def forget(self, job_ids: Iterable[str]) -> None:
        """Drop the models of jobs that have left."""
        for job_id in job_ids:
            self._models.pop(job_id, None)


def allocate_by_time(
    remaining_steps: Sequence[float],
    step_s: Sequence[Callable[[int], float]],
    gpus: int,
    young: Sequence[bool] = (),
    damping: float = DAMPING,
) -> tuple[int, ...]:
    """Return the workers of every job: one each in order, then one at a time to the greatest saving.

    `step_s[i](n)` are the seconds of a step of job i on n workers, infinite if it cannot use them. The saving is the
    fall in remaining seconds, times `damping` for jobs in `young`, whose curve is still uncertain (section 4.1). Ends
    when no job gains.
    """
    early = [*young, *[False] * (len(step_s) - len(young))]
    counts = [1 if i < gpus else 0 for i in range(len(step_s))]

    def saving(i: int) -> float:
        now, more = step_s[i](counts[i]), step_s[i](counts[i] + 1)
        if more >= now:
            return 0.0
        return (now - more) * remaining_steps[i] * (damping if early[i] else 1.0)

    savings = [saving(i) if count else 0.0 for i, count in enumerate(counts)]
    for _ in range(gpus - sum(counts)):
        most = max(savings, default=0.0)
        if most <= 0:
            break
        best = savings.index(most)
        counts[best] += 1
        savings[best] = saving(best)
    return tuple(counts)


def _terms(batch_size: int, workers: int) -> npt.NDArray[np.float64]:
    return np.array([batch_size / workers, 1.0, workers], dtype=np.float64)
