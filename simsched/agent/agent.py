"""The contract between the engine and the agent that picks a job's batch size."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import ClassVar, NamedTuple, Protocol, final

from simsched.errors import Problem
from simsched.model import ApplicationFacts, BatchChoice, Cluster, JobRequest, Site
from simsched.model.application import GradientStats, StepTime
from simsched.model.goodput import GoodputModel


class Measurement(NamedTuple):
    """What a job measures when it starts to run in a configuration, in its 0-based `epoch`."""

    site: Site
    local_bsz: int
    step: StepTime
    gradient: GradientStats
    epoch: int = 0


class Agent(Protocol):
    """Chooses batch sizes for one job and learns from what the job measures."""

    @property
    def stale(self) -> bool:
        """Return whether `choose` could differ from its last answer, so that re-tuning may pay off."""

    def choose(self, site: Site, epoch: int) -> BatchChoice:
        """Return the batch for a site during a 0-based epoch."""

    def observe(self, measurement: Measurement) -> None:
        """Record a measurement."""

    @property
    def goodput(self) -> GoodputReport | None:
        """Return the fitted model of the job's goodput, None if the agent fits none."""


class UnlearningAgent:
    """Base class of agents that learn nothing and receive no measurements."""

    stale = False
    goodput = None

    @final
    def observe(self, measurement: Measurement) -> None:
        """Learn nothing."""


class Lease(NamedTuple):
    """The run of a job until its agent returns control of the GPUs to the scheduler.

    The job runs until `end_s` (seconds since the start of the workload) and then pauses, holding its GPUs, until the
    next decision; if it still holds them then, its next lease starts. `progress(now_s)` is the total progress at a
    second of the lease, since the job may be stopped before its end. `completes` says that the job is done at the end.
    """

    end_s: float
    progress: Callable[[float], float]
    completes: bool


class LeasingAgent:
    """Base class of agents that grant their job time in leases, as GavelIterator does (Gavel, section 6).

    It is not a protocol, since the engine checks the agent of every job for it.
    """

    def lease(self, site: Site, progress: float, now_s: float) -> Lease:
        """Return the lease of a job that starts on a site at `now_s` with `progress` made; raises until overridden."""
        raise NotImplementedError


class AgentFactory(Protocol):
    """Creates the agents of one run; its constructor's parameters are the `params` of an experiment."""

    #: Short name, as in the registry.
    name: ClassVar[str]

    def begin(self, cluster: Cluster) -> None:
        """Receive the cluster, before the first job is submitted; does nothing by default."""

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        """Create the agent of a job; raises `InputError` if the job does not suit such an agent."""
        ...


class TypeReport(NamedTuple):
    """What is known of a job on one GPU type.

    `max_profiled_gpus` is the largest number of GPUs on which its speed is known, because it has run there or from what
    it started with (0: none yet); `model` predicts its goodput (None before anything is known).
    """

    max_profiled_gpus: int
    model: GoodputModel | None


_UNKNOWN = TypeReport(0, None)


class GoodputReport(NamedTuple):
    """What is known of a job, by GPU type.

    `version` changes whenever a model does, so that results computed from it can be cached until then.
    """

    types: Mapping[str, TypeReport] = MappingProxyType({})
    version: int = 0

    def on(self, gpu_type: str) -> TypeReport:
        """Return what is known on a GPU type."""
        return self.types.get(gpu_type, _UNKNOWN)


def no_goodput(job_id: str) -> Problem:
    """Report that a policy reads a model that the agent of a job does not fit."""
    message = f"the agent of job '{job_id}' fits no goodput model, which the policy reads"
    return Problem("agent", message, "choose an agent that fits one, such as 'goodput'")
