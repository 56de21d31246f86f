"""The agent of a job whose batch size follows its goodput (Pollux, OSDI'21, sections 4.1 and 4.3)."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from simsched.agent.agent import Agent, GoodputReport, Measurement, TypeReport
from simsched.agent.fit import Configuration, Fits, Profile, fit
from simsched.arithmetic import exp, log
from simsched.errors import input_error
from simsched.model import Application, ApplicationFacts, BatchChoice, BatchLimits, Cluster, JobRequest, Site
from simsched.model.application import GradientStats, StepTime
from simsched.model.batch import batch_for_target, clip_to_max
from simsched.model.goodput import CandidateBatches, GoodputModel
from simsched.model.placement import Shape
from simsched.model.throughput import ThroughputParams


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


@dataclass(frozen=True)
class Prior:
    """What is known of a job before its first run: parameters fitted offline or to earlier runs.

    They apply until the first measurement, and then as the starting point of the fit. `profile` holds the step times
    behind them, if available: the job's own measurements then join and replace them in every fit, and the job does not
    forget what it has not yet tried. `max_profiled_gpus` is the largest number of GPUs on which the speed is known.
    """

    params: ThroughputParams
    gradient: GradientStats
    profile: Profile = field(default_factory=dict)
    max_profiled_gpus: int = 0


#: Returns what a job can borrow from others, if anything, after its first measurement on a GPU type.
PriorLookup = Callable[[Measurement], Prior | None]


class _OnType:
    """What is known of a job's speed on one GPU type."""

    def __init__(self, prior: Prior | None) -> None:
        self.prior = prior
        self.profile: dict[Configuration, StepTime] = {}
        self.params: ThroughputParams | None = prior.params if prior else None
        self.max_gpus = prior.max_profiled_gpus if prior else 0
        #: Measurements across levels above the nodes, and the model with the parameters for these.
        self.beyond: dict[Configuration, StepTime] = {}
        self.beyond_params: ThroughputParams | None = None


