"""The contract between the engine and whatever picks a job's batch size."""

from __future__ import annotations

from typing import ClassVar, NamedTuple, Protocol

from simsched.agent.report import GoodputReport
from simsched.model.application import ApplicationFacts, BatchChoice, GradientStats, StepTime
from simsched.model.cluster import Cluster
from simsched.model.job import JobRequest
from simsched.model.placement import Site


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
        """Return the fitted model of the job's goodput, None where the agent fits none."""


class AgentFactory(Protocol):
    """Makes the agents of one run; its constructor's parameters are the `params` of an experiment."""

    #: Short name, as in the registry.
    name: ClassVar[str]

    def begin(self, cluster: Cluster) -> None:
        """Learn the cluster, before the first job is submitted."""

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        """Make the agent of a job; raises `InputError` where the job is none for such an agent."""
        ...
