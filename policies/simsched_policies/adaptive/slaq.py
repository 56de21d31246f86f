"""SLAQ: GPUs go to the jobs whose loss they are predicted to reduce most in the next scheduling epoch.

Idea: quality-driven scheduling (Zhang, Stafman, Or and Freedman, "SLAQ: Quality-driven scheduling for distributed
machine learning", SoCC'17). Loss reductions are normalised by the largest one that the job has seen so far, which makes
jobs comparable. The loss of the next epoch is predicted by the closer of two families, sublinear 1/(a k^2 + b k + c) +
d and linear or superlinear mu^(k - b) + c, fitted with weights that favour recent losses exponentially. Every job gets
one unit; each further unit goes to the job whose predicted normalised reduction grows most. The time of an iteration is
inversely proportional to the number of units. For concave gains this is optimal among allocations that give every job a
unit. With fewer units than jobs, the jobs that gain most from one unit get one each, although fewer jobs with several
units may gain more.

Published: the two families, the greedy rule, epochs of about 3 s for Spark tasks on cores. Our choices: epochs of 60 s,
for GPUs; weights of 0.9 to the power of the age in reports, as the paper names no rate; "the largest reduction seen" is
that between two reports. Deviations: k counts the epochs trained, including fractions, since a deep-learning job may
report rarely. Until its fourth report a job is predicted to follow the first family with a = d = 0 and b = c = 1: half
of its loss in one epoch. With `speed: fitted` the time of an iteration is that of Optimus' model, fitted to the job's
measurements, with diminishing returns in speed too. GPUs from which no job is predicted to gain are shared evenly. A
change of placement is free in the paper and to this policy, though the engine charges for it. Batches stay as
submitted. With several GPU types it runs on each separately (`simsched.toolkit.type_pools`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Literal

import numpy as np

from simsched.agent import Agent, fixed_agent
from simsched.model import Allocation, ApplicationFacts, JobRequest
from simsched.policy import Decision, JobView, Policy, Traits, View
from simsched.policy.signals import LOSSES, MEASURED_SPEEDS, LossReports
from simsched.toolkit import TypePool, available_gpus, type_pools, usable_gpus
from simsched.toolkit.elastic import fixed_batch, place_counts, refuse_without_losses, share_evenly
from simsched.toolkit.loss_curves import FEWEST, Fit, allocate_by_gain, fit_slaq, normalised_gain
from simsched.toolkit.speed_model import SpeedModels, samples_of

#: Reports that a fit uses; with the default weights earlier ones weigh less than 5 % of the last.
_WINDOW = 30
#: The predicted loss of a job with too few reports: 1/(epochs + 1).
_UNKNOWN = Fit("sublinear", (0.0, 1.0, 1.0, 0.0), 0.0)


#: Progress per second by the number of GPUs.
Rate = Callable[[int], float]


@dataclass
class Slaq(Policy):
    """Gives every job a GPU, then each further one to the largest predicted reduction of normalised loss.

    It decides every `interval_s`; `decay` is the weight of a report relative to that of the next. `speed` selects how
    speed grows with GPUs: `linear` as published, or `fitted` to what the job has measured.
    """

    name: ClassVar[str] = "slaq"
    traits: ClassVar[Traits] = Traits(interval="interval_s", needs={LOSSES, MEASURED_SPEEDS}, rigid=False)

    interval_s: int = 60
    decay: float = 0.9
    speed: Literal["linear", "fitted"] = "linear"
    _fits: dict[str, tuple[int, Fit]] = field(default_factory=dict, init=False, repr=False)
    _models: SpeedModels = field(default_factory=SpeedModels, init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse weights that do not decay."""
        if not 0 < self.decay <= 1:
            raise ValueError(f"decay must lie in (0, 1], not {self.decay}")

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        """Keep the batch size submitted; refuse jobs that report no losses."""
        refuse_without_losses(self.name, request, facts)
        return fixed_agent(request, facts)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Count GPUs within each GPU type, then place the jobs whose count changed."""
        for job_id in view.finished:
            self._fits.pop(job_id, None)
        self._models.forget(view.finished)
        allocations: dict[str, Allocation] = {}
        for pool in type_pools(view):
            allocations |= place_counts(self._count(pool), pool.view)
        return Decision(allocations)

    def _count(self, pool: TypePool) -> dict[str, int]:
        gpus = available_gpus(pool.view)
        rates = [self._rates(job, pool) for job in pool.jobs.values()]
        most = [_fastest(rate, usable_gpus(job, gpus)) for job, rate in zip(pool.jobs.values(), rates, strict=True)]
        known = zip(pool.jobs.values(), rates, most, strict=True)
        gains = [self._gains(job, rate, usable) for job, rate, usable in known]
        counts = allocate_by_gain(gains, gpus)
        return dict(zip(pool.jobs, share_evenly(counts, most, gpus - sum(counts)), strict=True))

    def _gains(self, job: JobView, rate: Rate | None, most: int) -> Callable[[int], float]:
        """Return the predicted normalised fall of the loss in the next epoch, by the number of GPUs."""
        reports = job[LOSSES]
        assert reports is not None  # `agent` refuses jobs without
        if rate is None:  # it has never run: its first GPU comes before any other job's second
            return lambda gpus: float(min(gpus, 1))
        known = len(reports.losses) >= FEWEST
        fit = self._fit(job.id, reports) if known else _UNKNOWN
        return partial(_gain, fit, reports, _largest_fall(reports) if known else 1.0, rate, self.interval_s, most)

    def _fit(self, job_id: str, reports: LossReports) -> Fit:
        """Return the fit to the job's reports, refitted after new ones."""
        count, fit = self._fits.get(job_id, (0, _UNKNOWN))
        if count != len(reports.losses):
            fit = fit_slaq(reports.epochs[-_WINDOW:], reports.losses[-_WINDOW:], self.decay)
            self._fits[job_id] = (len(reports.losses), fit)
        return fit

    def _rates(self, job: JobView, pool: TypePool) -> Rate | None:
        """Return progress per second by GPUs, None for a job that has not run on GPUs of the pool's type."""
        own = {site: speed for site, speed in job[MEASURED_SPEEDS].items() if site.gpu_type == pool.gpu_type}
        if not own:
            return None
        if self.speed == "fitted":
            model = self._models.of(job.id, samples_of(own), fixed_batch(job))
            gain = max(speed.rate * speed.iteration_s for speed in own.values())
            return lambda gpus: gain * model.steps_per_s(gpus)
        each = max(speed.rate / site.gpus for site, speed in own.items())
        return lambda gpus: each * gpus


def _gain(fit: Fit, reports: LossReports, largest: float, rate: Rate, interval_s: float, most: int, gpus: int) -> float:
    if not gpus:
        return 0.0
    epochs = interval_s * rate(min(gpus, most)) / reports.epoch_progress
    return normalised_gain(fit, reports.done, reports.done + epochs, largest)


def _fastest(rate: Rate | None, most: int) -> int:
    """Return the GPUs, up to `most`, beyond which a job is no faster; `most` if its rate is unknown."""
    if rate is None:
        return most
    return next((gpus for gpus in range(1, most) if rate(gpus + 1) <= rate(gpus)), most)


def _largest_fall(reports: LossReports) -> float:
    """Return the largest reduction between two reports, 1 if the loss has never fallen."""
    falls = -np.diff(reports.losses)
    return float(falls.max()) if falls.max() > 0 else 1.0
