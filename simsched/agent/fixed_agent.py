"""The agents of jobs whose total batch size stays as submitted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from simsched.agent.agent import Agent, AgentFactory, UnlearningAgent
from simsched.model import ApplicationFacts, BatchChoice, BatchLimits, JobRequest, Site
from simsched.model.application import NO_BATCH
from simsched.model.batch import batch_for_target
from simsched.model.placement import consolidated_shape

if TYPE_CHECKING:
    from simsched.model.plans import LargeModel, Plan


@dataclass
class PlanAgent(UnlearningAgent):
    """Runs the requested plan if the job has the GPUs that it takes, else the fastest plan.

    With `tight` it runs the plan that is fastest on adjacent full nodes, wherever the GPUs are.
    """

    plans: LargeModel
    asked: Plan | None
    global_batch: int
    tight: bool = False

    def choose(self, site: Site, epoch: int) -> BatchChoice:
        """Return a plan for a site, with its micro-batches."""
        fits = self.asked is not None and self.asked.gpus == site.gpus
        if self.tight:
            site = Site(consolidated_shape(site.gpus, self.plans.node_gpus(site.gpu_type)), site.gpu_type)
        plan = self.asked if fits else self.plans.best(site, self.global_batch).plan
        assert plan is not None
        return BatchChoice.of_plan(plan, self.global_batch)


@dataclass
class FixedBatchAgent(UnlearningAgent):
    """Keeps the total batch at `target`, accumulating gradients if the GPUs are few."""

    limits: BatchLimits
    target: int

    def choose(self, site: Site, epoch: int) -> BatchChoice:
        """Split the target over the GPUs."""
        return batch_for_target(self.limits, self.target, site.gpus)


class NoBatchAgent(UnlearningAgent):
    """The agent of a job that has no batch size to choose."""

    def choose(self, site: Site, epoch: int) -> BatchChoice:
        """Choose nothing."""
        return NO_BATCH


_NO_BATCH_AGENT = NoBatchAgent()


def fixed_agent(request: JobRequest, facts: ApplicationFacts) -> Agent:
    """Create the agent that keeps a job at the batch size submitted.

    Without one, it keeps the application's own, or the least that the requested GPUs can hold.

    A job with plans runs the requested plan on the GPUs that it takes, and the fastest on others.
    """
    if facts.plans is not None:
        return PlanAgent(facts.plans, request.plan, request.batch_size or facts.plans.global_batch)
    if facts.limits is None:
        return _NO_BATCH_AGENT
    least = max(facts.limits.init_batch_size, facts.limits.min_local_bsz * request.num_gpus)
    target = request.batch_size or facts.fixed_batch_size or min(least, facts.limits.max_batch_size)
    return FixedBatchAgent(facts.limits, target)


@dataclass
class FixedBatch(AgentFactory):
    """Keeps every job at its submitted batch size."""

    name: ClassVar[str] = "fixed-batch"

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        """Create the agent of a job."""
        return fixed_agent(request, facts)


@dataclass
class BestPlan(AgentFactory):
    """Keeps every job at its batch size as `fixed-batch` does, and runs the fastest plan, whichever was requested.

    `on` selects its site, or the same number of GPUs on adjacent full nodes, as a user who tunes a job in advance
    would.
    """

    name: ClassVar[str] = "best-plan"
    on: Literal["site", "full-nodes"] = "site"

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        """Create the agent of a job."""
        if facts.plans is None:
            return fixed_agent(request, facts)
        batch = request.batch_size or facts.plans.global_batch
        return PlanAgent(facts.plans, None, batch, tight=self.on == "full-nodes")
