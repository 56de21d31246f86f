"""Shockwave's own plan inside the independent replay: what to run in each round, planned anew after a change."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np

from simsched.programs.regime_forecast import epochs_within, remaining_of
from simsched.programs.shockwave import (
    DEFAULTS,
    PlanJobs,
    PlanOptions,
    arrange,
    averaged_fair_s,
    backfilled,
    plan,
    uniform_share,
)
from tests.validation.oracles.shockwave_replay import SAMPLES, Artifact, Job

#: What a job that outlives its profile still has to gain: after a change of batch it must run once more to end.
LEAST = 1e-3


class Planner:
    """Chooses the jobs of a round; plans on an arrival, a completion, a change of batch, or after so many rounds."""

    def __init__(self, gpus: int = 32, options: PlanOptions = DEFAULTS) -> None:
        self.gpus, self.options = gpus, options
        self.plans = self.unproven = self.fair_plans = 0
        self._fair_s: dict[int, float] = {}
        self._known: list[tuple[int, int]] = []
        self._rounds: list[Any] = []
        self._used = 0

    def __call__(self, now: float, jobs: list[Job], artifact: Artifact, _running: Any) -> list[Job]:
        if not jobs:
            return []
        known = [(job.id, job.batch) for job in jobs]
        if known != self._known or self._used >= self.options.replan_rounds or not self._rounds:
            self._jobs = self._described(now, jobs, artifact)
            made = plan(self._jobs, self.gpus, self.options)
            self.plans, self.unproven = self.plans + 1, self.unproven + (not made.optimal)
            self.fair_plans += made.fair
            self._rounds = list(arrange(made, self._jobs, self.gpus, self.options))
            self._known, self._used = known, 0
        self._used += 1
        chosen = backfilled(self._rounds.pop(0), self._jobs, self.gpus)
        return [job for job, runs in zip(jobs, chosen, strict=True) if runs]

    def _described(self, now: float, jobs: list[Job], artifact: Artifact) -> PlanJobs:
        rows = [self._row(now, job, artifact, uniform_share(len(jobs), self.gpus)) for job in jobs]
        progress, gain, remaining, age, fair = np.array(rows).T
        return PlanJobs(np.array([job.gpus for job in jobs]), progress, gain, remaining, age, fair)

    def _row(self, now: float, job: Job, artifact: Artifact, share: float) -> tuple[float, ...]:
        epochs = len(job.profile)
        done = min(job.done / ceil(SAMPLES[job.model] / job.batch), epochs)
        remaining = remaining_of(job.profile, done) or (job.total - job.done) / artifact.rate(job, job.batch)
        remaining = max(remaining, 1.0)
        reach_s = min(self.options.rounds * self.options.round_s, remaining)
        ahead = epochs_within(job.profile, done, reach_s)
        gain = max(ahead / epochs / (reach_s / self.options.round_s), LEAST)
        before = self._fair_s.get(job.id)
        self._fair_s[job.id] = averaged_fair_s(before, sum(job.profile), share, self.options.momentum)
        return min(done / epochs, 1 - LEAST), gain, remaining, now - job.arrival, self._fair_s[job.id]
