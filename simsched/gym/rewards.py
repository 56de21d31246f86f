"""Rewards: the cost of an hour in the state after a decision."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from simsched.policy import JobView, View

#: The least duration of a job, in seconds, that its slow-down counts, as usual since Feitelson and Rudolph (1998).
SHORTEST_S = 10.0


@dataclass(frozen=True, slots=True)
class Moment:
    """The state after a decision: `jobs` counts the jobs of the episode.

    `alone_s` holds, by id, the true seconds of a job alone on the GPUs that it asks for.
    """

    view: View
    waiting: Sequence[JobView]
    jobs: int
    gpus: int
    alone_s: Mapping[str, float]


#: The value of an hour in a state.
Reward = Callable[[Moment], float]


def _completion(now: Moment) -> float:
    return -len(now.view.jobs) / now.jobs


def _waiting(now: Moment) -> float:
    return -len(now.waiting) / now.jobs


def _slowdown(now: Moment) -> float:
    return -3600 * sum(1 / max(now.alone_s[job], SHORTEST_S) for job in now.view.jobs) / now.jobs


def _utilisation(now: Moment) -> float:
    return -sum(now.view.free) / now.gpus


#: The rewards by name. Over an episode to its end they add up to minus the mean JCT in hours, minus the mean time
#: without GPUs in hours, minus the mean slow-down, and minus the hours for which the average GPU was free.
REWARDS: Mapping[str, Reward] = MappingProxyType(
    {"completion": _completion, "waiting": _waiting, "slowdown": _slowdown, "utilisation": _utilisation}
)
