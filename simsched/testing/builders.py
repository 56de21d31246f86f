"""Small worlds for tests: applications with easy numbers, jobs, views without an engine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from simsched.agent.agent import Agent
from simsched.engine.options import EngineOptions
from simsched.engine.records import MemoryRecorder
from simsched.engine.remaining import TrueRemainingWork
from simsched.engine.simulation import simulate
from simsched.model.application import Application, BatchLimits, StepTime
from simsched.model.cluster import Cluster, Node
from simsched.model.fixed import FixedDuration
from simsched.model.job import FIXED_DURATION, JobSpec
from simsched.model.measured import Bounds, MeasuredApplication, ScalabilityRow, StepTable, TrainingCurve
from simsched.model.placement import NOTHING, Allocation, Shape
from simsched.policy.contract import Policy
from simsched.policy.signals import Signal
from simsched.policy.view import JobView


def toy_application(
    name: str = "toy",
    *,
    epochs: int = 4,
    iterations_per_epoch: float = 100.0,
    fixed_batch_size: int | None = None,
    max_gpus: int | None = None,
) -> MeasuredApplication:
    """Make a measured application whose numbers can be worked by hand.

    On one node a micro-batch of b takes 0.1 + 0.01 b seconds, and synchronising n > 1 GPUs adds 0.05; on several nodes
    it adds 0.2. Batches run from 16 to 256 with 8 to 64 per GPU; the squared gradient norm is 1 and the variance 1, so
    the gain at scale s is 2 / (1/s + 1). Placements on up to four nodes of up to four GPUs are known.
    """
    sizes = (8, 64)

    def table(shape: Shape) -> StepTable:
        sync = 0.2 if len(shape) > 1 else 0.05 if sum(shape) > 1 else 0.0
        return StepTable(sizes, tuple(0.1 + 0.01 * b + sync for b in sizes), (sync,) * len(sizes))

    shapes: list[Shape] = [(n,) for n in range(1, 5)]
    shapes += [(a, b) for a in range(1, 5) for b in range(a, 5)]
    shapes += [(a, b, c) for a in range(1, 5) for b in range(a, 5) for c in range(a, 5)]
    shapes += [(a, b, c, d) for a in range(1, 5) for b in range(a, 5) for c in range(a, 5) for d in range(a, 5)]
    rows = [
        ScalabilityRow(nodes, gpus, b, 0.3 + 0.01 * b, 0.2)
        for nodes in (5, 8, 16)
        for gpus in (nodes, 4 * nodes)
        for b in sizes
    ]
    curves = [
        TrainingCurve(
            batch,
            tuple(iterations_per_epoch * (e + 1) for e in range(epochs)),
            tuple(iterations_per_epoch * (e + 1) * (1 / (batch / 16) + 1) / 2 for e in range(epochs)),
            (1.0,) * epochs,
            (1.0,) * epochs,
        )
        for batch in (16, 32, 64, 128, 256)
    ]
    bounds = Bounds(fixed_batch_size=fixed_batch_size, max_gpus=max_gpus)
    return MeasuredApplication(name, {shape: table(shape) for shape in shapes}, rows, curves, bounds=bounds)


class Applications:
    """Finds applications by name; jobs of fixed duration need none."""

    def __init__(self, *applications: Application) -> None:
        """Know these."""
        self._known = {app.name: app for app in applications}

    def for_job(self, name: str, duration_s: int) -> Application:
        """Return the application of a job."""
        return FixedDuration(duration_s) if name == FIXED_DURATION else self._known[name]


def run(
    policy: Policy,
    jobs: Iterable[JobSpec],
    *,
    cluster: Cluster | None = None,
    applications: Applications | None = None,
    options: EngineOptions | None = None,
    seed: int = 1,
) -> MemoryRecorder:
    """Simulate with the invariants checked, and keep the records."""
    recorder = MemoryRecorder()
    simulate(
        cluster or Cluster.uniform(2, 4),
        list(jobs),
        applications or Applications(toy_application()),
        policy,
        options or EngineOptions(),
        seed,
        recorder,
        check_invariants=True,
    )
    return recorder


@dataclass
class FakeJob:
    """A job for a view without an engine."""

    spec: JobSpec
    app: Application
    agent: Agent
    cluster: Cluster
    allocation: Allocation = NOTHING
    attained_gpu_s: int = 0
    held_s: int = 0
    age_s: int = 0
    starts: int = 0
    first_start_s: int | None = None

    @property
    def limits(self) -> BatchLimits | None:
        """The application's batch limits."""
        return self.app.limits

    @property
    def max_gpus(self) -> int | None:
        """The application's bound on GPUs."""
        return self.app.max_gpus

    @property
    def fixed_batch_size(self) -> int | None:
        """The application's only batch size."""
        return self.app.fixed_batch_size

    @property
    def report(self) -> object:
        """The agent's report."""
        return self.agent.report

    @property
    def remaining(self) -> TrueRemainingWork:
        """The whole job's work."""
        return TrueRemainingWork(self.spec, self.app, 0, 0.0, self.cluster)

    def step_time(self, shape: Shape, local_bsz: int) -> StepTime:
        """Return the true step time."""
        return self.app.step_time(shape, local_bsz, self.cluster.nodes[0].gpu_type)


@dataclass
class FakeView:
    """A view without an engine."""

    cluster: Cluster
    jobs: dict[str, JobView] = field(default_factory=dict)
    now_s: int = 60
    up: Sequence[bool] = ()
    arrived: Sequence[JobView] = ()
    finished: Sequence[str] = ()
    crossed: Sequence[JobView] = ()
    restart_delay_s: int = 30
    service_history_gpu_s: Sequence[int] = ()

    def __post_init__(self) -> None:
        """Let every node be up unless told otherwise."""
        self.up = self.up or [True] * len(self.cluster.nodes)

    @property
    def nodes(self) -> Sequence[Node]:
        """The cluster's nodes."""
        return self.cluster.nodes

    @property
    def free(self) -> Sequence[int]:
        """Count what jobs leave free."""
        free = [node.gpus if up else 0 for node, up in zip(self.nodes, self.up, strict=True)]
        for job in self.jobs.values():
            for node, gpus in job.allocation:
                free[node] -= gpus
        return free


def fresh_view(policy: Policy, jobs: Iterable[JobSpec], cluster: Cluster, applications: Applications) -> FakeView:
    """Make a view in which all jobs have just been submitted and none runs."""
    granted: frozenset[Signal] = policy.needs
    views: dict[str, JobView] = {}
    for spec in jobs:
        app = applications.for_job(spec.application, spec.duration_s)
        views[spec.id] = JobView(FakeJob(spec, app, policy.agent(spec, app), cluster), granted)
    return FakeView(cluster, views, arrived=list(views.values()))


def random_jobs(rng: np.random.Generator, count: int, *, most_gpus: int, application: str = "toy") -> list[JobSpec]:
    """Draw jobs of one application, or of fixed duration, that arrive in bursts."""
    submits = np.cumsum(rng.integers(0, 120, count) * (rng.random(count) < 0.6))
    jobs = []
    for i, submit_s in enumerate(submits):
        gpus = int(rng.integers(1, most_gpus + 1))
        spec = JobSpec(f"job-{i}", int(submit_s), gpus, duration_s=int(rng.integers(1, 600)))
        if application != FIXED_DURATION:
            batch = int(rng.choice([size for size in (16, 32, 64, 128, 256) if size >= 8 * gpus]))
            spec = replace(spec, application=application, batch_size=batch)
        jobs.append(spec)
    return jobs
