"""Or-elastic: adds workers while each step adds enough throughput, ignoring statistical efficiency.

Idea: resource elasticity driven by throughput (Or, Zhang and Freedman, "Resource elasticity in distributed deep
learning", MLSys'20). A job begins on a few workers and measures its throughput R on k of them. The scaling efficiency
of a step from k' to k workers is s = ((R - R') / (k - k')) / (R' / k'). If s exceeds 0.1 another step follows;
otherwise the step is undone. The batch is chosen for throughput alone: the largest per GPU that fits, up to the largest
in all. Progress still follows the true statistical efficiency. It is the baseline of autoscaling in Pollux (OSDI'21,
section 5.4).

Published defaults: steps of 4 workers from 4 workers, 100 batches measured at each size, threshold 0.1. Which of them
Pollux used is not published; its Figure 9 shows 4 nodes of 4 GPUs for 0.9 ks and then all 16 nodes.

Deviations: workers come in whole nodes, provisioned when needed and released when their job is done; steps count nodes;
measurements have no noise, hence no straggler detection or averaging. The paper's rule covers one job; here several are
served in order of arrival, and each grows into the free nodes of one GPU type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from simsched.agent import Agent, UnlearningAgent
from simsched.errors import input_error
from simsched.model import Allocation, ApplicationFacts, BatchChoice, BatchLimits, Cluster, JobRequest, Site
from simsched.model.batch import batch_for_target
from simsched.policy import Decision, JobView, Policy, Traits, Triggers, View
from simsched.policy.signals import MEASURED_SPEEDS, Speed
from simsched.toolkit import TypePool, type_pools
from simsched.toolkit.elastic import required_limits, tell_allocations


class ThroughputAgent(UnlearningAgent):
    """Runs a job at the batch with the largest throughput: as many examples on each GPU as fit."""

    def __init__(self, limits: BatchLimits, fixed_batch_size: int | None) -> None:
        """Choose within the batch limits, or keep the only batch size."""
        self.limits = limits
        self.fixed_batch_size = fixed_batch_size

    def choose(self, site: Site, epoch: int) -> BatchChoice:
        """Fill the GPUs, up to the largest batch allowed."""
        limits, gpus = self.limits, site.gpus
        largest = max(min(limits.max_local_bsz * gpus, limits.max_batch_size), limits.init_batch_size)
        return batch_for_target(limits, self.fixed_batch_size or largest, gpus)


@dataclass
class _Growth:
    """How far a job is scaled out: the nodes wanted, since when, and whether that is final."""

    nodes: int
    since_s: float
    tried: list[int] = field(default_factory=list)  # GPUs of the steps so far
    final: bool = False


@dataclass
class OrElastic(Policy):
    """Scales jobs out node by node while the relative gain in throughput of a step exceeds `threshold`.

    A job starts on `start_nodes` nodes and grows by `step_nodes`, each size held for at least `min_batches` iterations.
    """

    name: ClassVar[str] = "or-elastic"
    traits: ClassVar[Traits] = Traits(scales=True, needs={MEASURED_SPEEDS}, rigid=False)

    start_nodes: int = 1
    step_nodes: int = 1
    threshold: float = 0.1
    min_batches: int = 100
    interval_s: int = 60
    _growth: dict[str, _Growth] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        """Check the parameters."""
        if self.start_nodes < 1 or self.step_nodes < 1:
            raise ValueError("start_nodes and step_nodes must be at least 1")
        if self.min_batches < 0 or not 0 <= self.threshold <= 1:
            raise ValueError("min_batches must not be negative and threshold must lie in [0, 1]")

    @property
    def triggers(self) -> Triggers:
        """Decide every `interval_s`, and when nodes have come up."""
        return Triggers(interval_s=self.interval_s, node_change=True)

    def begin(self, cluster: Cluster) -> None:
        """Refuse a first step of more nodes than any GPU type has."""
        most = max(sum(node.gpu_type == kind for node in cluster.nodes) for kind in cluster.gpu_types)
        if self.start_nodes > most:
            message = f"start_nodes is {self.start_nodes}, and the cluster has {most} nodes of one GPU type"
            raise input_error("policy 'or-elastic'", message, f"give at most {most}")

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        """Let every job run at its largest throughput; refuse jobs described only by a duration."""
        limits = required_limits(self.name, "a batch-size model", request, facts)
        return ThroughputAgent(limits, facts.fixed_batch_size)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Rent the nodes that the jobs want, and give each its nodes once all of them are up."""
        for job_id in view.finished:
            self._growth.pop(job_id, None)
        pools = type_pools(view, count_down=True)
        untaken = {pool.gpu_type: _untaken(pool) for pool in pools}
        type_of = {job_id: pool.gpu_type for pool in pools for job_id in pool.jobs}
        provisioned: list[int] = []
        allocations: dict[str, Allocation] = {}
        for job in view.jobs.values():
            nodes = self._nodes(job, view, untaken[type_of[job.id]])
            provisioned += nodes
            ready = nodes and all(view.up[node] for node in nodes)
            held = _whole(job, nodes, view) if ready else job.allocation
            if held:
                allocations[job.id] = held
        if view.reasons is not None:
            tell_allocations(view.jobs, allocations, view.reasons)
        wanted = sorted({*provisioned, *(node for held in allocations.values() for node, _ in held)})
        return Decision(allocations, nodes=wanted or [0])

    def _nodes(self, job: JobView, view: View, untaken: list[int]) -> list[int]:
        """Pick the nodes of a job, those it holds first, and remove them from the free ones."""
        own = [node for node, _ in job.allocation]
        growth = self._growth.get(job.id)
        if growth is None:
            growth = self._growth[job.id] = _Growth(self.start_nodes, view.now_s)
        self._grow(job, growth, view, len(own) + len(untaken))
        if len(own) + len(untaken) < min(growth.nodes, self.start_nodes):
            return own  # too few for a start
        found = (own + untaken)[: growth.nodes]
        for node in found:
            if node in untaken:
                untaken.remove(node)
        return found

    def _grow(self, job: JobView, growth: _Growth, view: View, room: int) -> None:
        """Take one more step, undo the last one, or change nothing."""
        speeds = {site.gpus: speed for site, speed in job[MEASURED_SPEEDS].items()}
        gpus = sum(count for _, count in job.allocation)
        if not gpus or len(job.allocation) != min(growth.nodes, room):
            growth.since_s = view.now_s
            return
        if growth.final or gpus not in speeds:
            return
        needed_s = view.restart_delay_s + self.min_batches * speeds[gpus].iteration_s
        if view.now_s - growth.since_s < needed_s:
            return
        if gpus not in growth.tried:
            growth.tried.append(gpus)
        if len(growth.tried) > 1 and scaling_efficiency(speeds, *growth.tried[-2:]) <= self.threshold:
            growth.final = True
            growth.nodes = max(len(job.allocation) - self.step_nodes, self.start_nodes)
        elif len(job.allocation) < room and gpus < _most_gpus(job):
            growth.nodes = min(len(job.allocation) + self.step_nodes, room)
        growth.since_s = view.now_s


