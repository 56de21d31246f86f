"""Signal providers: one function of the engine's state for each of `simsched.policy.signals`."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from simsched.agent import GoodputReport, Prior, no_goodput, offline_priors
from simsched.engine.clock import Clock
from simsched.engine.errors import EngineError
from simsched.engine.options import stream
from simsched.engine.sharing import TruePairs
from simsched.engine.state import JobState
from simsched.engine.truth import LossReporter, TrueRemainingWork, true_rates
from simsched.errors import InputError
from simsched.model import (
    PLANNED,
    ApplicationSource,
    BatchRegimes,
    Cluster,
    JobSpec,
    Outage,
    Site,
    StepTime,
    TabulatedJob,
    facts_of,
)
from simsched.model.plans import LargeModel
from simsched.policy import FileSignal, JobSignal, JobView, LossReports, PairSpeeds, Signal, Speed, ViewSignal, signals


class OfflineProfiles:
    """Profiles each application once on every GPU type of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[str, Mapping[str, Prior]] = {}

    def of(self, job: JobState) -> Mapping[str, Prior]:
        """Return the profiles of a job's application, by GPU type."""
        name = job.app.name
        if name not in self._known:
            self._known[name] = MappingProxyType(offline_priors(job.app, self._cluster))
        return self._known[name]


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
    return None if job.losses is None else job.losses.reports(job.live_progress)


def step_times(job: JobState) -> Callable[[Site, int], StepTime]:
    """Return the step time model of a job."""
    return job.app.step_time


def remaining_work(job: JobState) -> TrueRemainingWork:
    """Return the oracle of a job's remaining work."""
    return TrueRemainingWork(job, job.live_progress)


class TrueSteps:
    """The true steps of a tabulated job."""

    def __init__(self, job: JobState, app: TabulatedJob) -> None:
        self._job = job
        self._app = app
        self.total = app.total_steps
        self.regimes: BatchRegimes | None = app.regimes

    @property
    def done(self) -> float:
        """Steps done by now."""
        return self._job.live_progress

    @property
    def profile(self) -> tuple[int, ...]:
        """The batch size of each epoch of the profile."""
        return self._app.profile

    def profile_s(self, gpu_type: str) -> tuple[float, ...]:
        """Return the seconds of each profiled epoch on a GPU type."""
        return self._app.profile_s(gpu_type)

    def rate(self, gpu_type: str, batch_size: int = 0, num_gpus: int = 0) -> float:
        """Return steps per second at a batch size and number of GPUs."""
        return self._app.rate(gpu_type, batch_size, num_gpus)


def steps(job: JobState) -> TrueSteps | None:
    """Return the oracle of a job's steps, None without a table of rates."""
    return TrueSteps(job, job.app) if isinstance(job.app, TabulatedJob) else None


def recorded_duration(job: JobState) -> float:
    """Return the duration recorded in the trace, in seconds."""
    return job.truth.duration_s


def stage_times(job: JobState) -> tuple[float, ...]:
    """Return the time per iteration on each resource, from the application's profile."""
    return job.app.stages_s


def plans(job: JobState) -> LargeModel | None:
    """Return the step times of a job's plans, None if it has none."""
    return job.facts.plans


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
        signals.STEP_TIMES: step_times,
        signals.REMAINING_WORK: remaining_work,
        signals.TRUE_RATES: true_rates,
        signals.STEPS: steps,
        signals.RECORDED_DURATION: recorded_duration,
        signals.STAGE_TIMES: stage_times,
        signals.GPU_BUSY: gpu_busy,
        signals.PLANS: plans,
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
        outages: Sequence[Outage],
        seed: int,
    ) -> None:
        """Grant `wanted`; raises `EngineError` for signals without a provider. `seed` is the run's."""
        self._seed = seed
        of_jobs = {**_OF_JOBS, signals.OFFLINE_PROFILES: OfflineProfiles(cluster).of}
        of_views: dict[ViewSignal[Any], object] = {
            signals.SERVICE_HISTORY: service_history,
            signals.PAIR_SPEEDS: pairs,
            signals.NEXT_ARRIVAL: next_arrival,
            signals.COMING_JOBS: coming_jobs,
            signals.PLANNED_OUTAGES: tuple(one for one in outages if one.kind == PLANNED),
        }
        self.files = frozenset(signal for signal in wanted if isinstance(signal, FileSignal))
        made_up = sorted(str(signal) for signal in set(wanted) - of_jobs.keys() - of_views.keys() - self.files)
        if made_up:
            raise EngineError(f"the policy needs signals that nothing provides: {', '.join(made_up)}")
        self.job = {signal: of_jobs[signal] for signal in wanted if isinstance(signal, JobSignal)}
        self.view = {signal: of_views[signal] for signal in wanted if isinstance(signal, ViewSignal)}
        self.speeds, self._losses = signals.MEASURED_SPEEDS in self.job, signals.LOSSES in self.job

    @classmethod
    def at_first(cls, wanted: Collection[Signal], cluster: Cluster) -> Granted:
        """Grant the signals of a fresh cluster without shared GPUs."""
        return cls(wanted, cluster, (), TruePairs(None, {}), lambda: math.inf, lambda: (), (), 0)

    def prepare(self, job: JobState) -> None:
        """Make a submitted job keep its measurements and report its losses if a signal reads them."""
        if self.speeds:
            job.speeds = {}
        curve = job.app.loss_curve if self._losses else None
        if curve is not None:
            job.losses = LossReporter(job.app, curve, stream(self._seed, f"losses/{job.request.id}"))
