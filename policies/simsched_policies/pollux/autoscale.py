"""Pollux in a cloud: rents as many nodes as its jobs' goodput is worth.

Idea: the utility of the nodes rented is the sum over jobs of goodput over goodput on one GPU, divided by the GPUs. One
GPU for every job makes it 1; it falls as jobs are spread thin. Where it rises above a threshold, nodes are added until
it is near a target, where it falls below another one, nodes go (Qiao et al., OSDI'21, section 4.2.2). With one job,
`low_utility` 0, `high_utility` U = 2/3, `target_utility` L = 1/2 and `window` 1, this is the paper's rule for a single
training job: scale out whenever max GOODPUT(a) / SUM(a) > U max GOODPUT(1). The default band of 0.35 to 0.65, averaged
over 15 rounds with its middle as the target, is that of the published simulator for many jobs.

Within the nodes, Pollux allocates as it always does. A node that is to leave is left out of its search, so jobs move
away in the same round; the nodes that hold the most GPUs in use stay. Nodes to come are counted as soon as they are
asked for, and no further change is made until they are up.

Deviations: candidate numbers of nodes are compared by running Pollux's own search on each that a bisection visits, as
the published simulator does, so the exploration limit (at most twice the GPUs that a job has run on) bounds how far one
step scales out. While no job is in the system the policy is not asked, and what is rented stays.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from simsched.model.cluster import Node
from simsched.policy import Decision, JobView, Triggers, View
from simsched_policies.pollux.policy import Pollux
from simsched_policies.pollux.search import Round, SearchOptions, search
from simsched_policies.pollux.tables import ONE_NODE, SEVERAL_NODES

Ints = NDArray[np.int64]


class _Narrowed:
    """A view in which only some nodes are up."""

    def __init__(self, view: View, nodes: Collection[int]) -> None:
        """Show `view`, but with just `nodes` up."""
        self._view = view
        self.now_s = view.now_s
        self.jobs: Mapping[str, JobView] = view.jobs
        self.nodes: Sequence[Node] = view.nodes
        self.up: Sequence[bool] = [node.index in nodes for node in view.nodes]
        self.free: Sequence[int] = [free if up else 0 for free, up in zip(view.free, self.up, strict=True)]
        self.arrived: Sequence[JobView] = view.arrived
        self.finished: Sequence[str] = view.finished
        self.crossed: Sequence[JobView] = view.crossed
        self.restart_delay_s = view.restart_delay_s

    @property
    def service_history_gpu_s(self) -> Sequence[int]:
        """Show what the whole view shows, if it was asked for."""
        return self._view.service_history_gpu_s


@dataclass
class PolluxAutoscale(Pollux):
    """Pollux on a number of nodes that follows the utility of its allocation.

    Nodes are added when the mean utility of the last `window` rounds exceeds `high_utility` and let go when it is below
    `low_utility`; in both cases so many are rented that the utility comes closest to `target_utility` (None: the middle
    of the two). There are always `min_nodes` at least. The other parameters are those of Pollux.
    """

    name: ClassVar[str] = "pollux-autoscale"

    low_utility: float = 0.35
    high_utility: float = 0.65
    target_utility: float | None = None
    window: int = 15
    min_nodes: int = 1
    _wanted: frozenset[int] | None = field(default=None, init=False, repr=False)
    _recent: deque[float] = field(default_factory=deque, init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse bands that no utility could stay in."""
        super().__post_init__()
        if not 0 <= self.low_utility <= self._target <= self.high_utility <= 1:
            message = "low_utility, target_utility and high_utility must ascend within 0 to 1"
            raise ValueError(message)
        if self.window < 1 or self.min_nodes < 1:
            message = "window and min_nodes must be at least 1"
            raise ValueError(message)

    @property
    def triggers(self) -> Triggers:
        """Decide every `interval_s`, and when nodes have come up."""
        return Triggers(interval_s=self.interval_s, capacity=True)

    @property
    def _target(self) -> float:
        middle = (self.low_utility + self.high_utility) / 2
        return middle if self.target_utility is None else self.target_utility

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Decide how many nodes to rent, then allocate those of them that are up."""
        if not view.jobs:
            return super().decide(view, rng)
        up = frozenset(node.index for node in view.nodes if view.up[node.index])
        if self._wanted is None:
            self._wanted = up or frozenset(_preferred(view)[: self.min_nodes])
        settled = self._wanted == up
        if settled:
            self._wanted = self._resize(view, rng)
        decision = super().decide(_Narrowed(view, self._wanted & up), rng)
        utility = self._utility_of(decision, view)
        if settled and self._wanted == up:
            self._recent.append(utility)
        else:
            self._recent.clear()
        numbers = {**decision.diagnostics, "utility": utility, "nodes_wanted": float(len(self._wanted))}
        return replace(decision, keep_up=tuple(sorted(self._wanted)), diagnostics=numbers)

    def _resize(self, view: View, rng: np.random.Generator) -> frozenset[int]:
        """Give the nodes to rent: those up, unless the utility has left the band."""
        assert self._wanted is not None
        if len(self._recent) < self.window:
            return self._wanted
        while len(self._recent) > self.window:
            self._recent.popleft()
        mean, now = sum(self._recent) / len(self._recent), len(self._wanted)
        order = _preferred(view)
        least = min(self.min_nodes, len(order))
        if mean > self.high_utility and now < len(order):
            return self._closest(view, rng, order, now, len(order))
        if mean < self.low_utility and now > least:
            return self._closest(view, rng, order, least, now)
        return self._wanted

    def _closest(
        self, view: View, rng: np.random.Generator, order: Sequence[int], low: int, high: int
    ) -> frozenset[int]:
        """Bisect for the number of nodes, between two, whose utility comes closest to the target.

        Utility falls with the number of nodes, apart from the noise of the search.
        """
        known: dict[int, float] = {}
        first, last = low, high
        while last - first > 1:
            middle = (first + last) // 2
            known[middle] = self._forecast(view, rng, order[:middle])
            first, last = (middle, last) if known[middle] > self._target else (first, middle)
        for count in (first, last):
            if count not in known:
                known[count] = self._forecast(view, rng, order[:count])
        best = min((first, last), key=lambda count: (abs(known[count] - self._target), count))
        return frozenset(order[:best])

    def _forecast(self, view: View, rng: np.random.Generator, nodes: Collection[int]) -> float:
        """Give the utility that Pollux would reach on these nodes."""
        problem = self._round(_in_order(view), _Narrowed(view, nodes))
        found = search(problem, method=self.method, seed_or_rng=rng, options=SearchOptions(effort=self.effort))
        return utility(problem, found.allocation)

    def _round(self, jobs: Sequence[JobView], view: View) -> Round:
        """Describe a round; a job on a node that leaves is as good as one that holds nothing."""
        problem = super()._round(jobs, view)
        leaves = problem.current @ (problem.node_gpus == 0) > 0
        return replace(problem, current=np.where(leaves[:, None], 0, problem.current))

    def _utility_of(self, decision: Decision, view: View) -> float:
        assert self._wanted is not None
        jobs = _in_order(view)
        problem = self._round(jobs, _Narrowed(view, self._wanted))
        allocation = np.zeros_like(problem.current)
        for row, job in zip(allocation, jobs, strict=True):
            for node, gpus in decision.allocations.get(job.id, ()):
                row[node] = gpus
        return utility(problem, allocation)


def utility(problem: Round, allocation: Ints) -> float:
    """Give the sum over jobs of goodput over goodput on one GPU, divided by all GPUs; 0 without GPUs.

    `allocation` has shape [jobs, nodes]. This is SUM(SPEEDUP) / GPUs of Pollux, section 4.2.2, speedups over one GPU.
    """
    gpus, nodes = allocation.sum(axis=1), (allocation > 0).sum(axis=1)
    total = int(problem.node_gpus.sum())
    rows = np.arange(len(gpus))
    own = problem.speedup[rows, np.where(nodes > 1, SEVERAL_NODES, ONE_NODE), gpus]
    single = problem.speedup[:, ONE_NODE, 1]
    worth = np.divide(own, single, out=np.zeros_like(own), where=single > 0)
    return float(worth.sum()) / total if total else 0.0


def _in_order(view: View) -> list[JobView]:
    return sorted(view.jobs.values(), key=lambda job: (job.attained_gpu_s, job.spec.submit_time_s))


def _preferred(view: View) -> list[int]:
    """Order the nodes by how much they should be kept: those up first, the busiest of them in front."""
    used = [0] * len(view.nodes)
    for job in view.jobs.values():
        for node, gpus in job.allocation:
            used[node] += gpus
    return sorted(range(len(used)), key=lambda node: (not view.up[node], -used[node], node))