def scaling_efficiency(speeds: Mapping[int, Speed], fewer: int, more: int) -> float:
    """Return s = ((R - R') / (k - k')) / (R' / k') of a step from `fewer` to `more` GPUs."""
    before = speeds[fewer].throughput
    return (speeds[more].throughput - before) / (more - fewer) / (before / fewer)


def _untaken(pool: TypePool) -> list[int]:
    """List the free nodes of a type, those that are up first."""
    taken = {node for job in pool.jobs.values() for node, _ in job.allocation}
    rest = [node for node in pool.nodes if node not in taken]
    return sorted(rest, key=lambda node: (not pool.view.up[node], node))


def _most_gpus(job: JobView) -> int:
    """Count the GPUs that the job can use at its largest batch."""
    limits = job.limits
    assert limits is not None  # `agent` refuses jobs without
    most = (job.fixed_batch_size or limits.max_batch_size) // limits.min_local_bsz
    return most if job.max_gpus is None else min(most, job.max_gpus)


def _whole(job: JobView, nodes: list[int], view: View) -> Allocation:
    """Take all GPUs of nodes, as far as the job can use them."""
    left = _most_gpus(job)
    taken: list[tuple[int, int]] = []
    for node in nodes:
        gpus = min(view.nodes[node].gpus, left)
        if gpus:
            taken.append((node, gpus))
            left -= gpus
    return tuple(taken)
