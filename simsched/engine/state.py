"""The state of jobs and cluster, changed only by the ledger; their checkpoints. Times are in ticks.

A job pauses for a checkpoint at intervals of running, and planned preemption saves too. When a node or the job fails,
progress falls back to the last completed save.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from types import MappingProxyType

from simsched.agent import Agent, Lease, LeasingAgent
from simsched.engine.clock import Appointment, Clock
from simsched.engine.holders import Holders
from simsched.model import (
    Allocation,
    Application,
    ApplicationFacts,
    BatchChoice,
    Cluster,
    JobRequest,
    NodeShape,
    Site,
)
from simsched.model.application import NO_BATCH, Running
from simsched.model.capacity import beside_of
from simsched.model.job import JobTruth
from simsched.model.outages import AttemptPlan
from simsched.model.placement import NOTHING, describe
from simsched.model.plans import Plan
from simsched.model.topology import Route, site_of
from simsched.policy import JobView
from simsched.policy.signals import LossReports, Speed


@dataclass(slots=True, eq=False)
class Recovery:
    """The last checkpoint of a job, and its losses."""

    #: Ticks of running between checkpoints (infinite for none), and the ticks each takes.
    _interval: float
    cost: float
    #: The failures of the job itself, and the remaining ticks of each attempt.
    plan: AttemptPlan
    _left: list[float]
    #: The attempts that have failed.
    attempt: int = 0
    _unsaved: float = 0
    _unsaved_gpu: float = 0
    #: Ticks spent on checkpoints.
    checkpointing: float = 0
    #: Whether a checkpoint is being written, and whether the next interruption is a failure of the job itself.
    writing: bool = False
    fails_next: bool = False
    #: The last saved progress and its epoch.
    saved: float = 0.0
    saved_epoch: int = 0
    #: Lost running time in ticks and in GPU-ticks, and the node failures met.
    lost: float = 0
    lost_gpu: float = 0
    failures: int = 0

    @property
    def gives_up(self) -> bool:
        """Return whether the attempt that just failed was the last."""
        return self.plan.gives_up and self.attempt == len(self._left) - 1

    def settle(self, job: JobState, ticks: float) -> None:
        """Account for time passed in the current configuration."""
        if self.writing:
            self.checkpointing += ticks
        elif job.running is not None:
            self._unsaved += ticks
            self._unsaved_gpu += ticks * job.gpus
            if self.attempt < len(self._left):
                self._left[self.attempt] -= ticks * self._pace(job)

    def interruption(self, job: JobState) -> float:
        """Return the ticks until the next checkpoint or own failure."""
        due = max(self._interval - self._unsaved, 0)
        failing = inf
        if self.attempt < len(self._left):
            failing = max(self._left[self.attempt] / self._pace(job), 0)
            if not job.clock.continuous:
                failing = round(failing)
        self.fails_next = failing <= due
        return min(due, failing)

    def save(self, job: JobState) -> None:
        """Save a job's current progress."""
        self.writing = False
        self.saved, self.saved_epoch = job.progress, job.epoch
        self._unsaved = self._unsaved_gpu = 0

    def fall_back(self, job: JobState) -> None:
        """Roll a job back to its last checkpoint."""
        self.writing = False
        self.lost += self._unsaved
        self.lost_gpu += self._unsaved_gpu
        self._unsaved = self._unsaved_gpu = 0
        job.progress, job.epoch = self.saved, self.saved_epoch

    def _pace(self, job: JobState) -> float:
        """Return the rate at which an attempt runs out: that of a replayed job's work, or of time."""
        return job.rate if self.plan.keeps else 1.0


