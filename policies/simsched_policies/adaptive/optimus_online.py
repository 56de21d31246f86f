"""Optimus as published: predicts the remaining epochs of a job from its losses, and its speed from measurements.

Idea: Peng et al., "Optimus: An efficient dynamic resource scheduler for deep learning clusters", EuroSys'18. Losses,
normalised by the first and cleaned of outliers, follow 1/(b0 k + b1) + b2 (section 3.1); a job has converged when its
loss falls by less than a threshold in several epochs in a row. A step of a batch of M examples on w workers takes M/w
t0 + t1 + t3 w seconds (section 3.2; with all-reduce the terms for parameter servers drop out). Both are refitted by
non-negative least squares at every report and measurement. Each job gets one worker; each further worker goes to the
job whose completion it brings forward most, the savings of young jobs weighted by 0.95 (section 4.1).

Published: decisions every 10 minutes, short runs of each job in five configurations to initialise its speed model,
thresholds of 1 to 5 %. Our choices: a threshold of 1 % over 3 epochs; the five are 1, 2, 4, 8 and 16 workers, as far as
a job can use them.

Deviations: there are no parameter servers, hence no dominant resource to divide by and no servers to place; the five
runs are read from the application's profile (signal `offline_profiles`) and cost nothing. k counts epochs. Before its
fourth report a job is expected to end at epoch `prior_epochs`; a job that outlives its prediction, at the next epoch.
Jobs end after the epochs of their application, regardless of any threshold that users would set. Placement is that of
`optimus`.

`convergence: oracle` and `speed: oracle` read the truth, as `optimus` does; with both it decides as `optimus`.
`convergence_error` and `speed_error` perturb the estimates by that share, up for half of the jobs and down for the
others, as in the paper's study of sensitivity (section 6).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import ClassVar, Literal

import numpy as np

from simsched.agent import Agent
from simsched.model import ApplicationFacts, BatchLimits, JobRequest
from simsched.model.batch import batch_for_target
from simsched.model.placement import consolidated_shape
from simsched.policy import REMAINING_WORK, Decision, JobView, Signal, Traits, View
from simsched.policy.signals import LOSSES, MEASURED_SPEEDS, OFFLINE_PROFILES, STEP_TIMES, LossReports
from simsched.toolkit import TypePool, available_gpus, usable_gpus
from simsched.toolkit.elastic import fixed_batch, refuse_without_losses
from simsched.toolkit.loss_curves import FEWEST, fit_convergence
from simsched.toolkit.speed_model import DAMPING, SpeedModels, SpeedSample, allocate_by_time, samples_of
from simsched_policies.adaptive.optimus import Optimus

#: Reports below which a job is young.
_YOUNG = 10
#: The file in which it leaves what it predicted.
PREDICTIONS_FILE = "predictions.csv"


@dataclass
class OptimusOnline(Optimus):
    """Gives every job one GPU, then each further GPU to the job with the largest predicted gain in remaining time.

    A job has converged when its loss falls by less than `threshold` (relative) in each of `calm_epochs` epochs in a
    row. Its speed is profiled beforehand on `initial_samples` numbers of workers.
    """

    name: ClassVar[str] = "optimus-online"
    traits: ClassVar[Traits] = replace(Optimus.traits, needs={LOSSES, MEASURED_SPEEDS})

    interval_s: int = 600
    convergence: Literal["fitted", "oracle"] = "fitted"
    speed: Literal["fitted", "oracle"] = "fitted"
    threshold: float = 0.01
    calm_epochs: int = 3
    prior_epochs: float = 50.0
    initial_samples: int = 5
    damping: float = DAMPING
    convergence_error: float = 0.0
    speed_error: float = 0.0
    _ends: dict[str, tuple[int, float]] = field(default_factory=dict, init=False, repr=False)
    _models: SpeedModels = field(default_factory=SpeedModels, init=False, repr=False)
    _errors: dict[str, tuple[float, float]] = field(default_factory=dict, init=False, repr=False)
    _told: dict[str, tuple[float, int]] = field(default_factory=dict, init=False, repr=False)
    _log: list[str] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        """Check the thresholds and errors."""
        if self.threshold < 0 or self.calm_epochs < 1 or self.prior_epochs <= 0 or self.initial_samples < 0:
            raise ValueError("calm_epochs and prior_epochs must be above 0, threshold and initial_samples not below it")
        if not (0 <= self.convergence_error < 1 and 0 <= self.speed_error < 1):
            raise ValueError("convergence_error and speed_error must lie in [0, 1)")

    @property
    def signals(self) -> frozenset[Signal]:
        """Return the signals that the chosen estimates need."""
        found = set(self.traits.needs)
        found |= {REMAINING_WORK} if self.convergence == "oracle" else set()
        if self.speed == "oracle":
            return frozenset(found | {STEP_TIMES})
        return frozenset(found | {OFFLINE_PROFILES} if self.initial_samples else found)

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        """Keep the batch size submitted; refuse jobs that report no losses if losses are needed."""
        if self.convergence == "fitted":
            refuse_without_losses(self.name, request, facts)
        return super().agent(request, facts)

    def artifacts(self) -> Mapping[str, str]:
        """Return the predictions, a row for each job at each decision that changed it.

        Columns: `time_s, job_id, progress, end` (progress by now, and predicted at completion), `gpus, step_s` (the
        GPUs given, and the predicted seconds of a step on them).
        """
        if not self._log:
            return {}
        return {PREDICTIONS_FILE: "time_s,job_id,progress,end,gpus,step_s\n" + "".join(self._log)}

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Estimate, count GPUs within each GPU type, then place the jobs whose count changed."""
        for job_id in view.finished:
            for known in (self._ends, self._errors, self._told):
                known.pop(job_id, None)
        self._models.forget(view.finished)
        if self.convergence_error or self.speed_error:
            for job in view.arrived:
                up = rng.choice((-1.0, 1.0), 2)
                self._errors[job.id] = (1 + self.convergence_error * up[0], 1 + self.speed_error * up[1])
        return super().decide(view, rng)

    def _count(self, pool: TypePool) -> dict[str, int]:
        gpus = available_gpus(pool.view)
        jobs = list(pool.jobs.values())
        remaining = [self._remaining_iterations(job, fixed_batch(job)) for job in jobs]
        seconds: list[Callable[[int], float]] = [
            partial(self._step_s, job, pool, usable_gpus(job, gpus + 1)) for job in jobs
        ]
        young = [self._is_young(job) for job in jobs]
        counts = allocate_by_time(remaining, seconds, gpus, young, self.damping)
        if self.convergence == "fitted":
            for job, count, step_s in zip(jobs, counts, seconds, strict=True):
                self._note(job, count, step_s(count) if count else 0.0, pool.view.now_s)
        return dict(zip(pool.jobs, counts, strict=True))

    def _step_s(self, job: JobView, pool: TypePool, most: int, gpus: int) -> float:
        """Return the seconds of a step on this many GPUs of the pool, infinite on more than the job can use."""
        limits = job.limits
        assert limits is not None  # `agent` refuses jobs without
        return self._step_time(job, limits, fixed_batch(job), gpus, pool) if gpus <= most else inf

    def _step_time(self, job: JobView, limits: BatchLimits, batch: int, gpus: int, pool: TypePool) -> float:
        error = self._errors.get(job.id, (1.0, 1.0))[1]
        if self.speed == "oracle":
            return super()._step_time(job, limits, batch, gpus, pool) / error
        own = {site: speed for site, speed in job[MEASURED_SPEEDS].items() if site.gpu_type == pool.gpu_type}
        samples = {sample.workers: sample for sample in self._initial(job, limits, batch, pool)}
        samples |= {sample.workers: sample for sample in samples_of(own)}
        if not samples:  # without samples, no second GPU saves anything
            return 1.0
        ordered = tuple(samples[workers] for workers in sorted(samples))
        return self._models.of(job.id, ordered, batch).step_s(gpus) / error

    def _initial(self, job: JobView, limits: BatchLimits, batch: int, pool: TypePool) -> list[SpeedSample]:
        """Return samples on 1, 2, 4 ... workers, as the profile of the application has them."""
        if not self.initial_samples:
            return []
        prior = job[OFFLINE_PROFILES].get(pool.gpu_type)
        if prior is None:
            return []
        samples = []
        for workers in (1 << power for power in range(self.initial_samples)):
            if workers > usable_gpus(job, workers):
                break
            split = batch_for_target(limits, batch, workers)
            nodes = len(consolidated_shape(workers, pool.gpus_per_node))
            step_s = float(prior.params.iteration_time_s(nodes, workers, split.local_bsz, split.accum_steps))
            samples.append(SpeedSample(workers, 1 / step_s))
        return samples

    def _remaining_iterations(self, job: JobView, batch: int) -> float:
        error = self._errors.get(job.id, (1.0, 1.0))[0]
        if self.convergence == "oracle":
            return super()._remaining_iterations(job, batch) * error
        reports = _reports(job)
        left = max(self._end(job.id, reports) - reports.done, 1.0)
        measured = [speed.rate * speed.iteration_s for speed in job[MEASURED_SPEEDS].values() if speed.iteration_s]
        # Progress counts iterations at the initial batch size. What one iteration is worth grows during training.
        worth = max(measured) if measured else 1.0
        return left * reports.epoch_progress / worth * error

    def _end(self, job_id: str, reports: LossReports) -> float:
        """Return the epoch at which a job is predicted to have converged."""
        count, end = self._ends.get(job_id, (0, self.prior_epochs))
        if len(reports.losses) >= FEWEST and count != len(reports.losses):
            curve = fit_convergence(reports.epochs, reports.losses)
            end = float(curve.last_step(self.threshold, 1, self.calm_epochs, most_epochs=10_000))
            self._ends[job_id] = (len(reports.losses), end)
        return end

    def _is_young(self, job: JobView) -> bool:
        return self.convergence == "fitted" and len(_reports(job).losses) < _YOUNG

    def _note(self, job: JobView, gpus: int, step_s: float, now_s: float) -> None:
        reports = _reports(job)
        end = max(self._end(job.id, reports), reports.done)
        if self._told.get(job.id) != (end, gpus):
            self._told[job.id] = (end, gpus)
            at, until = reports.done * reports.epoch_progress, end * reports.epoch_progress
            self._log.append(f"{now_s:g},{job.id},{at:.9g},{until:.9g},{gpus},{step_s:.9g}\n")


def _reports(job: JobView) -> LossReports:
    reports = job[LOSSES]
    assert reports is not None  # `agent` refuses jobs without
    return reports
