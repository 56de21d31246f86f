"""Agents that change the batch once an epoch by a rule of `simsched.agent.rule_agent`, whatever the scheduler does."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Protocol

from simsched.agent.agent import Agent, AgentFactory, Measurement
from simsched.agent.fixed_agent import fixed_agent
from simsched.errors import input_error
from simsched.model import ApplicationFacts, BatchChoice, JobRequest, Site
from simsched.model.batch import batch_for_target, clip_to_max
from simsched.model.regimes import BatchRegimes


class BatchState(NamedTuple):
    """The state of a training: its batches are totals in examples, `epoch` counts from 0."""

    initial: int
    batch: int
    epoch: int
    gpus: int
    smallest: int
    largest: int

    def clip(self, batch: float) -> int:
        """Round a batch, half to even, into the bounds of this training."""
        return round(min(max(batch, self.smallest), self.largest))


class BatchMetrics(NamedTuple):
    """The measurements of a training; a figure that it does not measure is None.

    `noise_scale` is the gradient noise scale in examples, `gradient_variance` the trace of the covariance of one
    example's gradient, `loss` the training loss, `learning_rate` the optimizer's step, `gradient_sqr` the squared norm
    of the mean gradient.
    """

    noise_scale: float | None = None
    gradient_variance: float | None = None
    loss: float | None = None
    learning_rate: float | None = None
    gradient_sqr: float | None = None


NOTHING_MEASURED = BatchMetrics()


class BatchRule(Protocol):
    """Returns the total batch, in examples, with which a training should continue."""

    def __call__(self, state: BatchState, metrics: BatchMetrics) -> int:
        """Return the batch; the current one if nothing should change or a metric is missing."""


@dataclass(frozen=True)
class AdaBatch:
    """Multiply the batch by `factor` every `epochs` epochs.

    Source: Devarakonda et al., 2017, arXiv 1712.02029, where the learning rate decays by 0.75 at each doubling.
    """

    epochs: int = 20
    factor: int = 2

    def __call__(self, state: BatchState, metrics: BatchMetrics) -> int:
        """Return the batch of the state's epoch, within its bounds."""
        return state.clip(state.initial * self.factor ** (state.epoch // self.epochs))


def cabs(state: BatchState, metrics: BatchMetrics) -> int:
    """Return learning rate x gradient variance / loss, rounded into the bounds.

    The batch stays if a figure is not measured or the loss is not positive. Source: Balles et al., UAI'17.
    """
    rate, variance, loss = metrics.learning_rate, metrics.gradient_variance, metrics.loss
    if rate is None or variance is None or loss is None or loss <= 0:
        return state.batch
    return state.clip(rate * variance / loss)


#: The weight of the newest estimate in the moving averages. Its value is KungFu's; that it weighs the newest, not the
#: previous estimates, is an assumption.
NEWEST = 0.6


class NoiseAverage(NamedTuple):
    """Moving averages of the gradients' variance (numerator) and of the squared norm of their mean (denominator)."""

    variance: float
    squared_norm: float

    @property
    def noise_scale(self) -> float:
        """Return the noise scale in examples; infinite if the estimated mean gradient is 0."""
        return self.variance / self.squared_norm if self.squared_norm > 0 else math.inf


def averaged(before: NoiseAverage | None, newest: NoiseAverage, weight: float = NEWEST) -> NoiseAverage:
    """Return the averages after a new estimate; the first estimate stands for itself."""
    if before is None:
        return newest
    return NoiseAverage(*(weight * new + (1 - weight) * old for new, old in zip(newest, before, strict=True)))


def noise_doubling(state: BatchState, metrics: BatchMetrics) -> int:
    """Return twice the batch if the measured noise scale is at least that, else the batch.

    Measures what Shockwave's jobs take from a published schedule (Zheng et al., NSDI'23); the threshold is ours.
    """
    if metrics.noise_scale is None or metrics.noise_scale < 2 * state.batch:
        return state.batch
    return state.clip(2 * state.batch)


def noise_rule(state: BatchState, metrics: BatchMetrics) -> int:
    """Return the measured noise scale as the batch, rounded into the bounds (KungFu: Mai et al., OSDI'20)."""
    if metrics.noise_scale is None:
        return state.batch
    return state.clip(metrics.noise_scale)


@dataclass(frozen=True)
class Accordion:
    """Train critical epochs with the initial batch, the others with the largest."""

    regimes: BatchRegimes

    def __call__(self, state: BatchState, metrics: BatchMetrics) -> int:
        """Return the largest batch outside critical epochs; inside them, the initial batch.

        The smallest batch never shrinks, and only the initial batch ever grows.
        """
        if not self.regimes.is_critical(state.initial, state.epoch):
            return state.largest if state.batch == state.initial else state.batch
        return state.batch if state.batch == state.smallest else state.initial


@dataclass
class MeasuredAccordion:
    """Accordion by measurement: it compares the gradient's norm every `every` epochs (Agarwal et al., MLSys'21).

    While the norm has changed by at least the fraction `change` since the last comparison, the training is in a
    critical regime and keeps the initial batch; else it gets the largest. The first epochs are critical. Both numbers
    are recalled from the paper. One instance serves one training.
    """

    change: float = 0.5
    every: int = 10
    _norm: float | None = field(default=None, init=False)
    _critical: bool = field(default=True, init=False)

    def __call__(self, state: BatchState, metrics: BatchMetrics) -> int:
        """Return the initial batch in a critical regime, else the largest."""
        if metrics.gradient_sqr is not None and (self._norm is None or state.epoch % self.every == 0):
            norm = math.sqrt(metrics.gradient_sqr)
            if self._norm is not None:
                self._critical = abs(self._norm - norm) >= self.change * self._norm
            self._norm = norm
        return state.initial if self._critical else state.largest


@dataclass(frozen=True)
class NoiseSchedule:
    """Double the batch when the published schedule does so in this epoch or the next."""

    regimes: BatchRegimes

    def __call__(self, state: BatchState, metrics: BatchMetrics) -> int:
        """Return twice the batch if the schedule is ahead of it and it is below the largest."""
        ahead = self.regimes.doubled(state.initial, state.gpus, state.epoch + 1)
        return 2 * state.batch if state.batch != state.largest and ahead > state.batch else state.batch


class RuleAgent:
    """Follows a batch rule; batches of a tabulated application are rows of its table, others are split over GPUs."""

    goodput = None
    #: The next epoch may change the batch.
    stale = True

    def __init__(
        self,
        request: JobRequest,
        facts: ApplicationFacts,
        rule: BatchRule,
        assumed: BatchMetrics = NOTHING_MEASURED,
    ) -> None:
        """Start with the batch asked for; `assumed` has what no job measures.

        Raises `InputError` if the application has no batch sizes.
        """
        if facts.limits is None and facts.regimes is None:
            message = f"job {request.id} runs '{facts.name}', which has no batch size to change"
            raise input_error("workload", message, "choose an application with batch sizes")
        self._limits = facts.limits
        self._table = frozenset(facts.batch_sizes)
        self._rule = rule
        self._metrics = assumed
        self._fixed = facts.fixed_batch_size is not None
        smallest, largest = _bounds(facts)
        first = request.batch_size or facts.fixed_batch_size or smallest
        self._state = BatchState(first, first, -1, request.num_gpus, smallest, largest)
        self._noise: NoiseAverage | None = None

    def choose(self, site: Site, epoch: int) -> BatchChoice:
        """Return the batch of an epoch."""
        if epoch != self._state.epoch and not self._fixed:
            self._state = self._state._replace(epoch=epoch, gpus=site.gpus)
            batch = self._rule(self._state, self._metrics)
            if self._limits is not None or batch in self._table:  # a table has only its own batches
                self._state = self._state._replace(batch=batch)
        if self._limits is None:
            return BatchChoice(self._state.batch, 0)
        target = max(self._state.batch, self._limits.min_local_bsz * site.gpus)
        return clip_to_max(self._limits, batch_for_target(self._limits, target, site.gpus), site.gpus)

    def observe(self, measurement: Measurement) -> None:
        """Average the gradient statistics, which refer to the initial batch size, per example."""
        if self._limits is not None:
            gradient, examples = measurement.gradient, self._limits.init_batch_size
            newest = NoiseAverage(gradient.var * examples, gradient.sqr)
            self._noise = noise = averaged(self._noise, newest, NEWEST)
            self._metrics = self._metrics._replace(
                noise_scale=noise.noise_scale, gradient_variance=noise.variance, gradient_sqr=noise.squared_norm
            )


def configured_agent(request: JobRequest, facts: ApplicationFacts) -> Agent:
    """Create the agent that the user configured: for the batch rule that the request names, or for a fixed batch.

    Raises `InputError` for a rule without published regimes for the application.
    """
    if request.batch_rule in ("", "static"):
        return fixed_agent(request, facts)
    return RuleAgent(request, facts, _published(request.batch_rule, request, facts))


def _published(name: str, request: JobRequest, facts: ApplicationFacts) -> BatchRule:
    if facts.regimes is None:
        message = f"no batch regimes of '{facts.name}' are published, which the rule '{name}' of job {request.id} needs"
        raise input_error("workload", message, "choose another batch rule or application")
    if name == "gns":
        return NoiseSchedule(facts.regimes)
    if name != "accordion":
        raise input_error(
            "workload", f"job {request.id}: '{name}' is not a batch rule", "known: accordion, gns, static"
        )
    return Accordion(facts.regimes) if facts.regimes.critical is not None else (lambda state, metrics: state.batch)


def _bounds(facts: ApplicationFacts) -> tuple[int, int]:
    if facts.limits is not None:
        return facts.limits.init_batch_size, facts.limits.max_batch_size
    assert facts.regimes is not None
    return facts.regimes.smallest, facts.regimes.largest


@dataclass
class AdaBatchAgents(AgentFactory):
    """Multiplies every job's batch by `factor` every `epochs` epochs (Devarakonda et al., 2017)."""

    name: ClassVar[str] = "adabatch"

    epochs: int = 20
    factor: int = 2

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        """Create the agent of a job."""
        return RuleAgent(request, facts, AdaBatch(self.epochs, self.factor))


@dataclass
class CabsAgents(AgentFactory):
    """Couples every job's batch to learning rate, loss and gradient variance (Balles et al., UAI'17).

    Applications model no loss and no learning rate: both are parameters, the same for all jobs.
    """

    name: ClassVar[str] = "cabs"

    learning_rate: float = 0.1
    loss: float = 1.0

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        """Create the agent of a job."""
        return RuleAgent(request, facts, cabs, BatchMetrics(learning_rate=self.learning_rate, loss=self.loss))


@dataclass
class NoiseAgents(AgentFactory):
    """Sets every job's batch to the gradient noise scale that it measures, averaged (KungFu, OSDI'20)."""

    name: ClassVar[str] = "kungfu-noise"

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        """Create the agent of a job."""
        return RuleAgent(request, facts, noise_rule)


@dataclass
class AccordionAgents(AgentFactory):
    """Trains every job's critical epochs with the initial batch, the others with the largest (Accordion, MLSys'21).

    The critical epochs are the published ones if there are any, else found by measuring gradients.
    """

    name: ClassVar[str] = "accordion"

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        """Create the agent of a job."""
        measured = facts.regimes is None
        return RuleAgent(request, facts, MeasuredAccordion() if measured else _published("accordion", request, facts))


@dataclass
class ScheduleAgents(AgentFactory):
    """Doubles every job's batch at the epochs of its published gradient-noise schedule (Shockwave, NSDI'23).

    If none is published, the batch doubles once the gradient noise scale that the job measures allows it.
    """

    name: ClassVar[str] = "gradient-noise"

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        """Create the agent of a job."""
        return RuleAgent(request, facts, noise_doubling if facts.regimes is None else _published("gns", request, facts))