class ClusterState:
    """The free GPUs by node index."""

    def __init__(self, cluster: Cluster, initial_nodes: int | None = None, max_jobs_per_gpu: int = 1) -> None:
        #: The holders of single GPUs, None without sharing.
        self.occupancy = (
            Holders([node.gpus for node in cluster.nodes], max_jobs_per_gpu) if max_jobs_per_gpu > 1 else None
        )
        self.cluster = cluster
        first = len(cluster.nodes) if initial_nodes is None else initial_nodes
        #: Which nodes are up; a new list at every change makes changes cheap to detect.
        self.up = [node.index < first for node in cluster.nodes]
        self.free = [node.gpus if node.index < first else 0 for node in cluster.nodes]
        #: The cores and memory taken on each node; None if no node declares any and no job needs exclusive nodes.
        self.beside: list[tuple[int, int]] | None = None
        if any(node.cpu_milli is not None or node.memory_mib is not None for node in cluster.nodes):
            self.beside = [(0, 0)] * len(cluster.nodes)
        self.size = len(cluster.nodes)
        self.available_gpus = sum(self.free)
        #: Nodes that are up or starting.
        self.provisioned_nodes = sum(self.up)
        #: Requested nodes that are not up yet, each with its start event.
        self.starting: dict[int, Appointment] = {}
        #: Broken nodes with their number of causes, and those that come back once repaired.
        self.broken: dict[int, int] = {}
        self.returning: set[int] = set()
        self.failures = 0
        self.allocated_gpus = 0
        self.running_jobs = 0
        #: Job starts and node requests so far.
        self.job_starts = self.node_starts = 0
        self._several_makes = len({(node.gpus, node.gpu_type) for node in cluster.nodes}) > 1
        self.several_types = len(cluster.gpu_types) > 1
        #: The last site of each type and shape, its GPUs and nodes; on one node or without levels the only one.
        self._sites: dict[tuple[str, tuple[int, ...]], tuple[Site, int, int]] = {}

    def take(
        self, job_id: str, allocation: Allocation, beside: Collection[str] = (), onto: str | None = None
    ) -> tuple[Site, int, int]:
        """Add a holder to GPUs of one type, next to others if GPUs are shared; return site, GPUs and nodes."""
        node, gpus = allocation[0]
        shape: tuple[int, ...] = (gpus,)
        if allocation[1:]:
            _, shape = zip(*allocation, strict=True)
        key = self.cluster.nodes[node].gpu_type, shape
        if key not in self._sites or (self.cluster.levels and allocation[1:]):
            self._sites[key] = site_of(self.cluster, allocation), sum(shape), len(shape)
        site = self._sites[key]
        self.running_jobs += 1
        self.job_starts += 1
        if self.occupancy is not None:
            short = self.occupancy.take(job_id, allocation, beside, onto)
            assert short is None, short  # the decision was checked before
            self._recount(allocation)
            return site
        self.allocated_gpus += site[1]
        for node, gpus in allocation:
            self.free[node] -= gpus
        return site

    def count_beside(self, shape: NodeShape, allocation: Allocation, sign: int) -> None:
        """Take, or with a `sign` of -1 give back, the cores and memory of a shape for its GPUs."""
        if self.beside is None and not shape.exclusive:
            return
        if self.beside is None:
            self.beside = [(0, 0)] * len(self.up)
        for node, (cpu, memory) in beside_of(self.cluster.nodes, shape, allocation):
            had = self.beside[node]
            self.beside[node] = had[0] + sign * cpu, had[1] + sign * memory

    @cached_property
    def provisioned_gpus(self) -> Mapping[str, float]:
        """Count the provisioned GPUs by type; empty if all nodes are equal, since the node count suffices."""
        counts: dict[str, float] = {}
        for node in self.cluster.nodes if self._several_makes else ():
            on = self.up[node.index] or node.index in self.starting
            counts[node.gpu_type] = counts.get(node.gpu_type, 0.0) + (node.gpus if on else 0)
        return MappingProxyType(counts)

    def _provision_anew(self) -> None:
        self.__dict__.pop("provisioned_gpus", None)

    def start(self, node: int, appointment: Appointment) -> None:
        """Start a node that is down."""
        self.node_starts += 1
        self.provisioned_nodes += 1
        self.starting[node] = appointment
        self._provision_anew()

    def bring_up(self, node: int) -> None:
        """Bring up an empty node."""
        if self.starting.pop(node, None) is None:
            self.provisioned_nodes += 1
        self._switch(node, 1)

    def _switch(self, node: int, sign: int) -> None:
        """Count an empty node as up, or with a `sign` of -1 as down."""
        self._provision_anew()
        self.up = [*self.up[:node], sign > 0, *self.up[node + 1 :]]
        gpus = self.cluster.nodes[node].gpus
        self.available_gpus += sign * gpus
        self.free[node] = gpus if sign > 0 else 0

    def take_down(self, node: int) -> None:
        """Release an empty or starting node."""
        if node in self.starting:
            self.starting.pop(node).callbacks = []
            self.provisioned_nodes -= 1
            self._provision_anew()
        elif self.up[node]:
            self.provisioned_nodes -= 1
            self._switch(node, -1)

    def break_down(self, node: int) -> None:
        """Mark an empty node as broken; once repaired it comes back if it was up or starting."""
        self.failures += 1
        self.broken[node] = self.broken.get(node, 0) + 1
        if self.up[node] or node in self.starting:
            self.returning.add(node)
            self.take_down(node)

    def repair(self, node: int) -> None:
        """Repair one cause; the node works again once none is left."""
        self.broken[node] -= 1
        if not self.broken[node]:
            del self.broken[node]
            if node in self.returning:
                self.returning.remove(node)
                self.bring_up(node)

    def give_back(self, job_id: str, allocation: Allocation) -> None:
        """Remove a holder from GPUs."""
        self.running_jobs -= 1
        if self.occupancy is not None:
            self.occupancy.give_back(job_id)
            self._recount(allocation)
            return
        for node, gpus in allocation:
            self.free[node] += gpus
            self.allocated_gpus -= gpus

    def _recount(self, allocation: Allocation) -> None:
        assert self.occupancy is not None
        for node, _ in allocation:
            free = self.occupancy.free(node)
            self.allocated_gpus += self.free[node] - free
            self.free[node] = free


@dataclass(slots=True)
class Leasing:
    """A job's leasing agent, its current lease with the start, and whether the last one is over."""

    agent: LeasingAgent
    lease: Lease | None = None
    began: float = 0
    paused: bool = False


