"""The contract between the engine and whatever picks a job's batch size."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import ClassVar, NamedTuple, Protocol, final

from simsched.errors import Problem
from simsched.model import (
    ApplicationFacts,
    BatchChoice,
    Cluster,
    GoodputModel,
    GradientStats,
    JobRequest,
    Site,
    StepTime,
)


class Measurement(NamedTuple):
    """What a job sees of itself when it begins to run in some way, in its 0-based `epoch`."""

    site: Site
    local_bsz: int
    step: StepTime
    gradient: GradientStats
    epoch: int = 0


class Agent(Protocol):
    """Chooses batch sizes for one job and learns from what the job measures."""

    @property
    def stale(self) -> bool:
        """Return whether `choose` could answer otherwise than when it was last asked, so that re-tuning may pay."""

    def choose(self, site: Site, epoch: int) -> BatchChoice:
        """Return the batch for a site during a 0-based epoch."""

    def observe(self, measurement: Measurement) -> None:
        """Take note of a measurement."""

    @property
    def goodput(self) -> GoodputReport | None:
        """Return the fitted model of the job's goodput, None if the agent fits none."""


class UnlearningAgent:
    """The base of agents that learn nothing, and are shown no measurement."""

    stale = False
    goodput = None

    @final
    def observe(self, measurement: Measurement) -> None:
        """Learn nothing."""


class Lease(NamedTuple):
    """How a job runs until its agent returns its GPUs' time to the scheduler.

    The job runs until `end_s` (seconds since the start of the workload) and then pauses, holding its GPUs, until the
    next decision; where it still holds them then, its next lease begins. `progress(now_s)` is the progress in all at a
    second of the lease, before whose end the job may be stopped. `completes` tells that the job is done at the end.
    """

    end_s: float
    progress: Callable[[float], float]
    completes: bool


class LeasingAgent:
    """The base of agents that grant their job time in leases, as GavelIterator does (Gavel, section 6).

    It is not a protocol, since every job's agent is asked whether it is one.
    """

    def lease(self, site: Site, progress: float, now_s: float) -> Lease:
        """Return how the job runs that begins on a site at a second, having made `progress`; refuses until defined."""
        raise NotImplementedError


class AgentFactory(Protocol):
    """Makes the agents of one run; its constructor's parameters are the `params` of an experiment."""

    #: Short name, as in the registry.
    name: ClassVar[str]

    def begin(self, cluster: Cluster) -> None:
        """Learn the cluster, before the first job is submitted; does nothing by default."""

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        """Make the agent of a job; raises `InputError` if the job is none for such an agent."""
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

    `version` changes whenever a model does, so that what was computed from it can be kept until then.
    """

    types: Mapping[str, TypeReport] = MappingProxyType({})
    version: int = 0

    def on(self, gpu_type: str) -> TypeReport:
        """Return what is known on a GPU type."""
        return self.types.get(gpu_type, _UNKNOWN)


def no_goodput(job_id: str) -> Problem:
    """Say that a policy reads what the agent of a job does not know."""
    message = f"the agent of job '{job_id}' fits no goodput model, which the policy reads"
    return Problem("agent", message, "choose an agent that fits one, such as 'goodput'")
