"""What only the engine knows of a job: remaining work, true rates and future losses."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from math import ceil
from types import MappingProxyType
from typing import Protocol

import numpy as np

from simsched.arithmetic import exp
from simsched.model import (
    NO_BATCH,
    Application,
    BatchChoice,
    Cluster,
    JobRequest,
    LossCurve,
    Site,
    batch_for_target,
    tightest_site,
)
from simsched.policy import LossReports

#: Jobs report losses at the start, after each epoch, and within epochs to reach this many reports.
LEAST_REPORTS = 100


class JobAtWork(Protocol):
    """The job state that the oracle reads."""

    @property
    def request(self) -> JobRequest:
        """Return the submitted request."""

    @property
    def app(self) -> Application:
        """Return the application."""

    @property
    def epoch(self) -> int:
        """Return the current epoch, 0-based."""

    @property
    def site(self) -> Site | None:
        """Return the site of the job, None while it waits."""

    @property
    def cluster(self) -> Cluster:
        """Return the cluster."""


class TrueRemainingWork:
    """The remaining work of a job at one instant."""

    def __init__(self, job: JobAtWork, progress: float) -> None:
        self.epoch = job.epoch
        self.epochs = job.app.epochs
        self._job = job
        self._progress = progress

    @property
    def progress(self) -> float:
        """Remaining progress, in the application's unit."""
        return self._job.app.epoch_end(self.epochs - 1) - self._progress

    def iterations(self, batch_size: float, epoch: int) -> float:
        """Return the iterations to the end of an epoch at a constant `batch_size`."""
        return self._job.app.iterations(batch_size, epoch)

    @property
    def seconds(self) -> float:
        """Seconds left on the GPU type held, or while waiting on the fastest usable type.

        Assumes requested GPUs and batch, consolidated and undisturbed. Raises `ValueError` if no type is usable.
        """
        job = self._job
        if job.site is not None:
            return self.seconds_on(job.site.gpu_type)
        types, known = job.cluster.gpu_types, job.app.gpu_types
        if len(types) == 1:
            return self.seconds_on(types[0])
        able = [gpu_type for gpu_type in types if known is None or gpu_type in known]
        if not able:
            raise ValueError(f"{job.app.name} runs on none of the GPU types {', '.join(types)}")
        return min(self.seconds_on(gpu_type) for gpu_type in able)

    def seconds_on(self, gpu_type: str, gpus: int | None = None) -> float:
        """Return the seconds left on consolidated GPUs (default: as requested); `ValueError` for an unknown speed."""
        app = self._job.app
        site, batch = _as_asked(self._job, gpu_type, gpus)
        seconds, progress = 0.0, self._progress
        for epoch in range(self.epoch, self.epochs):
            end = app.epoch_end(epoch)
            seconds += (end - progress) / app.run(site, batch, epoch).rate
            progress = end
        return seconds


def true_rates(job: JobAtWork) -> Mapping[str, float]:
    """Return progress per second in the current epoch by GPU type, on the requested GPUs, consolidated; else 0."""
    app = job.app
    rates = {}
    for gpu_type in job.cluster.gpus_by_type:
        known = app.gpu_types is None or gpu_type in app.gpu_types
        fits = known and job.request.num_gpus <= job.cluster.gpus_by_type[gpu_type]
        rates[gpu_type] = app.run(*_as_asked(job, gpu_type), job.epoch).rate if fits else 0.0
    return MappingProxyType(rates)


def _as_asked(job: JobAtWork, gpu_type: str, gpus: int | None = None) -> tuple[Site, BatchChoice]:
    """Return a consolidated site of `gpus` (default: as requested) and the requested batch."""
    app, request, batch = job.app, job.request, NO_BATCH
    gpus = gpus or request.num_gpus
    if app.limits is not None:
        target = request.batch_size or app.fixed_batch_size or app.limits.init_batch_size
        batch = batch_for_target(app.limits, target, gpus)
    return tightest_site(job.cluster, gpus, gpu_type), batch


class LossReporter:
    """The loss reports of one job, drawn at submission and shown as it progresses."""

    def __init__(self, app: Application, curve: LossCurve, rng: np.random.Generator) -> None:
        """Draw the reports: the curve's losses, each times exp(noise x normal)."""
        each = ceil(LEAST_REPORTS / app.epochs)
        ends = [app.epoch_end(epoch) for epoch in range(app.epochs)]
        epochs = np.arange(app.epochs * each + 1) / each
        losses = curve.at(epochs) * exp(curve.noise * rng.standard_normal(len(epochs)))
        self._epochs: tuple[float, ...] = tuple(epochs.tolist())
        self._losses: tuple[float, ...] = tuple(losses.tolist())
        self._ends = [0.0, *ends]
        self._progress = np.interp(epochs, np.arange(app.epochs + 1.0), self._ends).tolist()

    def reports(self, progress: float) -> LossReports:
        """Return the reports by `progress`, none at 0."""
        count = bisect_right(self._progress, progress) if progress > 0 else 0
        done = float(np.interp(progress, self._ends, np.arange(float(len(self._ends)))))
        mean = self._ends[-1] / (len(self._ends) - 1)
        return LossReports(self._epochs[:count], self._losses[:count], done, mean)
