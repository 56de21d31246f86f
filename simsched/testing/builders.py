"""Test fixtures: applications with simple numbers, jobs, and views without an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from simsched.agent import Agent
from simsched.engine import EngineOptions, Granted, LossReporter, MemoryRecorder, simulate
from simsched.model import (
    FIXED_DURATION,
    Allocation,
    Application,
    ApplicationFacts,
    ApplicationSource,
    BatchLimits,
    Cluster,
    JobRequest,
    JobSpec,
    Node,
    Site,
)
from simsched.model.application import LossCurve, facts_of
from simsched.model.fitted import FittedApplication, NoiseCurve, Training
from simsched.model.job import JobTruth
from simsched.model.measured import Bounds, MeasuredApplication, ScalabilityRow, StepTable, TrainingCurve
from simsched.model.placement import NOTHING, Shape
from simsched.model.step_model import SevenParameters
from simsched.model.tabulated import FixedDuration
from simsched.model.throughput import ThroughputParams
from simsched.model.topology import site_of
from simsched.policy import JobView, Policy, Reasons, Signal
from simsched.policy.signals import LossReports, Speed, ViewSignal

T = TypeVar("T")


def toy_application(
    name: str = "toy",
    *,
    epochs: int = 4,
    iterations_per_epoch: float = 100.0,
    fixed_batch_size: int | None = None,
    max_gpus: int | None = None,
) -> MeasuredApplication:
    """Build a measured application that allows calculations by hand.

    On one node a micro-batch of b takes 0.1 + 0.01 b seconds, and synchronising n > 1 GPUs adds 0.05; on several nodes
    it adds 0.2. Batches run from 16 to 256 with 8 to 64 per GPU; the squared gradient norm is 1 and the variance 1: the
    gain at scale s is 2 / (1/s + 1). Placements on up to four nodes of up to four GPUs are known. The loss is 1 / (1 +
    epochs).
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
    falling = LossCurve((0.0, float(epochs)), (1.0, 1 / (1 + epochs)))
    tables = {shape: table(shape) for shape in shapes}
    return MeasuredApplication(name, tables, rows, curves, bounds=bounds, loss_curve=falling)


def two_type_application(name: str = "toy") -> FittedApplication:
    """Build an application with speeds on GPUs of type t4 and, twice as fast, v100.

    Batches range from 16 to 256 with 8 to 64 per GPU, as for `toy_application`.
    """
    slow = ThroughputParams(0.1, 0.01, 0.2, 0.01, 0.05, 0.01, 1.5)
    fast = ThroughputParams(0.05, 0.005, 0.1, 0.005, 0.025, 0.005, 1.5)
    batches = (16, 32, 64, 128, 256)
    training = Training(4, 100.0, NoiseCurve((0, 3), (16, 256), ((16.0, 32.0), (64.0, 128.0))), batches, (1.0,) * 5)
    models = {"t4": SevenParameters(slow), "v100": SevenParameters(fast)}
    falling = LossCurve((0.0, 4.0), (1.0, 0.2))
    return FittedApplication(name, BatchLimits(16, 256, 8, 64), training, models, loss_curve=falling)


class Applications:
    """Finds applications by name; jobs of fixed duration need none."""

    def __init__(self, *applications: Application) -> None:
        self._known = {app.name: app for app in applications}

    def for_job(self, request: JobRequest, truth: JobTruth) -> Application:
        """Return the application of a job."""
        return (
            FixedDuration(truth.duration_s)
            if request.application == FIXED_DURATION
            else self._known[request.application]
        )


def application_of(source: ApplicationSource, name: str, duration_s: int = 0) -> Application:
    """Return the application of a name; a fixed duration takes `duration_s`."""
    return source.for_job(JobRequest("job", 0, 1, name), JobTruth(duration_s))


def run(
    policy: Policy,
    jobs: Iterable[JobSpec],
    *,
    cluster: Cluster | None = None,
    applications: ApplicationSource | None = None,
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
    attained_gpu_s: float = 0
    held_s: float = 0
    age_s: float = 0
    starts: int = 0
    first_start_s: float | None = None
    epoch: int = 0
    progress: float = 0.0
    speeds: dict[Site, Speed] = field(default_factory=dict)
    neighbours: tuple[str, ...] = ()

    @property
    def request(self) -> JobRequest:
        """Return the submitted request."""
        return self.spec.request

    @property
    def truth(self) -> JobTruth:
        """Return the true values."""
        return self.spec.truth

    @property
    def facts(self) -> ApplicationFacts:
        """Return the known facts on the application."""
        return facts_of(self.app, self.request.shape)

    @property
    def live_progress(self) -> float:
        """Return the progress at this instant."""
        return self.progress

    @property
    def losses(self) -> Callable[[float], LossReports] | None:
        """Return the reports of its loss, None if there is no curve."""
        curve = self.app.loss_curve
        return None if curve is None else LossReporter(self.app, curve, np.random.default_rng(0)).reports

    @property
    def site(self) -> Site | None:
        """Return the placement of the job."""
        if not self.allocation:
            return None
        return site_of(self.cluster, self.allocation)


@dataclass
class FakeView:
    """A view without an engine."""

    cluster: Cluster
    jobs: dict[str, JobView] = field(default_factory=dict)
    now_s: float = 60
    up: Sequence[bool] = ()
    beside: Sequence[tuple[int, int]] | None = None
    arrived: Sequence[JobView] = ()
    finished: Sequence[str] = ()
    reached_threshold: Sequence[JobView] = ()
    lost: Sequence[JobView] = ()
    restart_delay_s: float = 30
    max_jobs_per_gpu: int = 1
    reasons: Reasons | None = None

    def __post_init__(self) -> None:
        """Mark every node as up by default."""
        self.up = self.up or [True] * len(self.cluster.nodes)

    def __getitem__(self, signal: ViewSignal[T]) -> T:
        """Return a signal of a cluster without history."""
        return Granted.at_first({signal}, self.cluster).view[signal]  # type: ignore[return-value]

    @property
    def nodes(self) -> Sequence[Node]:
        """Return the cluster's nodes."""
        return self.cluster.nodes

    @property
    def free(self) -> Sequence[int]:
        """Return the GPUs that jobs leave free."""
        free = [node.gpus if up else 0 for node, up in zip(self.nodes, self.up, strict=True)]
        for job in self.jobs.values():
            for node, gpus in job.allocation:
                free[node] -= gpus
        return free


def fake_job_view(job: FakeJob, granted: Iterable[Signal]) -> JobView:
    """Build the view of a job that shows the granted signals."""
    return JobView(job.request, job, Granted.at_first(set(granted), job.cluster).job)


def fresh_view(
    policy: Policy, jobs: Iterable[JobSpec], cluster: Cluster, applications: Applications
) -> tuple[FakeView, dict[str, FakeJob]]:
    """Build a view in which all jobs have just been submitted and none runs; the policy receives the cluster first.

    Returns the view and its jobs by id, which may be modified.
    """
    policy.begin(cluster)
    fakes: dict[str, FakeJob] = {}
    views: dict[str, JobView] = {}
    for spec in jobs:
        app = applications.for_job(spec.request, spec.truth)
        agent = policy.agent(spec.request, facts_of(app, spec.shape))
        fakes[spec.id] = FakeJob(spec, app, agent, cluster)
        views[spec.id] = fake_job_view(fakes[spec.id], policy.signals)
    return FakeView(cluster, views, arrived=list(views.values())), fakes


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
