"""One pool per GPU type of a cluster, for policies designed for equal GPUs.

No job ever holds GPUs of two types. A running job belongs to the pool of its GPUs; a waiting one to the pool least in
demand among the types on which it can run.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from simsched.model import Cluster, Node
from simsched.policy import JobView, View
from simsched.policy.signals import ViewSignal
from simsched.words import counted

T = TypeVar("T")


class NarrowedView:
    """Shows another view with only some nodes up and some of its jobs."""

    def __init__(self, view: View, nodes: Collection[int], jobs: Mapping[str, JobView]) -> None:
        """Show `view` as if only `nodes` were up, with only `jobs`."""
        allowed = frozenset(nodes)
        self._view = view
        self.now_s = view.now_s
        self.jobs: Mapping[str, JobView] = jobs
        self.nodes: Sequence[Node] = view.nodes
        self.up: Sequence[bool] = [node.index in allowed for node in view.nodes]
        self.beside = view.beside
        self.free: Sequence[int] = [free if up else 0 for free, up in zip(view.free, self.up, strict=True)]
        self.arrived: Sequence[JobView] = self._of(view.arrived)
        self.finished: Sequence[str] = view.finished
        self.reached_threshold: Sequence[JobView] = self._of(view.reached_threshold)
        self.lost: Sequence[JobView] = self._of(view.lost)
        self.restart_delay_s = view.restart_delay_s
        self.max_jobs_per_gpu = view.max_jobs_per_gpu
        self.reasons = view.reasons

    def __repr__(self) -> str:
        """Describe in one line what it shows of the other view."""
        nodes = f"{sum(self.up)} of {counted(len(self.nodes), 'node')}"
        return f"<view of {nodes}, {counted(len(self.jobs), 'job')}, {sum(self.free)} GPUs free>"

    def _of(self, jobs: Sequence[JobView]) -> Sequence[JobView]:
        return [job for job in jobs if job.id in self.jobs]

    def __getitem__(self, signal: ViewSignal[T]) -> T:
        """Read a signal of the whole view."""
        return self._view[signal]


@dataclass(frozen=True)
class TypePool:
    """The part of a view that belongs to one GPU type."""

    gpu_type: str
    nodes: tuple[int, ...]
    jobs: Mapping[str, JobView]
    view: View

    @property
    def gpus_per_node(self) -> int:
        """Return the GPUs of the first node of the type."""
        return self.view.nodes[self.nodes[0]].gpus


def gpu_types(nodes: Sequence[Node]) -> list[str]:
    """List the GPU types in the order in which nodes first have them."""
    return list(dict.fromkeys(node.gpu_type for node in nodes))


def type_pools(
    view: View, *, count_down: bool = False, rigid: bool = False, home: Mapping[str, str] | None = None
) -> list[TypePool]:
    """Divide a view by GPU type, in the order of the nodes; with one type, the only pool shows the view itself.

    A waiting job joins the pool with the fewest GPUs asked for relative to the GPUs that are up (pools with none up
    come last; ties by the order of the types). With `count_down`, GPUs of nodes that are down count too, for policies
    that bring nodes up. With `rigid`, pools whose GPUs up can hold the job come first. `home` fixes the types of
    waiting jobs. Jobs that can run on no type of the cluster are in no pool.
    """
    types = gpu_types(view.nodes)
    nodes = {kind: tuple(node.index for node in view.nodes if node.gpu_type == kind) for kind in types}
    if len(types) == 1:
        return [TypePool(types[0], nodes[types[0]], view.jobs, view)]
    counted = {kind: nodes[kind] if count_down else _up(view, nodes[kind]) for kind in types}
    capacity = {kind: sum(view.nodes[node].gpus for node in counted[kind]) for kind in types}
    demand = dict.fromkeys(types, 0)
    pool_of: dict[str, str] = {}
    for job in view.jobs.values():
        if job.running:
            pool_of[job.id] = view.nodes[job.allocation[0][0]].gpu_type
            demand[pool_of[job.id]] += job.num_gpus
    for job in view.jobs.values():
        fitting = [kind for kind in types if job.facts.runs_on(kind)]
        if home and home.get(job.id) in fitting:
            fitting = [home[job.id]]
        if rigid:
            fitting = [kind for kind in fitting if capacity[kind] >= job.num_gpus] or fitting
        if job.id not in pool_of and fitting:
            best = min(fitting, key=lambda kind: (not capacity[kind], demand[kind] / max(capacity[kind], 1)))
            pool_of[job.id] = best
            demand[best] += job.num_gpus
    members: dict[str, dict[str, JobView]] = {kind: {} for kind in types}
    for job in view.jobs.values():
        if job.id in pool_of:
            members[pool_of[job.id]][job.id] = job
    return [
        TypePool(kind, nodes[kind], members[kind], NarrowedView(view, _up(view, nodes[kind]), members[kind]))
        for kind in types
    ]


def _up(view: View, nodes: Sequence[int]) -> list[int]:
    return [node for node in nodes if view.up[node]]


@dataclass(frozen=True)
class GpuMemory:
    """Memory of a GPU in MB by type; a type that is not listed has room for every job."""

    room_mb: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, cluster: Cluster) -> GpuMemory:
        """Return the memory of the GPUs of a cluster."""
        return cls(dict(cluster.memory_mb))

    def holds(self, gpu_type: str, *jobs: JobView) -> bool:
        """Return whether all of `jobs` fit on one GPU of a type; a job of unknown memory takes none."""
        return sum(job.memory_mb for job in jobs) <= self.room_mb.get(gpu_type, math.inf)
