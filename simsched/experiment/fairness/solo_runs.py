"""Simulates jobs alone on otherwise idle GPUs, the reference of finish-time fairness.

The engine runs them, so a solo job also waits for the policy's next decision and pays the restart delay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np

from simsched.agent import Agent, Prior, Shared, fixed_agent, goodput_agent, offline_priors
from simsched.engine import EngineOptions, MemoryRecorder, simulate
from simsched.errors import input_error
from simsched.model import (
    Allocation,
    Application,
    ApplicationFacts,
    ApplicationSource,
    Cluster,
    JobRequest,
    JobSpec,
    TabulatedJob,
    consolidated_shape,
)
from simsched.policy import Decision, Policy, Traits, View

#: `best`: the batch follows the known goodput; `submitted`: it stays as submitted.
Batch = Literal["best", "submitted"]


@dataclass
class _SoloPolicy(Policy):
    """Gives the only job all GPUs at its start, on as few nodes as possible."""

    name: ClassVar[str] = "solo"
    traits: ClassVar[Traits] = Traits(interval="interval_s", rigid=False)

    allocation: Allocation = ()
    interval_s: float | None = None
    batch: Batch = "best"
    shared: Shared = field(default_factory=Shared)
    priors: Mapping[str, Prior] = field(default_factory=dict)

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        """Adapt the batch to a known goodput, or keep it."""
        if self.batch == "submitted" or facts.limits is None:
            return fixed_agent(request, facts)
        return goodput_agent(request, facts, shared=self.shared, priors=self.priors)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Start the job, then leave it alone."""
        waiting = [job.id for job in view.jobs.values() if not job.running]
        return Decision.change(dict.fromkeys(waiting, self.allocation))


class SoloRuns:
    """Completion times of jobs alone on GPUs like the first node's; equal runs are simulated once."""

    def __init__(self, cluster: Cluster, applications: ApplicationSource, options: EngineOptions) -> None:
        """Prepare for a cluster; raises `InputError` if it mixes GPU types."""
        if len(cluster.gpu_types) > 1:
            types = ", ".join(cluster.gpu_types)
            message = f"an equal share of GPUs of several types ({types}) is not defined"
            raise input_error("finish_time_fairness", message, "leave it out, or take the definition 'gavel'")
        self._node = cluster.nodes[0]
        self._total_gpus = cluster.total_gpus
        self._applications = applications
        self._options = replace(options, interference=0.0, initial_nodes=None)
        self._known: dict[tuple[object, ...], float] = {}
        self._priors: dict[str, Mapping[str, Prior]] = {}
        self._shared = Shared()

    def profile_s(self, job: JobSpec) -> float:
        """Return a job's profiled seconds alone, without delays; raises `InputError` without a table of rates."""
        app = self._applications.for_job(job.request, job.truth)
        if not isinstance(app, TabulatedJob):
            message = f"job '{job.id}' ({app.name}) has no profile"
            raise input_error("finish_time_fairness.batch", message, "take 'best' or 'submitted'")
        return sum(app.profile_s(self._node.gpu_type))

    def seconds(self, job: JobSpec, gpus: int, batch: Batch, interval_s: float | None) -> float:
        """Return a job's completion time alone on `gpus` GPUs, or as many as it can use.

        `interval_s` is the policy's (None: it decides at events). Without batch size a job runs on its requested GPUs;
        on fewer, its work takes proportionally longer.
        """
        app = self._applications.for_job(job.request, job.truth)
        wait_s = 0 if interval_s is None else max(-(-job.submit_time_s // interval_s), 1) * interval_s
        wait_s -= 0 if interval_s is None else job.submit_time_s
        if app.limits is None:
            longer = replace(job, duration_s=round(job.duration_s * max(1.0, job.num_gpus / gpus)))
            return wait_s + self._run(longer, app, min(job.num_gpus, self._total_gpus), batch, interval_s)
        return wait_s + self._run(job, app, min(gpus, self._most(job, app, batch)), batch, interval_s)

    def _most(self, job: JobSpec, app: Application, batch: Batch) -> int:
        assert app.limits is not None
        submitted = job.batch_size or app.limits.init_batch_size
        examples = app.fixed_batch_size or (app.limits.max_batch_size if batch == "best" else submitted)
        most = max(min(examples // app.limits.min_local_bsz, self._total_gpus), 1)
        return most if app.max_gpus is None else min(most, app.max_gpus)

    def _run(self, job: JobSpec, app: Application, gpus: int, batch: Batch, interval_s: float | None) -> float:
        """Simulate the job, submitted exactly at a decision so that equal jobs give equal times."""
        if app.limits is None:
            kind: object = job.duration_s, job.total_steps, job.batch_size, job.batch_rule
        else:
            kind = batch if batch == "best" else job.batch_size
        what = job.application, kind, gpus, interval_s
        if what not in self._known:
            shape = consolidated_shape(gpus, self._node.gpus)
            policy = _SoloPolicy(tuple(enumerate(shape)), interval_s, batch, self._shared, self._prior(app, batch))
            alone = replace(job, submit_time_s=interval_s or 0)
            room = Cluster.uniform(len(shape), self._node.gpus, self._node.gpu_type)
            found = MemoryRecorder()
            simulate(room, [alone], self._applications, policy, self._options, 0, found)
            self._known[what] = found.jobs[0].jct_s
        return self._known[what]

    def _prior(self, app: Application, batch: Batch) -> Mapping[str, Prior]:
        if batch != "best" or app.limits is None:
            return {}
        if app.name not in self._priors:
            self._priors[app.name] = offline_priors(app, Cluster((self._node,)))
        return self._priors[app.name]
