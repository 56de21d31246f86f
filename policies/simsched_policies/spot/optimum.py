"""The plan of a job that knows the market's future, by dynamic programming over ticks.

Rules: SkyNomad's artifact (NSDI'27). A state is what the job holds (nothing yet; nothing, having left a zone; on demand
or spot in a zone), the ticks of its restart still to serve, and the ticks of work done. Restarts and transfers count in
whole ticks, so the real cost lies below the plan's, and the plan is not always the cheapest: it is no bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from simsched.errors import input_error
from simsched.jit import jit
from simsched.model.outages import Market, region_of, transfer_cost
from simsched.policy import REMAINING_WORK, Decision, Traits, View
from simsched.policy.signals import MARKET, OFFERS
from simsched_policies.spot.instances import Instance, SpotPolicy, Turn

_HOUR_S, _WAITS = 3600, -1
_MEGABITS_OF_GB = 8192
_HOME_MB_S, _NEAR_MB_S, _FAR_MB_S = 9720, 8200, 3590  # megabits/s within a region, a continent, and beyond
_MOST_STATES = 500_000_000  # over all ticks: 2 GB

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def transfer_s(origin: str, target: str, gb: float) -> float:
    """Return the seconds by which a restart takes longer for a checkpoint of another region."""
    if region_of(origin) == region_of(target):
        return 0.0
    near = origin.partition("-")[0] == target.partition("-")[0]
    return _MEGABITS_OF_GB * gb * (1 / (_NEAR_MB_S if near else _FAR_MB_S) - 1 / _HOME_MB_S)


@jit
def cheapest_plan(units: int, tick_costs: Floats, restarts: Ints, moves: Floats, limit: float) -> Ints:
    """Return the mode of each tick of a cheapest plan of `units` ticks of work; shorter than the ticks, empty if none.

    Modes are 0 (nothing yet), and for each of z zones having left it (1 to z), on demand (z + 1 to 2 z) and spot (2 z +
    1 to 3 z). `tick_costs`, shape (ticks, modes), has dollars, infinite where a mode is not to be had. A switch from a
    mode to another takes `restarts` ticks and costs `moves`, both of shape (modes, modes). Plans above `limit` dollars
    do not count. The first of equally cheap plans wins, in the order in which states are first made.
    """
    ticks, modes = tick_costs.shape
    zones, depth = (modes - 1) // 3, restarts.max() + 1
    states = modes * depth * (units + 1)
    came = np.full((ticks, states), -1, dtype=np.int32)
    cost, later = np.full(states, np.inf), np.full(states, np.inf)
    order, fresh = np.empty(states, dtype=np.int64), np.empty(states, dtype=np.int64)
    count, best, best_tick, best_state = 1, np.inf, -1, -1
    cost[0], order[0] = 0.0, 0
    for tick in range(ticks):
        made = 0
        for place in range(count):
            state = order[place]
            now, mode, rest, done = (
                cost[state],
                state // (units + 1) // depth,
                state // (units + 1) % depth,
                state % (units + 1),
            )
            for step in range(-1, modes):
                if step == mode:
                    continue
                to = mode if step < 0 else step
                if step >= 0 and to <= zones and (to == 0 or mode <= zones or (mode - 1) % zones + 1 != to):
                    continue  # a job waits where it was
                price = tick_costs[tick, to]
                if step < 0:
                    dollars, left = now + price, max(rest - 1, 0)
                    work = done + (1 if rest == 0 and mode > zones else 0)
                else:
                    dollars, left, work = now + price + moves[mode, to], max(restarts[mode, to] - 1, 0), done
                if not dollars <= limit or units - work > ticks - tick - 1:
                    continue
                target = (to * depth + left) * (units + 1) + work
                if dollars < later[target]:
                    if later[target] == np.inf:
                        fresh[made] = target
                        made += 1
                    later[target], came[tick, target] = dollars, state
                    if work == units and dollars < best:
                        best, best_tick, best_state = dollars, tick, target
        for place in range(count):
            cost[order[place]] = np.inf
        cost, later, order, fresh, count = later, cost, fresh, order, made
    plan = np.empty(best_tick + 1, dtype=np.int64)
    for tick in range(best_tick, -1, -1):
        plan[tick] = best_state // (units + 1) // depth
        best_state = came[tick, best_state]
    return plan


@dataclass
class SpotOptimum(SpotPolicy):
    """Follows the plan of each job alone; where the market has no room for it, goes on demand."""

    name: ClassVar[str] = "spot-optimum"
    traits: ClassVar[Traits] = Traits(
        interval="interval_s", needs={OFFERS, MARKET, REMAINING_WORK}, wants=SpotPolicy.traits.wants
    )
    _market: Market | None = field(default=None, init=False, repr=False)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Serve each job in turn, knowing the market."""
        self._market, self._now_s = view[MARKET], view.now_s
        return super().decide(view, rng)

    def serve(self, turn: Turn) -> None:
        """Take the next step of the job's plan."""
        plan = turn.course.memory.get("plan")
        if not isinstance(plan, list):
            plan = turn.course.memory["plan"] = self._plan(turn)
        mode, zones = plan[turn.tick] if turn.tick < len(plan) else None, len(self.zones)
        if mode is None:
            if turn.runs is None:
                turn.launch_first(turn.course.home)
        elif mode <= zones:
            turn.stop()
        else:
            kind = Instance((mode - 1) % zones, mode > 2 * zones)
            if kind != turn.runs and not turn.launch(kind):
                turn.launch_first(kind.zone)

    def _plan(self, turn: Turn) -> Sequence[int]:
        assert self._market is not None
        ticks, units = turn.has + turn.tick, ceil(turn.work / turn.gap)
        modes, base = 3 * len(self.zones) + 1, ceil(turn.restart / turn.gap)
        zone_of = [None, *self.zones * 3]
        restarts, moves = np.full((modes, modes), base), np.zeros((modes, modes))
        for i, origin in enumerate(zone_of):
            for j, target in enumerate(zone_of):
                if j <= len(self.zones):
                    restarts[i, j] = 0
                elif origin is not None and target is not None:
                    moves[i, j] = transfer_cost(origin, target, self.checkpoint_gb)
                    restarts[i, j] = ceil((turn.restart + transfer_s(origin, target, self.checkpoint_gb)) / turn.gap)
        if ticks * modes * (int(restarts.max()) + 1) * (units + 1) > _MOST_STATES:
            message = f"the plan of job '{turn.job_id}' over {ticks} ticks of {turn.gap:g} s is too large"
            raise input_error(f"policy '{self.name}'", message, "raise interval_s")
        costs = self._tick_costs(turn, max(ticks, 0))
        dearest = (base + units) * np.min(costs[:, len(self.zones) + 1 : 2 * len(self.zones) + 1], initial=np.inf)
        plan: list[int] = cheapest_plan(units, costs, restarts, moves, dearest).tolist()
        return plan

    def _tick_costs(self, turn: Turn, ticks: int) -> Floats:
        assert self._market is not None
        zones = len(self.zones)
        costs = np.full((ticks, 3 * zones + 1), np.inf)
        costs[:, : zones + 1] = 0.0
        for group in self._market.groups:
            mode = (2 if group.spot else 1) * zones + 1 + self.zones.index(group.zone)
            for tick in range(ticks):
                time_s = self._now_s + tick * turn.gap
                if group.available is None or group.available.at(time_s):
                    costs[tick, mode] = group.prices.at(time_s) * (turn.gap / _HOUR_S)
        return costs
