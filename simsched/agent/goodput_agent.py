"""The agent of a job whose batch size follows its goodput (Pollux, OSDI'21, sections 4.1 and 4.3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from simsched.agent.agent import Measurement
from simsched.agent.fit import Fits, Profile
from simsched.agent.fixed_agent import batch_for_target, clip_to_max
from simsched.errors import input_error
from simsched.model.application import Application, BatchChoice, BatchLimits, GradientStats, StepTime
from simsched.model.goodput import CandidateBatches, GoodputModel
from simsched.model.job import JobSpec
from simsched.model.throughput import ThroughputParams


class GoodputReport(NamedTuple):
    """What a job tells a scheduler of itself.

    `max_profiled_gpus` is the largest number of GPUs on which its speed is known, because it has run there or from what
    it started with (0: none yet), `model` predicts its goodput (None before anything is known). `version` changes
    whenever the model does, so that what was computed from it can be kept until then.
    """

    max_profiled_gpus: int
    model: GoodputModel | None
    version: int


@dataclass(frozen=True)
class Prior:
    """What is known of a job before it has run: parameters fitted offline or to earlier runs.

    They serve until the first measurement, and then as the starting point of the fit. `profile` holds the step times
    behind them, if these are at hand: then the job's own measurements join and replace them in every fit, and the job
    does not unlearn what it has not tried yet. `max_profiled_gpus` is the largest number of GPUs on which the speed is
    known.
    """

    params: ThroughputParams
    gradient: GradientStats
    profile: Profile = field(default_factory=dict)
    max_profiled_gpus: int = 0


#: Gives what a job can borrow from others once it has been measured for the first time, if anything.
Seek = Callable[[Measurement], Prior | None]


class GoodputAgent:
    """Profiles a job, fits its throughput, and picks the batch with the largest goodput.

    Throughput is fitted anew whenever a configuration is seen for the first time; of the gradient statistics the last
    ones observed count. A job that may run at one total batch size only keeps to it.
    """

    def __init__(
        self,
        limits: BatchLimits,
        *,
        fixed_batch_size: int | None = None,
        candidates: CandidateBatches | None = None,
        fits: Fits | None = None,
        prior: Prior | None = None,
        seek: Seek | None = None,
    ) -> None:
        """Start without measurements; `candidates` may be shared by agents with the same limits, `fits` by any.

        Without a `prior`, `seek` is asked for one at the first measurement.
        """
        self.limits = limits
        self.fixed_batch_size = fixed_batch_size
        self._candidates = candidates or CandidateBatches(limits)
        self._fits = fits or Fits()
        self._prior = prior
        self._seek = None if prior else seek
        self._profile: dict[tuple[int, int, int], StepTime] = {}
        self._noise: dict[int, GradientStats] = {}
        self._params: ThroughputParams | None = prior.params if prior else None
        self._gradient: GradientStats | None = prior.gradient if prior else None
        self._report = GoodputReport(prior.max_profiled_gpus if prior else 0, self._model(), 0)
        self._chosen: dict[tuple[bool, int], BatchChoice] = {}
        self._stale = False

    @property
    def stale(self) -> bool:
        """Tell whether the model has changed since a batch was last chosen."""
        return self._stale

    @property
    def report(self) -> GoodputReport:
        """Give the model as it stands."""
        return self._report

    @property
    def profile(self) -> Profile:
        """Give the step times that the job itself has measured."""
        return self._profile

    @property
    def noise(self) -> Mapping[int, GradientStats]:
        """Give the gradient statistics that it last observed in each epoch."""
        return self._noise

    def start_from(self, prior: Prior) -> None:
        """Take over what has become known of the application; a job that has measured something keeps to that."""
        if self._profile:
            return
        self._prior, self._seek = prior, None
        self._params, self._gradient = prior.params, prior.gradient
        self._report = GoodputReport(prior.max_profiled_gpus, self._model(), self._report.version + 1)
        self._chosen.clear()

    def choose(self, nodes: int, gpus: int) -> BatchChoice:
        """Choose the batch with the largest goodput; before the first fit, the smallest one that the GPUs can hold."""
        self._stale = False
        where = nodes > 1, gpus
        if where not in self._chosen:
            self._chosen[where] = self._choose(nodes, gpus)
        return self._chosen[where]

    def observe(self, measurement: Measurement) -> None:
        """Take note of a measurement; refit where its configuration is new."""
        key = measurement.nodes, measurement.gpus, measurement.local_bsz
        unseen = key not in self._profile
        self._noise[measurement.epoch] = measurement.gradient
        if not unseen and measurement.gradient == self._gradient:
            return
        if self._seek is not None:
            self._prior, self._seek = self._seek(measurement), None
        if unseen:
            self._profile[key] = measurement.step
            self._params = self._fit(key)
        self._gradient = measurement.gradient
        known = self._prior.max_profiled_gpus if self._prior else 0
        largest = max(self._report.max_profiled_gpus, measurement.gpus, known)
        self._report = GoodputReport(largest, self._model(), self._report.version + 1)
        self._chosen.clear()
        self._stale = self.fixed_batch_size is None

    def _fit(self, added: tuple[int, int, int]) -> ThroughputParams:
        """Fit to what the prior knows and the job has measured; what it confirms to the digit changes nothing."""
        prior = self._prior
        if prior is None:
            return self._fits.fit(self._profile).params
        if self._params is not None and prior.profile.get(added) == self._profile[added]:
            return self._params
        start = None if prior.profile else prior.params
        return self._fits.fit({**prior.profile, **self._profile}, start=start).params

    def _model(self) -> GoodputModel | None:
        if self._params is None or self._gradient is None:
            return None
        return GoodputModel(self._params, self._gradient, self.limits, self._candidates)

    def _choose(self, nodes: int, gpus: int) -> BatchChoice:
        if self.fixed_batch_size is not None:
            return batch_for_target(self.limits, self.fixed_batch_size, gpus)
        model = self._report.model
        if model is None:
            smallest = max(self.limits.init_batch_size, self.limits.min_local_bsz * gpus)
            return batch_for_target(self.limits, smallest, gpus)
        best = model.optimise(nodes, gpus)
        return clip_to_max(self.limits, BatchChoice(int(best.local_bsz), int(best.accum_steps)), gpus)


@dataclass(frozen=True)
class Shared:
    """What the agents of one run can share, because it depends on applications and measurements alone."""

    fits: Fits = field(default_factory=Fits)
    candidates: dict[BatchLimits, CandidateBatches] = field(default_factory=dict)


def goodput_agent(
    job: JobSpec,
    application: Application,
    *,
    shared: Shared | None = None,
    prior: Prior | None = None,
    seek: Seek | None = None,
) -> GoodputAgent:
    """Make the agent that adapts a job's batch to its goodput.

    Raises `InputError` where the application has no batch size to adapt.
    """
    limits = application.limits
    if limits is None:
        message = f"job {job.id} runs '{application.name}', which has no model of batch sizes to adapt"
        remedy = "goodput needs applications with a batch-size model; trace jobs carry only durations"
        raise input_error("workload", message, remedy)
    shared = shared or Shared()
    candidates = shared.candidates.setdefault(limits, CandidateBatches(limits))
    fixed = application.fixed_batch_size
    return GoodputAgent(limits, fixed_batch_size=fixed, candidates=candidates, fits=shared.fits, prior=prior, seek=seek)
