"""What a job physically is: how fast its steps are and how much each contributes.

Five kinds of physics share one interface: fitted (`simsched.model.fitted`), measured (`simsched.model.measured`),
tabulated (`simsched.model.tabulated`), plans of parallel training (`simsched.model.plans`) and a fixed duration
(`simsched.model.tabulated`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simsched.arithmetic import exp, log
from simsched.model.job import JobRequest, JobTruth
from simsched.model.placement import NodeShape, Site
from simsched.model.plans.plan import Plan
from simsched.model.regimes import BatchRegimes

if TYPE_CHECKING:
    from simsched.model.plans.tabled import LargeModel


class BatchChoice(NamedTuple):
    """The per-GPU batch size of one micro-batch, the number of extra accumulation steps, and the plan, if any.

    The total batch is GPUs x `local_bsz` x (`accum_steps` + 1), with the plan's data ranks in place of GPUs if it has a
    plan.
    """

    local_bsz: int
    accum_steps: int
    plan: Plan | None = None

    @classmethod
    def of_plan(cls, plan: Plan, global_batch: int) -> BatchChoice:
        """Return the batch of a plan at a global batch (sequences; 0: unknown)."""
        if not global_batch:
            return cls(0, 0, plan)
        return cls(plan.micro_batch, plan.micro_batches(global_batch) - 1, plan)

    def total(self, gpus: int) -> int:
        """Return the total batch size on `gpus` GPUs, in examples."""
        replicas = gpus if self.plan is None else self.plan.data
        return replicas * self.local_bsz * (self.accum_steps + 1)


NO_BATCH = BatchChoice(0, 0)


class StepTime(NamedTuple):
    """Seconds of one step without accumulation, and the part of them spent on synchronising gradients."""

    step_s: float
    sync_s: float


class GradientStats(NamedTuple):
    """Squared norm of the mean gradient and trace of the covariance, at the initial batch size."""

    sqr: float
    var: float

    def gain(self, scale: float) -> float:
        """Return the AdaScale gain of a batch `scale` times the initial one (papers: r_t; 1 <= gain <= scale)."""
        return (self.var + self.sqr) / (self.var / scale + self.sqr)


@dataclass(frozen=True)
class BatchLimits:
    """The batch sizes that an application accepts, in examples (total, and per GPU and micro-batch)."""

    init_batch_size: int
    max_batch_size: int
    min_local_bsz: int
    max_local_bsz: int


class Running(NamedTuple):
    """The performance of a job between two breakpoints.

    `rate` is progress per second, `efficiency` the statistical efficiency in (0, 1], `throughput` examples per second;
    `step` and `gradient` are what the job itself can measure, None if it trains nothing.
    """

    rate: float
    efficiency: float
    throughput: float
    step: StepTime | None
    gradient: GradientStats | None

    @classmethod
    def training(
        cls, step: StepTime, gradient: GradientStats, batch: BatchChoice, gpus: int, init_batch_size: int
    ) -> Running:
        """Return the performance of synchronous training; each accumulation step adds one without synchronisation."""
        total = batch.total(gpus)
        scale = total / init_batch_size
        gain = gradient.gain(scale)
        seconds = step.step_s + batch.accum_steps * (step.step_s - step.sync_s)
        return cls(gain / seconds, gain / scale, total / seconds, step, gradient)


class MemoryNeed(NamedTuple):
    """GPU memory that a job takes, in MB: for the model and for each example of a micro-batch."""

    model_mb: float
    example_mb: float

    def total_mb(self, local_bsz: int) -> float:
        """Return the megabytes on each GPU at a per-GPU batch size."""
        return self.model_mb + self.example_mb * local_bsz


class Application(ABC):
    """The physics of a job; shared by all jobs of the application, so it holds no state of a run.

    Progress counts iterations at the initial batch size (Pollux, section 2.2), or seconds for a fixed duration. It
    runs through `epochs` epochs; the job is complete at the end of the last. A kind of physics declares what it knows.
    """

    __slots__ = ()

    name: str
    #: None if the job has no batch size.
    limits: BatchLimits | None = None
    #: The total batch sizes at which training is known to reach its target, ascending; () without batches.
    batch_sizes: tuple[int, ...] = ()
    #: (GPUs, total batch size) that users with tuned jobs ask for; () if it must be computed.
    tuned: tuple[tuple[int, int], ...] = ()
    #: The GPU types on which the speed is known, sorted; None if it does not depend on them.
    gpu_types: tuple[str, ...] | None = None
    #: The largest number of GPUs the application can use, None if only its batch limits bound it.
    max_gpus: int | None = None
    #: The only total batch size that the application runs at, None if it may be chosen.
    fixed_batch_size: int | None = None
    #: The seconds that a change of placement costs, and those of the first start; None for the engine's default.
    restart_delay_s: float | None = None
    start_delay_s: float | None = None
    #: The seconds to write its state, None if its size is not known.
    checkpoint_s: float | None = None
    #: The size of the largest tensor as a share of the model, None if unknown.
    tensor_skew: float | None = None
    #: The GPU memory that a job takes, None if unknown.
    memory: MemoryNeed | None = None
    #: The seconds of an iteration that storage and processors (loading and preprocessing), the GPU, and the network are
    #: busy; () if unknown.
    stages_s: tuple[float, ...] = ()
    #: How the loss falls, None if unknown.
    loss_curve: LossCurve | None = None
    #: The epochs until completion.
    epochs: int = 1

    @abstractmethod
    def epoch_end(self, epoch: int) -> float:
        """Return the progress at the end of a 0-based epoch."""

    @abstractmethod
    def run(self, site: Site, batch: BatchChoice, epoch: int) -> Running:
        """Return the performance on a site with a batch during an epoch.

        Raises `ValueError` naming the application if the batch, the placement or the GPU type lies outside what it
        knows.
        """

    @abstractmethod
    def step_time(self, site: Site, local_bsz: int) -> StepTime:
        """Return the true step time on a site, in seconds."""

    @abstractmethod
    def iterations(self, batch_size: float, epoch: int) -> float:
        """Return the iterations done by the end of a 0-based epoch at a constant `batch_size`."""


class ApplicationSource(Protocol):
    """Finds the physics of a job."""

    def for_job(self, request: JobRequest, truth: JobTruth) -> Application:
        """Return the application of a job; each job of fixed duration gets its own."""


@dataclass(frozen=True)
class ApplicationFacts:
    """What a user or a profiler knows of an application, as opposed to its physics.

    The fields are those of `Application`; `gpu_types` None means that the speed does not depend on the type. `regimes`
    are the published batch regimes of its model, if it knows them. `reports_loss` says whether its jobs report their
    losses, `other_counts` whether their speed is known on other numbers of GPUs than they ask for. `plans` gives the
    step times of its plans, as a profile would (None: it has none).
    """

    name: str
    limits: BatchLimits | None = None
    batch_sizes: tuple[int, ...] = ()
    gpu_types: tuple[str, ...] | None = None
    tuned: tuple[tuple[int, int], ...] = ()
    max_gpus: int | None = None
    fixed_batch_size: int | None = None
    restart_delay_s: float | None = None
    start_delay_s: float | None = None
    tensor_skew: float | None = None
    memory: MemoryNeed | None = None
    regimes: BatchRegimes | None = None
    reports_loss: bool = False
    other_counts: bool = True
    plans: LargeModel | None = None

    def runs_on(self, gpu_type: str) -> bool:
        """Return whether the application can run on GPUs of a type."""
        return self.gpu_types is None or gpu_type in self.gpu_types

    @cached_property
    def without_plans(self) -> ApplicationFacts:
        """Return the facts without the plans."""
        return replace(self, plans=None)


#: The facts of a job with only a duration.
_NO_FACTS = ApplicationFacts("fixed-duration", other_counts=False)
_SPEEDUP_KNOWN = replace(_NO_FACTS, other_counts=True)
_FACTS = tuple(field.name for field in fields(ApplicationFacts))
_DEFAULTS: Mapping[str, Any] = {field.name: field.default for field in fields(ApplicationFacts)}


def facts_of(application: Application, shape: NodeShape | None = None) -> ApplicationFacts:
    """Return the public facts of an application, for a job whose shape may restrict the GPU types."""
    if shape is not None and shape.gpu_types is not None:
        facts, types = facts_of(application), shape.gpu_types
        return replace(facts, gpu_types=tuple(kind for kind in types if facts.runs_on(kind)))
    if (
        application.name == _NO_FACTS.name and application.gpu_types is None
    ):  # a trace has hundreds of thousands of these
        return _NO_FACTS if getattr(application, "only_gpus", None) is not None else _SPEEDUP_KNOWN
    return ApplicationFacts(*[getattr(application, name, _DEFAULTS[name]) for name in _FACTS])


Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LossCurve:
    """The loss over epochs of equal progress; epochs ascend from 0, and losses, all above 0, do not rise.

    Between the given `epochs`, the logarithm of the loss is linear in the logarithm of 1 + epochs, so that each piece
    is a power law; beyond the last epoch the loss stays constant. `noise` is the standard deviation of single
    evaluations around the curve, relative to the curve.
    """

    epochs: tuple[float, ...]
    losses: tuple[float, ...]
    noise: float = 0.0

    def __post_init__(self) -> None:
        """Reject a curve that does not fall."""
        if len(self.epochs) != len(self.losses) or len(self.epochs) < 2:
            raise ValueError("a loss curve needs as many losses as epochs, and two of each or more")
        if self.epochs[0] != 0 or (np.diff(self.epochs) <= 0).any():
            raise ValueError("the epochs of a loss curve must begin at 0 and ascend")
        if min(self.losses) <= 0 or (np.diff(self.losses) > 0).any() or self.losses[-1] == self.losses[0]:
            raise ValueError("the losses of a loss curve must be above 0 and fall")

    def at(self, epochs: ArrayLike) -> Floats:
        """Return the losses after `epochs`, an array of the same shape."""
        places, logs = self._logs
        return np.asarray(exp(np.interp(log(1.0 + np.asarray(epochs, dtype=np.float64)), places, logs)))

    @cached_property
    def _logs(self) -> tuple[Floats, Floats]:
        return log(1.0 + np.asarray(self.epochs, dtype=np.float64)), log(self.losses)


class ScaledApplication(Application):
    """Another application with every step time multiplied by `factor`, for example a wider or narrower network."""

    def __init__(self, inner: Application, name: str, factor: float) -> None:
        """Slow `inner` down by `factor` (above 0; below 1 it speeds it up)."""
        if not factor > 0:
            raise ValueError(f"factor must be above 0, not {factor}")
        self._inner = inner
        self._factor = factor
        self.name = name
        for declared in Application.__annotations__.keys() - {"name"}:
            setattr(self, declared, getattr(inner, declared))
        self.stages_s = tuple(seconds * factor for seconds in inner.stages_s)
        self.reports_loss = inner.loss_curve is not None

    def epoch_end(self, epoch: int) -> float:
        """Return the progress at the end of a 0-based epoch."""
        return self._inner.epoch_end(epoch)

    def run(self, site: Site, batch: BatchChoice, epoch: int) -> Running:
        """Return the performance of the other one at 1 / `factor` of its speed."""
        running = self._inner.run(site, batch, epoch)
        return running._replace(
            rate=running.rate / self._factor,
            throughput=running.throughput / self._factor,
            step=None if running.step is None else self._scaled(running.step),
        )

    def step_time(self, site: Site, local_bsz: int) -> StepTime:
        """Return the true step time on a placement, in seconds."""
        return self._scaled(self._inner.step_time(site, local_bsz))

    def iterations(self, batch_size: float, epoch: int) -> float:
        """Return the iterations done by the end of a 0-based epoch at a constant `batch_size`."""
        return self._inner.iterations(batch_size, epoch)

    def _scaled(self, step: StepTime) -> StepTime:
        return StepTime(step.step_s * self._factor, step.sync_s * self._factor)
