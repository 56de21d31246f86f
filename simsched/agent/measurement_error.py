"""Errors of a job's measurements."""

from __future__ import annotations

import math
import zlib
from collections.abc import Hashable

import numpy as np

from simsched.agent.agent import Measurement
from simsched.arithmetic import exp, log
from simsched.model import JobRequest
from simsched.model.application import GradientStats, StepTime


class MeasurementError:
    """Distorts measurements by log-normal factors of mean 1 and standard deviation `noise`.

    A configuration has one error for its computation and one for its synchronisation, however often the job runs in it:
    a job averages over its steps, which leaves the common part. Squared norm and variance of the gradient get a new
    error each whenever they change. Each job draws its errors from a separate random stream, named by its id and its
    submission time.
    """

    def __init__(self, noise: float, request: JobRequest) -> None:
        """Create the errors of one job; raises `ValueError` for a noise that is not in [0, 1)."""
        check_noise(noise)
        name = f"{request.id} {request.submit_time_s}"
        self._rng = np.random.default_rng(np.random.SeedSequence([zlib.crc32(name.encode())]))
        self._sigma = math.sqrt(log(1.0 + noise**2))
        self._known: dict[Hashable, tuple[float, float]] = {}

    def distort(self, measurement: Measurement) -> Measurement:
        """Return a measurement as the job sees it."""
        site, step, gradient = measurement.site, measurement.step, measurement.gradient
        compute, sync = self._factors((site.gpu_type, site.nodes, site.gpus, measurement.local_bsz))
        norm, variance = self._factors(gradient)
        sync_s = step.sync_s * sync
        return measurement._replace(
            step=StepTime((step.step_s - step.sync_s) * compute + sync_s, sync_s),
            gradient=GradientStats(gradient[0] * norm, gradient[1] * variance),
        )

    def _factors(self, of: Hashable) -> tuple[float, float]:
        if of not in self._known:
            one, other = exp(self._sigma * self._rng.standard_normal(2) - self._sigma**2 / 2).tolist()
            self._known[of] = one, other
        return self._known[of]


def check_noise(noise: float) -> None:
    """Raise `ValueError` for a relative error that is not in [0, 1)."""
    if not 0 <= noise < 1:
        raise ValueError(f"noise must be from 0 to below 1, not {noise}")
