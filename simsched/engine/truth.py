"""The losses that a job will report, which only the engine knows."""

from __future__ import annotations

from bisect import bisect_right
from math import ceil

import numpy as np

from simsched.arithmetic import exp
from simsched.model import Application
from simsched.model.application import LossCurve
from simsched.policy.signals import LossReports

#: Jobs report losses at the start, after each epoch, and within epochs to reach this many reports.
LEAST_REPORTS = 100


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