class GoodputAgent:
    """Profiles a job, fits its throughput on each GPU type, and picks the batch with the largest goodput.

    Throughput is refitted whenever a configuration is seen for the first time; the agent uses the last observed
    gradient statistics, which do not depend on the GPU type. A job with only one possible total batch size keeps it.
    """

    def __init__(
        self,
        limits: BatchLimits,
        *,
        fixed_batch_size: int | None = None,
        candidates: CandidateBatches | None = None,
        fits: Fits | None = None,
        priors: Mapping[str, Prior] | None = None,
        lookup: PriorLookup | None = None,
        error: MeasurementError | None = None,
        bootstrap: bool = False,
    ) -> None:
        """Start without measurements; `candidates` may be shared by agents with the same limits, `fits` by any.

        `priors` hold what is already known, by GPU type. On a type without one, the agent calls `lookup` at the first
        measurement. `error` distorts what the job measures. With `bootstrap` a type on which only single GPUs were
        measured borrows the model of another type, with times scaled by the ratio of the single-GPU speeds (as Sia
        does, SOSP'23).
        """
        self.limits = limits
        self._bootstrap = bootstrap
        self.fixed_batch_size = fixed_batch_size
        self._candidates = candidates or CandidateBatches(limits)
        self._fits = fits or Fits()
        self._lookup = lookup
        self._error = error
        self._types: dict[str, _OnType] = {}
        self._noise: dict[int, GradientStats] = {}
        self._gradient: GradientStats | None = None
        self._report = GoodputReport()
        self._chosen: dict[tuple[str, bool, bool, int], BatchChoice] = {}
        self._stale = False
        if priors:
            self.start_from(priors)

    @property
    def stale(self) -> bool:
        """Return whether the model has changed since a batch was last chosen."""
        return self._stale

    @property
    def goodput(self) -> GoodputReport:
        """Return the current models."""
        return self._report

    @property
    def profiles(self) -> Mapping[str, Profile]:
        """Return the step times that the job itself has measured, by GPU type."""
        return {gpu_type: on.profile for gpu_type, on in self._types.items() if on.profile}

    @property
    def beyond(self) -> Mapping[str, ThroughputParams]:
        """Return the models for placements across levels above the nodes, by GPU type, if any was measured."""
        return {name: on.beyond_params for name, on in self._types.items() if on.beyond_params is not None}

    @property
    def noise(self) -> Mapping[int, GradientStats]:
        """Return the gradient statistics that it last observed in each epoch."""
        return self._noise

    def start_from(self, priors: Mapping[str, Prior]) -> None:
        """Adopt what is known of the application by GPU type; a job keeps what it has measured itself."""
        if self._noise or not priors:
            return
        self._types = {gpu_type: _OnType(priors[gpu_type]) for gpu_type in sorted(priors)}
        self._gradient = next(iter(self._types.values())).prior.gradient  # type: ignore[union-attr]
        self._publish()

    def choose(self, site: Site, epoch: int) -> BatchChoice:
        """Return the batch with the largest goodput; before the first fit, the smallest one that the GPUs can hold."""
        self._stale = False
        where = site.gpu_type, site.nodes > 1, site.levels_crossed > 0, site.gpus
        if where not in self._chosen:
            self._chosen[where] = self._choose(site)
        return self._chosen[where]

    def observe(self, measurement: Measurement) -> None:
        """Record a measurement; refit if its configuration is new."""
        if self._error is not None:
            measurement = self._error.distort(measurement)
        site = measurement.site
        on = self._types.get(site.gpu_type)
        key = site.nodes, site.gpus, measurement.local_bsz
        beyond = site.levels_crossed > 0
        unseen = on is None or key not in (on.beyond if beyond else on.profile)
        self._noise[measurement.epoch] = measurement.gradient
        if not unseen and measurement.gradient == self._gradient:
            return
        if on is None:
            prior = self._lookup(measurement) if self._lookup else None
            on = self._types[site.gpu_type] = _OnType(prior)
        if unseen:
            self._learn(on, key, measurement.step, beyond=beyond)
        self._gradient = measurement.gradient
        on.max_gpus = max(on.max_gpus, site.gpus)
        self._publish()
        self._stale = self.fixed_batch_size is None

    def _learn(self, on: _OnType, key: Configuration, step: StepTime, *, beyond: bool) -> None:
        """Fit what is new: the seven parameters, or the separate pair for levels above the nodes.

        A job that has run only across such levels treats it as synchronisation across nodes until it measures more.
        """
        if not beyond:
            on.profile[key] = step
            on.params = self._fit(on, key)
        else:
            on.beyond[key] = step
            if on.prior is None and not on.profile:
                on.params = self._fits.fit(on.beyond).params
        if on.beyond and on.params is not None:
            on.beyond_params = self._fits.fit_across(on.beyond, on.params)

    def _fit(self, on: _OnType, added: Configuration) -> ThroughputParams:
        """Fit to the prior's profile and the job's measurements; an exact confirmation changes nothing."""
        prior = on.prior
        if prior is None:
            return self._fits.fit(on.profile).params
        if on.params is not None and prior.profile.get(added) == on.profile[added]:
            return on.params
        start = None if prior.profile else prior.params
        return self._fits.fit({**prior.profile, **on.profile}, start=start).params

    def _publish(self) -> None:
        """Report the current models, and drop the choices made with the old ones."""
        types = {gpu_type: self._report_on(on) for gpu_type, on in self._types.items()}
        self._report = GoodputReport(types, self._report.version + 1)
        self._chosen.clear()

    def _report_on(self, on: _OnType) -> TypeReport:
        if self._bootstrap and on.max_gpus == 1:
            donors = [other for other in self._types.values() if other.max_gpus > 1 and other.params is not None]
            if donors:
                donor = max(donors, key=lambda other: other.max_gpus)
                return TypeReport(donor.max_gpus, self._model(_borrowed(on, donor)))
        return TypeReport(on.max_gpus, self._model(on.params))

    def _model(self, params: ThroughputParams | None) -> GoodputModel | None:
        if params is None or self._gradient is None:
            return None
        return GoodputModel(params, self._gradient, self.limits, self._candidates)

    def _choose(self, site: Site) -> BatchChoice:
        gpus = site.gpus
        if self.fixed_batch_size is not None:
            return batch_for_target(self.limits, self.fixed_batch_size, gpus)
        model = self._report.on(site.gpu_type).model
        if site.levels_crossed:
            model = self._model(self.beyond.get(site.gpu_type)) or model
        if model is None:
            smallest = max(self.limits.init_batch_size, self.limits.min_local_bsz * gpus)
            return batch_for_target(self.limits, smallest, gpus)
        best = model.optimise(site.nodes, gpus)
        return clip_to_max(self.limits, BatchChoice(int(best.local_bsz), int(best.accum_steps)), gpus)


def _borrowed(on: _OnType, donor: _OnType) -> ThroughputParams | None:
    """Scale the donor's model by the mean ratio of single-GPU step times, its own over the donor's."""
    if donor.params is None:
        return None
    ratios = [
        step.step_s / float(donor.params.step_time_s(nodes, gpus, local_bsz))
        for (nodes, gpus, local_bsz), step in sorted(on.profile.items())
    ]
    return donor.params.scaled(sum(ratios) / len(ratios)) if ratios else on.params


@dataclass(frozen=True)
class Shared:
    """What the agents of one run can share, because it depends only on applications and measurements."""

    fits: Fits = field(default_factory=Fits)
    candidates: dict[BatchLimits, CandidateBatches] = field(default_factory=dict)


