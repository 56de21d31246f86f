"""Says of a cell's applications how their losses fall with progress, for the results."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simsched.model import Application, ApplicationSource, JobSpec, LossCurve
from simsched.results import LossTable

_POINTS = 400


def loss_tables(jobs: Sequence[JobSpec], applications: ApplicationSource) -> dict[str, LossTable]:
    """Return the normalised loss over progress of each application of some jobs that has a loss curve."""
    found: dict[str, LossTable] = {}
    for job in {job.request.application: job for job in jobs}.values():
        app = applications.for_job(job.request, job.truth)
        if app.loss_curve is not None:
            found[app.name] = loss_table(app, app.loss_curve)
    return found


def loss_table(app: Application, curve: LossCurve) -> LossTable:
    """Return the losses of a whole training, 1 before it and 0 at its end, at points that are denser at the begin."""
    epochs = np.expm1(np.linspace(0, np.log1p(app.epochs), _POINTS))
    losses = curve.at(epochs)
    ends = [0.0, *(app.epoch_end(epoch) for epoch in range(app.epochs))]
    progress = np.interp(epochs, np.arange(app.epochs + 1.0), ends)
    normalised = (losses - losses[-1]) / (losses[0] - losses[-1])
    return LossTable(tuple(progress.tolist()), tuple(normalised.tolist()))
