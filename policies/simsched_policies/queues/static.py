"""Static: every job runs on the same fixed number of GPUs of one node, first come, first served.

Idea: hyper-parameter tuning without support from the scheduler: each trial keeps a fixed share of the cluster, at the
batch size submitted. It is the baseline of Pollux's search for hyper-parameters (Qiao et al., OSDI'21, section 5.4 and
Table 3: four GPUs on one node per trial, at a fixed batch per GPU).

Deviations: none that matter; a job that cannot use that many GPUs at its batch gets as many as it can.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from simsched.agent import Agent, fixed_agent
from simsched.model import Allocation, ApplicationFacts, BatchLimits, Cluster, JobRequest
from simsched.policy import Decision, JobView, Policy, Traits, View
from simsched.toolkit.elastic import refuse_unknown_counts


@dataclass
class Static(Policy):
    """Gives every job `gpus` GPUs on one node, in order of arrival; the first that finds no room blocks the rest.

    If no node has that many GPUs, it gets all of the largest. The total batch is `batch_per_gpu` for each of the `gpus`
    (None: as submitted), within what the application accepts.
    """

    name: ClassVar[str] = "static"
    traits: ClassVar[Traits] = Traits(rigid=False)

    gpus: int = 4
    batch_per_gpu: int | None = None
    _largest: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        """Check the parameters."""
        if self.gpus < 1:
            raise ValueError(f"gpus must be at least 1, not {self.gpus}")
        if self.batch_per_gpu is not None and self.batch_per_gpu < 1:
            raise ValueError(f"batch_per_gpu must be at least 1, not {self.batch_per_gpu}")

    def begin(self, cluster: Cluster) -> None:
        """Look for the largest node."""
        self._largest = max(node.gpus for node in cluster.nodes)

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        """Keep the batch fixed; raises `InputError` for a job that can only run on the GPUs that it asks for."""
        if request.num_gpus != min(self.gpus, self._largest):
            refuse_unknown_counts(self.name, request, facts)
        limits = facts.limits
        if self.batch_per_gpu is None or limits is None:
            return fixed_agent(request, facts)
        return fixed_agent(request._replace(batch_size=self._batch(limits)), facts)

    def _batch(self, limits: BatchLimits) -> int:
        wanted = self.gpus * (self.batch_per_gpu or 0)
        return min(max(wanted, limits.init_batch_size), limits.max_batch_size)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Start waiting jobs while there is room; running jobs stay."""
        if view.reasons is not None:
            view.reasons.order({job.id: job.request.submit_time_s for job in view.jobs.values()})
        free = list(view.free)
        started: dict[str, Allocation] = {}
        for job in view.jobs.values():
            if job.running:
                continue
            gpus = min(self._share(job), self._largest)
            node = next(
                (node.index for node in view.nodes if free[node.index] >= gpus and job.facts.runs_on(node.gpu_type)),
                None,
            )
            if node is None:
                break
            free[node] -= gpus
            started[job.id] = ((node, gpus),)
        return Decision.change(started)

    def _share(self, job: JobView) -> int:
        most = self.gpus if job.max_gpus is None else min(self.gpus, job.max_gpus)
        if job.limits is None:
            return most
        own = job.request.batch_size or job.limits.init_batch_size
        batch = job.fixed_batch_size or (own if self.batch_per_gpu is None else self._batch(job.limits))
        return max(min(most, batch // job.limits.min_local_bsz), 1)
