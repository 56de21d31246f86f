"""Signal providers: one function of the engine's state for each of `simsched.policy.signals`."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from types import MappingProxyType
from typing import Any

import numpy as np

from simsched.agent import GoodputReport, Prior, no_goodput, offline_priors
from simsched.arithmetic import exp
from simsched.engine.clock import Clock
from simsched.engine.errors import EngineError
from simsched.engine.options import FailureOptions, stream
from simsched.engine.sharing import TruePairs
from simsched.engine.state import JobState
from simsched.errors import InputError
from simsched.model import Application, ApplicationSource, BatchChoice, Cluster, JobSpec, Site
from simsched.model.application import NO_BATCH, LossCurve, facts_of
from simsched.model.batch import batch_for_target
from simsched.model.outages import PLANNED, Market, Offer
from simsched.model.regimes import BatchRegimes
from simsched.model.tabulated import TabulatedJob
from simsched.model.topology import tightest_site
from simsched.policy import JobView, Signal, signals
from simsched.policy.signals import FileSignal, JobSignal, LossReports, PairSpeeds, Speed, ViewSignal

#: Jobs report losses at the start, after each epoch, and within epochs to reach this many reports.
LEAST_REPORTS = 100


class LossReporter:
    """The loss reports of one job, drawn at submission and shown as it progresses."""

    def __init__(self, app: Application, curve: LossCurve, rng: np.random.Generator) -> None:
        """Draw the reports: the curve's losses, each times exp(noise x normal)."""
        each = math.ceil(LEAST_REPORTS / app.epochs)
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


def offline_profiles(kept: dict[str, Mapping[str, Prior]], job: JobState) -> Mapping[str, Prior]:
    """Return the profiles of a job's application by GPU type; `kept` has those of applications profiled before."""
    name = job.app.name
    if name not in kept:
        kept[name] = MappingProxyType(offline_priors(job.app, job.cluster))
    return kept[name]


def goodput(job: JobState) -> GoodputReport:
    """Return the goodput model of a job's agent; raises `InputError` if the agent fits none."""
    report = job.agent.goodput
    if report is None:
        raise InputError(no_goodput(job.request.id))
    return report


def measured_speeds(job: JobState) -> Mapping[Site, Speed]:
    """Return a job's measured speeds by site."""
    return MappingProxyType(job.speeds if job.speeds is not None else {})


def losses(job: JobState) -> LossReports | None:
    """Return a job's reported losses, None if its application has no loss curve."""
    return None if job.losses is None else job.losses(job.live_progress)


class TrueRemainingWork:
    """The remaining work of a job at one instant."""

    def __init__(self, job: JobState, progress: float) -> None:
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


def true_rates(job: JobState) -> Mapping[str, float]:
    """Return progress per second in the current epoch by GPU type, on the requested GPUs, consolidated; else 0."""
    app = job.app
    rates = {}
    for gpu_type in job.cluster.gpus_by_type:
        known = app.gpu_types is None or gpu_type in app.gpu_types
        fits = known and job.request.num_gpus <= job.cluster.gpus_by_type[gpu_type]
        rates[gpu_type] = app.run(*_as_asked(job, gpu_type), job.epoch).rate if fits else 0.0
    return MappingProxyType(rates)


def _as_asked(job: JobState, gpu_type: str, gpus: int | None = None) -> tuple[Site, BatchChoice]:
    """Return a consolidated site of `gpus` (default: as requested) and the requested batch."""
    app, request, batch = job.app, job.request, NO_BATCH
    gpus = gpus or request.num_gpus
    if app.limits is not None:
        target = request.batch_size or app.fixed_batch_size or app.limits.init_batch_size
        batch = batch_for_target(app.limits, target, gpus)
    return tightest_site(job.cluster, gpus, gpu_type), batch


def remaining_work(job: JobState) -> TrueRemainingWork:
    """Return the oracle of a job's remaining work."""
    return TrueRemainingWork(job, job.live_progress)


class TrueSteps:
    """The true steps of a tabulated job, read when they are asked for."""

    def __init__(self, job: JobState, app: TabulatedJob) -> None:
        self._job, self._app = job, app
        self.total = app.total_steps
        self.regimes: BatchRegimes | None = app.regimes
        self.rate, self.profile_s = app.rate, app.profile_s

    @property
    def done(self) -> float:
        """Steps done by now."""
        return self._job.live_progress

    @property
    def profile(self) -> tuple[int, ...]:
        """The batch size of each epoch of the profile."""
        return self._app.profile


