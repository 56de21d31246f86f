"""The state of jobs and cluster; changed by the ledger alone."""

from __future__ import annotations

from collections.abc import Sequence

from simsched.agent.agent import Agent
from simsched.engine.clock import Appointment, Clock
from simsched.model.application import NO_BATCH, Application, ApplicationFacts, Running
from simsched.model.cluster import Cluster
from simsched.model.job import JobSpec
from simsched.model.placement import NOTHING, Allocation, Site
from simsched.policy.signals import Speed
from simsched.policy.view import JobView


class ClusterState:
    """Which GPUs are free, by node index."""

    def __init__(self, cluster: Cluster, initial_nodes: int | None = None) -> None:
        """Start with the first `initial_nodes` nodes (None: all) up and empty."""
        self.cluster = cluster
        first = len(cluster.nodes) if initial_nodes is None else initial_nodes
        self.up = [node.index < first for node in cluster.nodes]
        self.free = [node.gpus if node.index < first else 0 for node in cluster.nodes]
        self.available_gpus = sum(self.free)
        self.nodes_up = sum(self.up)
        #: Nodes that have been asked for and are not up yet, with what will bring them up.
        self.starting: dict[int, Appointment] = {}
        self.allocated_gpus = 0
        self.running_jobs = 0

    def take(self, allocation: Allocation) -> None:
        """Mark GPUs as held by one more job."""
        self.running_jobs += 1
        for node, gpus in allocation:
            self.free[node] -= gpus
            self.allocated_gpus += gpus

    @property
    def provisioned_nodes(self) -> int:
        """Count the nodes that are up or starting."""
        return self.nodes_up + len(self.starting)

    def bring_up(self, node: int) -> None:
        """Let a node join, empty."""
        self.starting.pop(node, None)
        self.up[node] = True
        self.nodes_up += 1
        self.free[node] = self.cluster.nodes[node].gpus
        self.available_gpus += self.free[node]

    def take_down(self, node: int) -> None:
        """Let an empty node go, or one that is still starting."""
        if node in self.starting:
            self.starting.pop(node).cancel()
        elif self.up[node]:
            self.up[node] = False
            self.nodes_up -= 1
            self.available_gpus -= self.cluster.nodes[node].gpus
            self.free[node] = 0

    def give_back(self, allocation: Allocation) -> None:
        """Mark GPUs as free, held by one job less."""
        self.running_jobs -= 1
        for node, gpus in allocation:
            self.free[node] += gpus
            self.allocated_gpus -= gpus


class JobState:
    """All that is known of one submitted, unfinished job.

    A job that holds GPUs is in one of three conditions: restarting, running (`running` says how since
    `since_s`, at `rate` progress per second), or at a breakpoint inside the current instant. `appointment` is what
    happens to it next. Service is settled up to `since_s`; the properties add what has passed since. `speeds` are what
    the job has measured by site, None where nobody asks for it.
    """

    __slots__ = (
        "agent",
        "allocation",
        "app",
        "appointment",
        "batch",
        "clock",
        "cluster",
        "epoch",
        "facts",
        "first_start_s",
        "gpus",
        "progress",
        "rate",
        "request",
        "restart_s",
        "running",
        "settled_gpu_s",
        "settled_held_s",
        "since_s",
        "site",
        "slowdown",
        "speeds",
        "starts",
        "truth",
        "view",
        "watch",
        "watch_gpu_s",
    )

    def __init__(self, spec: JobSpec, app: Application, facts: ApplicationFacts, clock: Clock, cluster: Cluster) -> None:
        """Begin as submitted and waiting."""
        self.request = spec.request
        self.truth = spec.truth
        self.app = app
        self.facts = facts
        self.clock = clock
        self.cluster = cluster
        self.allocation: Allocation = NOTHING
        self.site: Site | None = None
        self.gpus = 0
        self.batch = NO_BATCH
        self.since_s = 0
        self.running: Running | None = None
        self.rate = 0.0
        self.slowdown = 0.0
        self.progress = 0.0
        self.epoch = 0
        self.starts = 0
        self.first_start_s: int | None = None
        self.settled_gpu_s = 0
        self.settled_held_s = 0
        self.restart_s = 0
        self.appointment: Appointment | None = None
        self.watch_gpu_s = 0
        self.watch: Appointment | None = None
        self.speeds: dict[Site, Speed] | None = None
        self.agent: Agent
        self.view: JobView

    @property
    def held_s(self) -> int:
        """Seconds for which the job has held GPUs."""
        return self.settled_held_s + (self.clock.now_s - self.since_s if self.gpus else 0)

    @property
    def attained_gpu_s(self) -> int:
        """Service attained, in GPU-seconds."""
        return self.settled_gpu_s + (self.gpus * (self.clock.now_s - self.since_s) if self.gpus else 0)

    @property
    def age_s(self) -> int:
        """Seconds since submission."""
        return self.clock.now_s - self.request.submit_time_s

    @property
    def live_progress(self) -> float:
        """Progress at this instant."""
        if self.running is None:
            return self.progress
        return self.progress + self.rate * (self.clock.now_s - self.since_s)


def gpu_type_of(cluster: Cluster, allocation: Allocation) -> str | None:
    """Return the GPU type of an allocation, None where it mixes several."""
    types = {cluster.nodes[node].gpu_type for node, _ in allocation}
    return types.pop() if len(types) == 1 else None


def nodes_shared_by_distributed(jobs: Sequence[JobState]) -> set[int]:
    """Find the nodes that more than one distributed job uses."""
    seen: set[int] = set()
    shared: set[int] = set()
    for job in jobs:
        if len(job.allocation) > 1:
            nodes = {node for node, _ in job.allocation}
            shared |= seen & nodes
            seen |= nodes
    return shared
