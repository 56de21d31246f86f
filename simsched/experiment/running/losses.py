"""The normalised losses over progress of a cell's applications, for the results."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simsched.arithmetic import exp, log
from simsched.model import Application, ApplicationSource, JobSpec, LossCurve
from simsched.results import LossTable

_POINTS = 400


def loss_tables(jobs: Sequence[JobSpec], applications: ApplicationSource) -> dict[str, LossTable]:
    """Return a loss table for each of the jobs' applications with a loss curve."""
    found: dict[str, LossTable] = {}
    for job in {job.request.application: job for job in jobs}.values():
        app = applications.for_job(job.request, job.truth)
        if app.loss_curve is not None:
            found[app.name] = loss_table(app, app.loss_curve)
    return found


def loss_table(app: Application, curve: LossCurve) -> LossTable:
    """Return the losses of a full training, from 1 to 0, at points denser at the start."""
    epochs = exp(np.linspace(0, log(1.0 + app.epochs), _POINTS)) - 1.0
    losses = curve.at(epochs)
    ends = [0.0, *(app.epoch_end(epoch) for epoch in range(app.epochs))]
    progress = np.interp(epochs, np.arange(app.epochs + 1.0), ends)
    normalised = (losses - losses[-1]) / (losses[0] - losses[-1])
    return LossTable(tuple(progress.tolist()), tuple(normalised.tolist()))