def goodput_agent(
    request: JobRequest,
    facts: ApplicationFacts,
    *,
    shared: Shared | None = None,
    priors: Mapping[str, Prior] | None = None,
    lookup: PriorLookup | None = None,
    noise: float = 0,
    bootstrap: bool = False,
) -> GoodputAgent:
    """Create the agent that adapts a job's batch to its goodput; `noise` is that of `MeasurementError`.

    Raises `InputError` if the application has no batch size to adapt.
    """
    limits = facts.limits
    if limits is None:
        message = f"job {request.id} runs '{facts.name}', which has no model of batch sizes to adapt"
        remedy = "goodput needs applications with a batch-size model; trace jobs carry only durations"
        raise input_error("workload", message, remedy)
    shared = shared or Shared()
    candidates = shared.candidates.setdefault(limits, CandidateBatches(limits))
    return GoodputAgent(
        limits,
        fixed_batch_size=facts.fixed_batch_size,
        candidates=candidates,
        fits=shared.fits,
        priors=priors,
        lookup=lookup,
        error=MeasurementError(noise, request) if noise else None,
        bootstrap=bootstrap,
    )


@dataclass
class Goodput:
    """Adapts every job's batch to its goodput, from models that the job fits to its own measurements.

    `noise` is the relative error of what a job measures; 0 makes measurements exact. With `bootstrap`, what a job knows
    on one GPU type carries over to types on which it has run only on single GPUs.
    """

    name: ClassVar[str] = "goodput"

    noise: float = 0.0
    bootstrap: bool = False

    _shared: Shared = field(default_factory=Shared, init=False, repr=False)

    def __post_init__(self) -> None:
        """Reject a noise outside [0, 1)."""
        check_noise(self.noise)

    def begin(self, cluster: Cluster) -> None:
        """Ignore the cluster."""

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        """Create the agent of a job; raises `InputError` if it has no batch size to adapt."""
        return goodput_agent(request, facts, shared=self._shared, noise=self.noise, bootstrap=self.bootstrap)


# What an operator knows of an application from profiling it before its submission.
#
# A job that starts from this knows the true step times of many configurations instead of other jobs' measurements:
# this is how the Pollux paper seeds its models (OSDI'21, section 5.3.2), and a policy that uses it declares the
# signal `offline_profiles`.

#: Profiled placements: within one node, on two nodes, and on whole nodes, up to 16 nodes.
_WHOLE_NODES = (2, 4, 8, 16)
_BATCHES = 6


def offline_priors(application: Application, cluster: Cluster) -> dict[str, Prior]:
    """Profile an application on every GPU type of a cluster on which it can run; {} if it has no batch size."""
    priors = {
        gpu_type: offline_prior(application, gpu_type, cluster.gpus_per_node(gpu_type))
        for gpu_type in cluster.gpu_types
        if application.gpu_types is None or gpu_type in application.gpu_types
    }
    return {gpu_type: prior for gpu_type, prior in priors.items() if prior is not None}


def offline_prior(application: Application, gpu_type: str, gpus_per_node: int) -> Prior | None:
    """Fit an application's true step times on a grid of placements and batches; None if it has no batch size.

    The placements are those of nodes with `gpus_per_node` GPUs of type `gpu_type`; those that the application does not
    know are left out. The gradient statistics are those at the start of training.
    """
    limits = application.limits
    if limits is None:
        return None
    profile: dict[Configuration, StepTime] = {}
    for shape in _shapes(gpus_per_node):
        if sum(shape) * limits.min_local_bsz > limits.max_batch_size:
            continue
        for local_bsz in _batches(limits):
            try:
                step = application.step_time(Site(shape, gpu_type), local_bsz)
            except ValueError:  # measured applications know only some placements and batches
                continue
            profile[len(shape), sum(shape), local_bsz] = step
    batch = batch_for_target(limits, application.fixed_batch_size or limits.init_batch_size, 1)
    gradient = application.run(Site((1,), gpu_type), batch, 0).gradient
    if gradient is None or not profile:
        return None
    most = max(gpus for _, gpus, _ in profile)
    return Prior(fit(profile).params, gradient, profile, most)


def _shapes(gpus_per_node: int) -> list[Shape]:
    within = [1 << power for power in range(gpus_per_node.bit_length()) if 1 << power < gpus_per_node]
    return [*((gpus,) for gpus in (*within, gpus_per_node)), (1, 1), *((gpus_per_node,) * n for n in _WHOLE_NODES)]


def _batches(limits: BatchLimits) -> list[int]:
    """Space per-GPU batches geometrically between the limits, both inclusive."""
    ratio = limits.max_local_bsz / limits.min_local_bsz
    return sorted({round(limits.min_local_bsz * ratio ** (i / (_BATCHES - 1))) for i in range(_BATCHES)})
