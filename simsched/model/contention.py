"""Jobs that wait for the same uplinks share their bandwidth.

A fluid model: each flow that is active on an uplink gets an equal share of it. A job is active on a tier for a share of
its step, its exposed communication there, and meets another job as often as that one is active. Its communication
stretches by 1 plus the activities of the others on its worst uplink; these follow from the stretched steps, and the
model takes the least fixed point. Two equal jobs that always communicate get half the bandwidth each. Computation does
not change. Flows of a more urgent level are served first, and others share the time that these leave.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

_CLOSE = 1e-9
_MOST_ROUNDS = 1000
_LEAST_LEFT = 0.05  # share of an uplink left for flows less urgent than those that fill it


class Flow(NamedTuple):
    """A job alone: the seconds of its step and, for each tier, the seconds that wait for uplinks, and these uplinks.

    Lower levels are more urgent.
    """

    step_s: float
    across: tuple[tuple[float, tuple[Hashable, ...]], ...]
    level: int = 0


def shared_steps_s(flows: Sequence[Flow]) -> list[float]:
    """Return the seconds of a step of each job when all flows run at the same time."""
    parts = [(job, exposed_s, links) for job, flow in enumerate(flows) for exposed_s, links in flow.across if exposed_s]
    users: dict[Hashable, list[int]] = {}
    for part, (_, _, links) in enumerate(parts):
        for link in links:
            users.setdefault(link, []).append(part)
    # Uplinks with the same users are equally busy: one of them represents all.
    busy = sorted({tuple(sharing) for sharing in users.values() if len(sharing) > 1})
    level = [flows[job].level for job, _, _ in parts]
    meets: list[list[tuple[list[int], list[int]]]] = [[] for _ in parts]
    for sharing in busy:
        for part in sharing:
            equals = [other for other in sharing if other != part and level[other] == level[part]]
            meets[part].append((equals, [other for other in sharing if level[other] < level[part]]))
    stretch, steps_s = [1.0] * len(parts), [flow.step_s for flow in flows]
    for _ in range(_MOST_ROUNDS):
        active = [exposed_s * stretch[part] / steps_s[job] for part, (job, exposed_s, _) in enumerate(parts)]
        wider = [max((_stretch(active, *met) for met in part), default=1.0) for part in meets]
        moved = max((abs(now - before) for now, before in zip(wider, stretch, strict=True)), default=0.0)
        stretch = wider
        steps_s = [flow.step_s for flow in flows]
        for part, (job, exposed_s, _) in enumerate(parts):
            steps_s[job] += exposed_s * (stretch[part] - 1)
        if moved < _CLOSE:
            break
    return steps_s


def _stretch(active: Sequence[float], equals: Sequence[int], first: Sequence[int]) -> float:
    """Return the factor by which flows of equal level and flows served first stretch a flow."""
    left = max(1.0 - sum(active[other] for other in first), _LEAST_LEFT)
    return (1.0 + sum(active[other] for other in equals)) / left
