"""Fair sharing: all jobs get the same number of GPUs, as far as they can use them.

Idea: max-min fairness over GPUs, work-conserving: what one job cannot use goes to the others. It is the fair scheduler
that SLAQ (Zhang et al., SoCC'17) compares with, which divides the cores of the cluster equally among the jobs.

Deviations: GPUs are whole: the first jobs have one more than the others, and with more jobs than GPUs the last ones
wait. Batches stay as submitted. Each GPU type is divided separately (`simsched.toolkit.type_pools`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from simsched.agent import Agent
from simsched.model import Allocation, ApplicationFacts, JobRequest
from simsched.policy import Decision, Policy, Traits, View
from simsched.toolkit import available_gpus, type_pools, usable_gpus
from simsched.toolkit.elastic import place_counts, refuse_unknown_counts, share_evenly


@dataclass
class FairShare(Policy):
    """Divides the GPUs equally among the jobs, every `interval_s`."""

    name: ClassVar[str] = "fair-share"
    traits: ClassVar[Traits] = Traits(interval="interval_s", rigid=False)

    interval_s: int = 60

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        """Keep the batch as submitted; raises `InputError` for a job that can only run on its requested GPUs."""
        refuse_unknown_counts(self.name, request, facts)
        return super().agent(request, facts)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Count GPUs within each GPU type, then place the jobs whose count changed."""
        allocations: dict[str, Allocation] = {}
        for pool in type_pools(view):
            gpus = available_gpus(pool.view)
            most = [usable_gpus(job, gpus) for job in pool.jobs.values()]
            counts = share_evenly([0] * len(most), most, gpus)
            allocations |= place_counts(dict(zip(pool.jobs, counts, strict=True)), pool.view)
        return Decision(allocations)