def steps(job: JobState) -> TrueSteps | None:
    """Return the oracle of a job's steps, None without a table of rates."""
    return TrueSteps(job, job.app) if isinstance(job.app, TabulatedJob) else None


def gpu_busy(job: JobState) -> float | None:
    """Return the GPU utilisation of a job's profile, None without one."""
    profile = job.request.profile
    return None if profile is None else profile.stages_s[1] / profile.iteration_s


#: The provider of each job signal.
_OF_JOBS: Mapping[JobSignal[Any], Callable[[JobState], object]] = MappingProxyType(
    {
        signals.GOODPUT: goodput,
        signals.MEASURED_SPEEDS: measured_speeds,
        signals.LOSSES: losses,
        signals.STEP_TIMES: attrgetter("app.step_time"),
        signals.REMAINING_WORK: remaining_work,
        signals.TRUE_RATES: true_rates,
        signals.STEPS: steps,
        signals.RECORDED_DURATION: attrgetter("truth.duration_s"),
        signals.STAGE_TIMES: attrgetter("app.stages_s"),
        signals.GPU_BUSY: gpu_busy,
        signals.PLANS: attrgetter("facts.plans"),
    }
)


def views_at_submission(
    jobs: Iterable[JobSpec], cluster: Cluster, applications: ApplicationSource, wanted: Collection[Signal]
) -> list[JobView]:
    """Return the views of jobs at submission, with the signals of `wanted` known by then."""
    clock, views = Clock(tick_s=0), []
    granted = Granted.at_first(wanted, cluster).job
    for spec in jobs:
        app = applications.for_job(spec.request, spec.truth)
        state = JobState(spec.request, spec.truth, app, facts_of(app, spec.shape), clock, cluster)
        views.append(JobView(spec.request, state, granted))
    return views


def _offers(market: Market, clock: Clock) -> Sequence[Offer]:
    return market.offers(clock.now_s)


class Granted:
    """The signals granted to a policy, each with its provider."""

    def __init__(
        self,
        wanted: Collection[Signal],
        cluster: Cluster,
        service_history: Sequence[float],
        pairs: PairSpeeds,
        next_arrival: Callable[[], float],
        coming_jobs: Callable[[], Sequence[JobView]],
        failures: FailureOptions,
        clock: Clock,
        seed: int,
    ) -> None:
        """Grant `wanted`; raises `EngineError` for signals without a provider. `seed` is the run's."""
        self._seed = seed
        market = failures.market or Market.on_demand(cluster)
        profiles: dict[str, Mapping[str, Prior]] = {}
        of_jobs: dict[JobSignal[Any], Callable[[JobState], object]] = {
            **_OF_JOBS, signals.OFFLINE_PROFILES: partial(offline_profiles, profiles)
        }  # fmt: skip
        of_views: dict[ViewSignal[Any], object] = {
            signals.SERVICE_HISTORY: service_history,
            signals.PAIR_SPEEDS: pairs,
            signals.NEXT_ARRIVAL: next_arrival,
            signals.COMING_JOBS: coming_jobs,
            signals.PLANNED_OUTAGES: tuple(one for one in failures.outages if one.kind == PLANNED),
            signals.OFFERS: partial(_offers, market, clock),
            signals.MARKET: market,
        }
        unprovided = set(wanted) - of_jobs.keys() - of_views.keys()
        made_up = sorted(str(signal) for signal in unprovided if not isinstance(signal, FileSignal))
        if made_up:
            raise EngineError(f"the policy needs signals that nothing provides: {', '.join(made_up)}")
        self.job = {signal: of_jobs[signal] for signal in wanted if isinstance(signal, JobSignal)}
        self.view = {signal: of_views[signal] for signal in wanted if isinstance(signal, ViewSignal)}
        self.speeds, self._losses = signals.MEASURED_SPEEDS in self.job, signals.LOSSES in self.job

    @classmethod
    def at_first(cls, wanted: Collection[Signal], cluster: Cluster) -> Granted:
        """Grant the signals of a fresh cluster without shared GPUs."""
        return cls(wanted, cluster, (), TruePairs(None, {}), lambda: math.inf, tuple, FailureOptions(), Clock(), 0)

    def prepare(self, job: JobState) -> None:
        """Make a submitted job keep its measurements and report its losses if a signal reads them."""
        if self.speeds:
            job.speeds = {}
        curve = job.app.loss_curve if self._losses else None
        if curve is not None:
            job.losses = LossReporter(job.app, curve, stream(self._seed, f"losses/{job.request.id}")).reports
