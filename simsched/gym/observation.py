"""What a learner gets: the head of the queue and the cluster as numbers from 0 to 1, and the reward of an hour."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from simsched.errors import input_error, nearest
from simsched.policy import JobView, View
from simsched.toolkit.features import Features

if TYPE_CHECKING:
    from gymnasium import spaces

Array = NDArray[np.float32]
Observation = dict[str, Array]

#: The default features of a waiting job.
QUEUE_FEATURES = ("gpus", "age_s", "attained_gpu_s")
#: The least duration of a job, in seconds, that its slow-down counts, as usual since Feitelson and Rudolph (1998).
SHORTEST_S = 10.0
#: The most jobs of an observation, each a row of numbers.
MOST_SHOWN = 100_000
_MANY_JOBS = 1000.0
_WEEK_S = 7 * 86400.0


def _log_share(number: float, most: float) -> float:
    return min(math.log1p(number) / math.log1p(most), 1.0)


#: The features of the cluster by name, each from the view, the waiting jobs and the total GPUs.
CLUSTER_FEATURES: Mapping[str, Callable[[View, Sequence[JobView], int], float]] = MappingProxyType(
    {
        "free": lambda view, waiting, gpus: sum(view.free) / gpus,
        "most_free": lambda view, waiting, gpus: max(view.free) / max(node.gpus for node in view.nodes),
        "waiting": lambda view, waiting, gpus: _log_share(len(waiting), _MANY_JOBS),
        "running": lambda view, waiting, gpus: _log_share(len(view.jobs) - len(waiting), _MANY_JOBS),
        "wanted": lambda view, waiting, gpus: _log_share(sum(job.num_gpus for job in waiting) / gpus, _MANY_JOBS),
        "time": lambda view, waiting, gpus: _log_share(view.now_s, _WEEK_S),
    }
)


class Observer:
    """Shows a view: `queue` has a row per job for the `window` jobs that wait longest, `cluster` a number per feature.

    The first column of `queue` says whether the job fits into the free GPUs; rows without a job are 0. With `running`,
    an array of that name has a row for each of that many running jobs, earliest submissions first, whose first column
    is 1.
    """

    def __init__(self, queue: Sequence[str], cluster: Sequence[str], window: int, running: int = 0) -> None:
        """Take features by name; raises `InputError` for unknown names."""
        for name, rows, least in (("window", window, 1), ("running", running, 0)):
            if not isinstance(rows, int) or not least <= rows <= MOST_SHOWN:
                remedy = f"show a whole number of jobs, from {least} to {MOST_SHOWN}"
                raise input_error(name, f"is {rows}", remedy)
        for name in cluster:
            if name not in CLUSTER_FEATURES:
                message = f"there is no feature '{name}' of the cluster"
                raise input_error("cluster_features", message, nearest(name, CLUSTER_FEATURES))
        self.features = Features(queue)
        self._cluster = [CLUSTER_FEATURES[name] for name in cluster]
        self._rows = {"queue": window} | ({"running": running} if running else {})
        self.size = len(cluster) + (window + running) * (1 + len(queue))

    @property
    def space(self) -> spaces.Space[Any]:
        """The space of the observations."""
        from gymnasium import spaces  # which a policy that has learnt does not need

        columns = 1 + len(self.features.names)
        shapes = {name: (rows, columns) for name, rows in self._rows.items()} | {"cluster": (len(self._cluster),)}
        return spaces.Dict({name: spaces.Box(0.0, 1.0, shape, np.float32) for name, shape in shapes.items()})

    def show(self, view: View, waiting: Sequence[JobView], fits: Sequence[bool], gpus: int) -> Observation:
        """Return the observation of a view; `fits` covers the first `window` jobs that wait."""
        shown = {"queue": self._table("queue", waiting, fits)}
        if "running" in self._rows:
            held = [job for job in view.jobs.values() if job.running][: self._rows["running"]]
            shown["running"] = self._table("running", held, [True] * len(held))
        return shown | {"cluster": np.array([of(view, waiting, gpus) for of in self._cluster], np.float32)}

    def _table(self, name: str, jobs: Sequence[JobView], first: Sequence[bool]) -> Array:
        table = np.zeros((self._rows[name], 1 + len(self.features.names)), np.float32)
        shown = jobs[: len(table)]
        if shown:
            table[: len(shown), 0] = first
            logarithms = np.log1p(self.features.numbers(shown))
            table[: len(shown), 1:] = np.minimum(logarithms / self.features.most, 1.0)
        return table


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
