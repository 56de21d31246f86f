"""Features of jobs, which a learner sees, and the weighted scores by which the policy that it learns decides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from simsched.arithmetic import log, times
from simsched.errors import input_error, nearest
from simsched.policy import REMAINING_WORK, JobView, Signal

_MONTH_S = 30 * 86400.0
_MOST_GPUS = 1024.0
_MOST_EXAMPLES = 65536.0
_MOST_STARTS = 255.0
#: Prefix of the name of a feature that marks the jobs of one application: `application:bert`.
APPLICATION = "application:"


@dataclass(frozen=True)
class Feature:
    """A non-negative number of a job and how to read it; learners see log(1 + number) / log(1 + `most`)."""

    tells: str
    of: Callable[[JobView], float]
    most: float = 1.0
    needs: frozenset[Signal] = frozenset()


#: The features by name.
FEATURES: Mapping[str, Feature] = MappingProxyType(
    {
        "gpus": Feature("GPUs asked for", lambda job: job.num_gpus, _MOST_GPUS),
        "batch_size": Feature("batch size asked for", lambda job: job.request.batch_size, _MOST_EXAMPLES),
        "age_s": Feature("seconds since submission", lambda job: job.age_s, _MONTH_S),
        "waited_s": Feature("seconds without GPUs", lambda job: max(job.age_s - job.held_s, 0.0), _MONTH_S),
        "held_s": Feature("seconds with GPUs", lambda job: job.held_s, _MONTH_S),
        "attained_gpu_s": Feature("attained GPU-seconds", lambda job: job.attained_gpu_s, _MONTH_S * _MOST_GPUS),
        "starts": Feature("how often it was placed", lambda job: job.starts, _MOST_STARTS),
        "running": Feature("1 if it holds GPUs, else 0", lambda job: job.running),
        "left_s": Feature(
            "seconds left on the GPUs asked for, as only a simulator knows",
            lambda job: job[REMAINING_WORK].seconds,
            _MONTH_S,
            frozenset({REMAINING_WORK}),
        ),
    }
)


def feature(name: str) -> Feature:
    """Return a feature of `FEATURES`, or of jobs of one application; raises `InputError` for another name."""
    if name.startswith(APPLICATION):
        application = name.removeprefix(APPLICATION)
        return Feature(f"1 if it trains {application}, else 0", partial(_trains, application))
    if name not in FEATURES:
        raise input_error("features", f"there is no feature '{name}'", nearest(name, [*FEATURES, f"{APPLICATION}bert"]))
    return FEATURES[name]


def _trains(application: str, job: JobView) -> bool:
    return job.request.application == application


class Features:
    """Features in order, as columns of an array."""

    def __init__(self, names: Iterable[str]) -> None:
        """Look the features up; raises `InputError` for unknown names."""
        self.names = tuple(names)
        found = [feature(name) for name in self.names]
        self._of = [one.of for one in found]
        #: The logarithms that scale to 1, shape (features,).
        self.most = np.array([log(1.0 + one.most) for one in found])
        #: The signals that the features read.
        self.needs: frozenset[Signal] = frozenset().union(*(one.needs for one in found))

    def numbers(self, jobs: Sequence[JobView]) -> NDArray[np.float64]:
        """Return the raw numbers, one row per job, shape (jobs, features)."""
        found = [of(job) for job in jobs for of in self._of]
        return np.array(found, dtype=np.float64).reshape(len(jobs), len(self._of))

    def of(self, jobs: Sequence[JobView]) -> NDArray[np.float64]:
        """Return the numbers on a logarithmic scale from 0 to 1, the same on every processor."""
        return np.asarray(np.minimum(log(1.0 + self.numbers(jobs)) / self.most, 1.0), dtype=np.float64)


class Score:
    """A weighted sum of features; the job with the largest comes first."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        """Weigh features by name; raises `InputError` for unknown names and weights that are not finite."""
        self.features = Features(weights)
        self._weights = np.array([float(weight) for weight in weights.values()])
        if not np.isfinite(self._weights).all():
            raise input_error("weights", f"are {dict(weights)}", "give finite numbers")

    @property
    def needs(self) -> frozenset[Signal]:
        """Return the signals that the score reads."""
        return self.features.needs

    def of(self, jobs: Sequence[JobView]) -> NDArray[np.float64]:
        """Return the score of each job."""
        return times(self.features.of(jobs), self._weights)

    def rank(self, jobs: Iterable[JobView]) -> list[JobView]:
        """Return jobs by score, the largest first; ties keep their order."""
        given = list(jobs)
        return [given[place] for place in np.argsort(-self.of(given), kind="stable").tolist()]