class JobState:
    """The full state of a submitted, unfinished job.

    A job with GPUs is restarting, running (as `running` since `since`, at `rate` progress per second) or at a
    breakpoint; `appointment` is its next event. Service is settled up to `since`, and properties add the rest. Times
    are in ticks unless named otherwise. `speeds` are by site; `losses` is None if nothing reads them. What few jobs
    change is a class attribute, since setting it would cost time for every job of a long trace.
    """

    agent: Agent
    view: JobView
    #: Whether it has only GPUs and seconds and only the policy affects it; it then starts as soon as it is placed.
    plain = False
    #: Set if the agent grants leases, and if anything can fail.
    leasing: Leasing | None = None
    recovery: Recovery | None = None
    batch: BatchChoice = NO_BATCH
    rate: float = 0.0
    #: The share of its speed that the job loses to jobs on its nodes, and its speed next to others on its GPUs.
    interference: float = 0.0
    speed: float = 1.0
    #: Its speed on slow nodes, and the share that it loses to jobs that share uplinks with it.
    slow: float = 1.0
    congestion: float = 0.0
    route: Route = Route()
    gpu_share: float = 1.0
    neighbours: tuple[str, ...] = ()
    #: Whether sharing may not slow it down (as submitted unless overridden), and if guaranteed jobs come `first`.
    guaranteed: bool
    first: bool = False
    #: Whether the policy has declined its deadline.
    declined: bool = False
    #: Ticks with GPUs excluded from the time limit, and ticks spent on restarts.
    limit_from: float = 0
    restart: float = 0
    speeds: dict[Site, Speed] | None = None
    losses: Callable[[float], LossReports] | None = None
    #: The plan of parallel training that the policy named (None: the agent picks).
    plan: Plan | None = None

    def __init__(
        self,
        request: JobRequest,
        truth: JobTruth,
        app: Application,
        facts: ApplicationFacts,
        clock: Clock,
        cluster: Cluster,
        submitted: float | None = None,
    ) -> None:
        self.request, self.truth, self.app, self.facts = request, truth, app, facts
        self.clock, self.cluster = clock, cluster
        self.submitted = clock.ticks(request.submit_time_s) if submitted is None else submitted
        self.guaranteed = request.guaranteed
        self.allocation: Allocation = NOTHING
        self.site: Site | None = None
        self.gpus = self.nodes = 0
        self.since: float = 0
        self.running: Running | None = None
        self.appointment: Appointment | None = None
        #: Progress so far, and at the end of the epoch that runs.
        self.progress = self.epoch_end = 0.0
        self.epoch = self.starts = 0
        self.first_start: float | None = None
        self.settled_gpu: float = 0
        self.settled_held: float = 0

    def __repr__(self) -> str:
        return f"<job {self.request.id}: {describe(self.allocation) or 'waits'}, epoch {self.epoch}>"

    @property
    def held_s(self) -> float:
        """Seconds during which the job held GPUs."""
        clock = self.clock
        return clock.seconds(self.settled_held + (clock.now - self.since if self.allocation else 0))

    @property
    def attained_gpu(self) -> float:
        """Service attained, in GPU-ticks."""
        return self.settled_gpu + (self.gpus * (self.clock.now - self.since) if self.gpus else 0)

    @property
    def attained_gpu_s(self) -> float:
        """Service attained, in GPU-seconds."""
        return self.attained_gpu * self.clock.unit_s

    @property
    def age_s(self) -> float:
        """Seconds since submission."""
        return self.clock.seconds(self.clock.now - self.submitted)

    @property
    def first_start_s(self) -> float | None:
        """The time at which the job first held GPUs, None before."""
        return None if self.first_start is None else self.first_start * self.clock.unit_s

    @property
    def paused(self) -> bool:
        """Whether it holds GPUs after a lease has ended, or writes a checkpoint."""
        if self.leasing is not None and self.leasing.paused:
            return True
        return self.recovery is not None and self.recovery.writing

    @property
    def undisturbed(self) -> float:
        """The share of its speed that others and slow nodes leave it."""
        return (1 - self.interference) * self.speed * self.slow * (1 - self.congestion)

    @property
    def live_progress(self) -> float:
        """Current progress."""
        if self.running is None:
            return self.progress
        if self.leasing is not None and self.leasing.lease is not None:
            return self.leasing.lease.progress(self.clock.now_s)
        return self.progress + self.rate * ((self.clock.now - self.since) * self.clock.unit_s)


def gpu_type_of(cluster: Cluster, allocation: Allocation) -> str | None:
    """Return the GPU type of an allocation, None if mixed."""
    if len(allocation) == 1:
        return cluster.nodes[allocation[0][0]].gpu_type
    types = {cluster.nodes[node].gpu_type for node, _ in allocation}
    return types.pop() if len(types) == 1 else None


def nodes_shared_by_distributed(jobs: Sequence[JobState]) -> set[int]:
    """Return the nodes used by more than one distributed job."""
    users = Counter(node for job in jobs if len(job.allocation) > 1 for node, _ in job.allocation)
    return {node for node, count in users.items() if count > 1}
