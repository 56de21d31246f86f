"""How many nodes jobs hold: a record of the past, and a forecast from the same hours of the day before."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

from simsched.model import Node
from simsched.policy import JobView


@dataclass
class NodeDemand:
    """The number of nodes in use over time, a step function, and its forecast.

    The forecast is seasonal naive with today's level: the use `season_s` before the time in question, plus the change
    in use since one season ago. With a shorter past it is the use now.
    """

    season_s: float = 86_400.0
    _times_s: list[float] = field(default_factory=list, init=False, repr=False)
    _nodes: list[int] = field(default_factory=list, init=False, repr=False)

    def record(self, now_s: float, nodes: int) -> None:
        """Note how many nodes are in use from `now_s` on; of several at one time the last counts."""
        if self._times_s and self._times_s[-1] == now_s:
            self._nodes[-1] = nodes
        elif not self._nodes or self._nodes[-1] != nodes:
            self._times_s.append(now_s)
            self._nodes.append(nodes)

    def at(self, time_s: float) -> int | None:
        """Return the nodes in use at a time, None before the first record."""
        place = bisect_right(self._times_s, time_s) - 1
        return None if place < 0 else self._nodes[place]

    def rise(self, now_s: float, window_s: float) -> int:
        """Return by how much the nodes in use have risen over the last `window_s` (less than 0: fallen)."""
        now, before = self.at(now_s), self.at(now_s - window_s)
        if now is None:
            return 0
        return now - (self._nodes[0] if before is None else before)

    def forecast(self, now_s: float, ahead_s: float) -> int:
        """Return the nodes expected to be in use `ahead_s` from now, at least 0."""
        now = self.at(now_s) or 0
        then, later = self.at(now_s - self.season_s), self.at(now_s + ahead_s - self.season_s)
        if then is None or later is None:
            return now
        return max(now + later - then, 0)

    def peak(self, now_s: float, ahead_s: float, step_s: float) -> int:
        """Return the largest forecast for each `step_s` of the next `ahead_s`, its end included."""
        steps = ceil(ahead_s / step_s)
        return max(self.forecast(now_s, min(step * step_s, ahead_s)) for step in range(1, steps + 1))


def nodes_to_wake(
    waiting: Sequence[JobView], nodes: Sequence[Node], free: Sequence[int], asleep: Sequence[int]
) -> list[int]:
    """Return the nodes of `asleep` that jobs need, in the order of the jobs, beyond what is `free` by node.

    A job that fits on one node takes the tightest fit, a larger one as few free nodes as in an empty cluster; what it
    takes is gone for those behind it. One that cannot be served takes nothing.
    """
    room = list(free)
    left = list(asleep)
    woken: list[int] = []
    for job in waiting:
        if not left:
            break
        _serve(job, nodes, room, left, woken)
    return woken


def _serve(job: JobView, nodes: Sequence[Node], room: list[int], left: list[int], woken: list[int]) -> None:
    """Give a job room on one type, awake nodes going before those asleep, and note the nodes that it wakes."""
    kinds = dict.fromkeys(node.gpu_type for node in nodes if job.facts.runs_on(node.gpu_type))
    for more in (False, True):
        for kind in kinds:
            extra = [node for node in left if nodes[node].gpu_type == kind] if more else []
            chosen = _room_for(job.num_gpus, [n for n in nodes if n.gpu_type == kind], room, extra)
            if chosen is None:
                continue
            for node, gpus in chosen:
                if node in extra:
                    left.remove(node)
                    woken.append(node)
                    room[node] = nodes[node].gpus
                room[node] -= gpus
            return


def _room_for(
    gpus: int, nodes: Sequence[Node], room: Sequence[int], extra: Sequence[int]
) -> list[tuple[int, int]] | None:
    """Choose nodes with room for a job, those of `extra` counting as free and last; None where there are too few."""
    fitting = [node.index for node in nodes if room[node.index] >= gpus]
    if fitting:
        return [(min(fitting, key=lambda node: (room[node], node)), gpus)]
    size = {node.index: node.gpus for node in nodes}
    if gpus <= max(size.values(), default=0):
        fitting = [node for node in extra if size[node] >= gpus]
        return [(min(fitting, key=lambda node: (size[node], node)), gpus)] if fitting else None
    whole = [node for node in size if room[node] == size[node] and node not in extra]
    chosen = _largest_first(gpus, sorted([*whole, *extra], key=lambda node: -size[node]), size)
    fewest = _largest_first(gpus, sorted(size, key=lambda node: -size[node]), size)
    return chosen if chosen is not None and fewest is not None and len(chosen) == len(fewest) else None


def _largest_first(gpus: int, nodes: Iterable[int], size: Mapping[int, int]) -> list[tuple[int, int]] | None:
    """Take GPUs node by node until there are enough; None where there are not."""
    chosen: list[tuple[int, int]] = []
    for node in nodes:
        taken = min(size[node], gpus)
        chosen.append((node, taken))
        gpus -= taken
        if not gpus:
            return chosen
    return None
