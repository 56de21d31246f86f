"""CES: idle nodes sleep, and wake before or when jobs need them, under any queueing policy.

Idea: the cluster energy saving service of Helios (Hu et al., SC'21, section 4.3). Two checks control the nodes. When
waiting jobs do not fit on the nodes that are awake, the nodes that they need wake, plus `spare_nodes`. Every
`check_interval_s`, all free nodes but `spare_nodes` go to sleep if no job waits, and if the number of nodes in use has
risen by less than `recent_rise` over the last `recent_s` and is forecast to rise by less than `future_rise` over the
next `ahead_s` (0: no forecast). Another policy orders the jobs and sees only the nodes that are awake.

Deviations: the paper forecasts the nodes in use by gradient-boosted trees on the time of day and past values; here the
forecast is the use one day earlier, scaled to today's level (`simsched.toolkit.node_demand`). Nodes that the forecast
needs also stay awake. All defaults but the ten minutes between checks are ours. A job waits `engine.node_start_s` for
the nodes woken for it; nodes sleep at once. Only GPUs count, not CPU jobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar, Literal

import numpy as np

from simsched.agent import Agent
from simsched.model import ApplicationFacts, Cluster, JobRequest
from simsched.policy import Decision, Policy, Signal, Traits, Triggers, View
from simsched.toolkit import PlacerName
from simsched.toolkit.node_demand import NodeDemand, nodes_to_wake
from simsched_policies.queues.by_key import Fifo, Sjf
from simsched_policies.queues.qssf import Qssf

#: The orders in which jobs may start: policies that never take a running job off its GPUs.
ORDERS: Mapping[str, type[Fifo] | type[Sjf] | type[Qssf]] = MappingProxyType({"fifo": Fifo, "sjf": Sjf, "qssf": Qssf})


@dataclass
class Ces(Policy):
    """Runs jobs in the order of another policy, on as few awake nodes as the demand and its forecast allow."""

    name: ClassVar[str] = "ces"
    traits: ClassVar[Traits] = Traits(scales=True)

    order: Literal["fifo", "sjf", "qssf"] = "fifo"
    placement: PlacerName = "consolidated"
    spare_nodes: int = 1
    check_interval_s: int = 600
    recent_s: float = 3600.0
    recent_rise: int = 1
    ahead_s: float = 10_800.0
    future_rise: int = 1
    season_s: float = 86_400.0
    _inner: Policy = field(init=False, repr=False)
    _demand: NodeDemand = field(init=False, repr=False)
    _next_check_s: float = field(default=0.0, init=False, repr=False)
    _awake: set[int] | None = field(default=None, init=False, repr=False)
    _starting: set[int] = field(default_factory=set, init=False, repr=False)

    def __post_init__(self) -> None:
        """Check the parameters."""
        if self.spare_nodes < 0 or self.recent_rise < 0 or self.future_rise < 0:
            raise ValueError("spare_nodes, recent_rise and future_rise must not be negative")
        if self.check_interval_s <= 0 or self.recent_s <= 0 or self.ahead_s <= 0 or self.season_s < self.ahead_s:
            raise ValueError("check_interval_s, recent_s and ahead_s must be above 0, and season_s at least ahead_s")
        self._inner = ORDERS[self.order](placement=self.placement)
        self._demand = NodeDemand(self.season_s)

    @property
    def signals(self) -> frozenset[Signal]:
        """Return the signals of the ordering policy."""
        return self._inner.signals

    @property
    def triggers(self) -> Triggers:
        """Decide at every event and at every check, also while the system is empty."""
        return Triggers(
            interval_s=self.check_interval_s, arrival=True, completion=True, node_change=True, quiet=True
        )  # fmt: skip

    def begin(self, cluster: Cluster) -> None:
        """Pass the cluster on to the ordering policy."""
        self._inner.begin(cluster)

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        """Return the agent of the ordering policy."""
        return self._inner.agent(request, facts)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Start jobs on awake nodes, wake nodes for waiting jobs, and at a check put free nodes to sleep."""
        awake = self._take_in(view)
        decision = self._inner.decide(view, rng)
        free = list(view.free)
        for allocation in decision.allocations.values():
            for node, gpus in allocation:
                free[node] -= gpus
        used = sum(up and free[node.index] < node.gpus for node, up in zip(view.nodes, view.up, strict=True))
        self._demand.record(view.now_s, used)
        woken = self._woken(view, decision, free, awake)
        numbers = {"nodes_in_use": float(used)}
        slept: set[int] = set()
        if view.now_s >= self._next_check_s:
            self._next_check_s = (view.now_s // self.check_interval_s + 1) * self.check_interval_s
            numbers["nodes_forecast"] = float(self._demand.peak(view.now_s, self.ahead_s, self.check_interval_s))
            if not woken:
                slept = self._slept(view, decision, free, awake, int(numbers["nodes_forecast"]) - used)
        if not woken and not slept:
            return decision._replace(diagnostics=numbers)
        self._starting |= woken
        awake |= woken
        awake -= slept
        self._starting -= slept
        return decision._replace(nodes=sorted(awake), diagnostics=numbers)

    def _take_in(self, view: View) -> set[int]:
        """Return the nodes that should be awake, and note which of them have come up."""
        up = {node.index for node in view.nodes if view.up[node.index]}
        if self._awake is None:
            self._awake = set(up)
        self._starting -= up
        return self._awake

    def _woken(self, view: View, decision: Decision, free: list[int], awake: set[int]) -> set[int]:
        """Return the nodes to wake for the waiting jobs, including spare ones."""
        asleep = [node.index for node in view.nodes if node.index not in awake]
        waiting = [job for job in view.jobs.values() if not job.running and job.id not in decision.jobs]
        if not asleep or not waiting:
            return set()
        room = [node.gpus if node.index in self._starting else free[node.index] for node in view.nodes]
        needed = nodes_to_wake(waiting, view.nodes, room, asleep)
        if not needed:
            stands_still = len(waiting) == len(view.jobs) and not self._starting
            return set(asleep) if stands_still else set()  # the placer has further constraints than room
        rest = [node for node in asleep if node not in needed]
        return {*needed, *rest[: self.spare_nodes]}

    def _slept(self, view: View, decision: Decision, free: list[int], awake: set[int], rise: int) -> set[int]:
        """Return the free nodes to put to sleep at a check, those of the highest index first.

        `rise` is the forecast minus the nodes in use.
        """
        if any(not job.running and job.id not in decision.jobs for job in view.jobs.values()):
            return set()
        recent = self._demand.rise(view.now_s, self.recent_s)
        if recent >= self.recent_rise > 0 or rise >= self.future_rise > 0:
            return set()
        idle = [node for node in sorted(awake) if view.up[node] and free[node] == view.nodes[node].gpus]
        return set(idle[self.spare_nodes + max(rise, 0) :])
