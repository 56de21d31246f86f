"""Pollux in a cloud: provisions nodes while the goodput of its jobs justifies them.

Idea: the utility of the provisioned nodes is the sum over jobs of goodput relative to one GPU, divided by the number of
GPUs. It is 1 with one GPU for every job and falls as jobs scale out. Above one threshold, nodes are added until it is
near a target; below another, nodes are released (Qiao et al., OSDI'21, section 4.2.2). With one job, `low_utility` 0,
`high_utility` U = 2/3, `target_utility` L = 1/2 and `window` 1, this is the paper's rule for a single training job:
scale out whenever max GOODPUT(a) / SUM(a) > U max GOODPUT(1). The default band of 0.35 to 0.65, averaged over 15 rounds
with its middle as the target, is that of the published simulator for many jobs.

On the provisioned nodes Pollux allocates as usual. Its search excludes a node about to be released, which moves its
jobs away in the same round; the nodes with the most GPUs in use stay. Nodes count once they are requested, and no
further nodes are requested or released until they are up.

Deviations: a bisection compares numbers of nodes by running Pollux's own search on each, as the published simulator
does; the exploration limit (at most twice the GPUs that a job has run on) thus bounds one step. While the system is
empty the policy is not called, and the provisioned nodes stay.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from simsched.policy import Decision, JobView, Traits, Triggers, View
from simsched.toolkit import NarrowedView, TypePool, type_pools
from simsched_policies.adaptive.pollux.policy import Pollux, by_service
from simsched_policies.adaptive.pollux.search import AllocationProblem, SearchOptions, search
from simsched_policies.adaptive.pollux.tables import ONE_NODE, SEVERAL_NODES

Ints = NDArray[np.integer[Any]]


@dataclass
class _Size:
    """The provisioned nodes of a type: which ones are wanted, and the utility at recent decisions."""

    wanted: frozenset[int]
    recent: deque[float] = field(default_factory=deque)


@dataclass
class PolluxAutoscale(Pollux):
    """Pollux on a number of nodes that follows the utility of its allocation.

    Nodes are added when the mean utility of the last `window` rounds exceeds `high_utility` and released when it is
    below `low_utility`, to bring it closest to `target_utility` (None: the middle of the two), never below `min_nodes`.
    The other parameters are those of Pollux.
    """

    name: ClassVar[str] = "pollux-autoscale"
    traits: ClassVar[Traits] = replace(Pollux.traits, scales=True)

    low_utility: float = 0.35
    high_utility: float = 0.65
    target_utility: float | None = None
    window: int = 15
    min_nodes: int = 1
    _sizes: dict[str, _Size] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        """Check that the utility band is valid."""
        super().__post_init__()
        if not 0 <= self.low_utility <= self._target <= self.high_utility <= 1:
            raise ValueError("low_utility, target_utility and high_utility must ascend within 0 to 1")
        if self.window < 1 or self.min_nodes < 1:
            raise ValueError("window and min_nodes must be at least 1")

    @property
    def triggers(self) -> Triggers:
        """Decide every `interval_s`, and when nodes have come up."""
        return Triggers(interval_s=self.interval_s, node_change=True)

    @property
    def _target(self) -> float:
        middle = (self.low_utility + self.high_utility) / 2
        return middle if self.target_utility is None else self.target_utility

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Decide how many nodes of each type to provision, then allocate the nodes that are up."""
        self._take_in(view)
        if not view.jobs:
            return Decision({})
        pools = type_pools(view)
        settled = {pool.gpu_type: self._resized(pool, rng) for pool in pools}
        open_pools = [_narrowed(pool, self._sizes[pool.gpu_type].wanted & _up(pool)) for pool in pools]
        decision = self._allocate([pool for pool in open_pools if pool.jobs], rng)
        utilities = {pool.gpu_type: self._utility_of(decision, pool) for pool in pools}
        for pool in pools:
            size = self._sizes[pool.gpu_type]
            if settled[pool.gpu_type] and size.wanted == _up(pool):
                size.recent.append(utilities[pool.gpu_type])
            else:
                size.recent.clear()
        numbers = dict(decision.diagnostics)
        for pool in pools:
            kind = "" if len(pools) == 1 else f"[{pool.gpu_type}]"
            numbers[f"utility{kind}"] = utilities[pool.gpu_type]
            numbers[f"nodes_wanted{kind}"] = float(len(self._sizes[pool.gpu_type].wanted))
        target = sorted(node for size in self._sizes.values() for node in size.wanted)
        return decision._replace(nodes=target, diagnostics=numbers)

    def _resized(self, pool: TypePool, rng: np.random.Generator) -> bool:
        """Choose the nodes to provision unless some are still starting, and return whether all wanted nodes were up."""
        up = _up(pool)
        size = self._sizes.get(pool.gpu_type)
        if size is None:
            first = up or frozenset(_preferred(pool)[: self.min_nodes])
            size = self._sizes[pool.gpu_type] = _Size(first)
        settled = size.wanted == up
        if settled:
            size.wanted = self._resize(pool, size, rng)
        return settled

    def _resize(self, pool: TypePool, size: _Size, rng: np.random.Generator) -> frozenset[int]:
        """Return the nodes to provision: those already up, unless the utility has left the band."""
        order = _preferred(pool)
        least = min(self.min_nodes, len(order))
        if not pool.jobs:
            return frozenset(order[:least])
        if len(size.recent) < self.window:
            return size.wanted
        while len(size.recent) > self.window:
            size.recent.popleft()
        mean, now = sum(size.recent) / len(size.recent), len(size.wanted)
        if mean > self.high_utility and now < len(order):
            return self._closest(pool, rng, order, now, len(order))
        if mean < self.low_utility and now > least:
            return self._closest(pool, rng, order, least, now)
        return size.wanted

    def _closest(
        self, pool: TypePool, rng: np.random.Generator, order: Sequence[int], low: int, high: int
    ) -> frozenset[int]:
        """Bisect between two numbers of nodes for the one whose utility comes closest to the target.

        Utility falls with the number of nodes, apart from the noise of the search.
        """
        known: dict[int, float] = {}
        first, last = low, high
        while last - first > 1:
            middle = (first + last) // 2
            known[middle] = self._forecast(pool, rng, order[:middle])
            first, last = (middle, last) if known[middle] > self._target else (first, middle)
        for count in (first, last):
            if count not in known:
                known[count] = self._forecast(pool, rng, order[:count])
        best = min((first, last), key=lambda count: (abs(known[count] - self._target), count))
        return frozenset(order[:best])

    def _forecast(self, pool: TypePool, rng: np.random.Generator, nodes: Collection[int]) -> float:
        """Return the utility that Pollux would reach on these nodes, nodes that are down included."""
        problem = self._problem(by_service(pool.jobs.values()), _narrowed(pool, nodes))
        found = search(problem, method=self.method, seed_or_rng=rng, options=SearchOptions(effort=self.effort))
        return utility(problem, found.allocation)

    def _problem(self, jobs: Sequence[JobView], pool: TypePool) -> AllocationProblem:
        """Describe a decision; a job on a node about to be released counts as holding nothing."""
        problem = super()._problem(jobs, pool)
        leaves = problem.current[:, problem.node_gpus == 0].sum(axis=1) > 0
        return replace(problem, current=np.where(leaves[:, None], 0, problem.current))

    def _utility_of(self, decision: Decision, pool: TypePool) -> float:
        jobs = by_service(pool.jobs.values())
        if not jobs:
            return 0.0
        problem = self._problem(jobs, _narrowed(pool, self._sizes[pool.gpu_type].wanted))
        columns = {node: column for column, node in enumerate(pool.nodes)}
        allocation, wanted = np.zeros_like(problem.current), decision.allocations
        for row, job in zip(allocation, jobs, strict=True):
            for node, gpus in wanted.get(job.id, ()):
                row[columns[node]] = gpus
        return utility(problem, allocation)


