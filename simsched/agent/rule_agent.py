"""Agents that change the batch once an epoch by a rule of `simsched.agent.batch_rules`, whatever the scheduler does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from simsched.agent.agent import Agent, AgentFactory, Measurement
from simsched.agent.batch_rules.regime import Accordion, MeasuredAccordion, NoiseSchedule
from simsched.agent.batch_rules.rules import (
    NEWEST,
    AdaBatch,
    BatchMetrics,
    BatchRule,
    BatchState,
    NoiseAverage,
    averaged,
    cabs,
    noise_doubling,
    noise_rule,
)
from simsched.agent.fixed_agent import fixed_agent
from simsched.errors import input_error
from simsched.model import ApplicationFacts, BatchChoice, JobRequest, Site
from simsched.model.batch import batch_for_target, clip_to_max


@dataclass(frozen=True)
class Known:
    """What an agent assumes because no job measures it: the optimizer's step, the training loss (None: nothing)."""

    learning_rate: float | None = None
    loss: float | None = None


_NOTHING = Known()


class RuleAgent:
    """Follows a batch rule; batches of a tabulated application are rows of its table, others are split over GPUs."""

    goodput = None
    #: The next epoch may change the batch.
    stale = True

    def __init__(self, request: JobRequest, facts: ApplicationFacts, rule: BatchRule, known: Known = _NOTHING) -> None:
        """Start with the batch asked for; raises `InputError` if the application has no batch sizes."""
        if facts.limits is None and facts.regimes is None:
            message = f"job {request.id} runs '{facts.name}', which has no batch size to change"
            raise input_error("workload", message, "choose an application with batch sizes")
        self._limits = facts.limits
        self._table = frozenset(facts.batch_sizes)
        self._rule = rule
        self._known = known
        self._fixed = facts.fixed_batch_size is not None
        smallest, largest = _bounds(facts)
        first = request.batch_size or facts.fixed_batch_size or smallest
        self._state = BatchState(first, first, -1, request.num_gpus, smallest, largest)
        self._noise: NoiseAverage | None = None

    def choose(self, site: Site, epoch: int) -> BatchChoice:
        """Return the batch of an epoch."""
        if epoch != self._state.epoch and not self._fixed:
            self._state = self._state._replace(epoch=epoch, gpus=site.gpus)
            batch = self._rule(self._state, self._metrics())
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
            self._noise = averaged(self._noise, newest, NEWEST)

    def _metrics(self) -> BatchMetrics:
        noise, known = self._noise, self._known
        if noise is None:
            return BatchMetrics(learning_rate=known.learning_rate, loss=known.loss)
        return BatchMetrics(noise.noise_scale, noise.variance, known.loss, known.learning_rate, noise.squared_norm)


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
        return RuleAgent(request, facts, cabs, Known(self.learning_rate, self.loss))


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
