"""The agent of a job that trains a large model: keeps its global batch, and picks the plan for the GPUs it got."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from simsched.agent.agent import UnlearningAgent
from simsched.model import BatchChoice, Site, consolidated_shape

if TYPE_CHECKING:
    from simsched.model.plans import LargeModel, Plan


@dataclass
class PlanAgent(UnlearningAgent):
    """Runs the plan asked for where its GPUs are those it takes, else the fastest.

    With `tight` it is the one that would be the fastest on full nodes side by side, wherever the GPUs lie.
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