def utility(problem: AllocationProblem, allocation: Ints) -> float:
    """Return the sum over jobs of goodput over goodput on one GPU, divided by all GPUs; 0 without GPUs.

    `allocation` has shape [jobs, nodes]. This is SUM(SPEEDUP) / GPUs of Pollux, section 4.2.2, with speedups over one
    GPU.
    """
    gpus, nodes = allocation.sum(axis=1), (allocation > 0).sum(axis=1)
    total = int(problem.node_gpus.sum())
    rows = np.arange(len(gpus))
    own = problem.speedup[rows, np.where(nodes > 1, SEVERAL_NODES, ONE_NODE), gpus]
    single = problem.speedup[:, ONE_NODE, 1]
    worth = np.divide(own, single, out=np.zeros_like(own), where=single > 0)
    return float(worth.sum()) / total if total else 0.0


def _narrowed(pool: TypePool, nodes: Collection[int]) -> TypePool:
    """Return the pool as if only these of its nodes were up."""
    return replace(pool, view=NarrowedView(pool.view, nodes, pool.jobs))


def _up(pool: TypePool) -> frozenset[int]:
    return frozenset(node for node in pool.nodes if pool.view.up[node])


def _preferred(pool: TypePool) -> list[int]:
    """Order the nodes by how much they are worth keeping: those up first, the busiest in front."""
    used = dict.fromkeys(pool.nodes, 0)
    for job in pool.jobs.values():
        for node, gpus in job.allocation:
            used[node] += gpus
    return sorted(pool.nodes, key=lambda node: (not pool.view.up[node], -used[node], node))
