"""Histories of finished jobs: a pool from which later jobs of the same or a similar application start.

For each application the pool merges the measurements of its jobs: step times by GPU type and configuration (and with
them the largest number of GPUs of any run), and gradient statistics over training. The throughput parameters are fitted
to the merged step times. The pool is plain data, stored between runs as JSON (`simsched.agent.pool_file`).

The rules of merging: if several jobs have measured one configuration or one epoch, the pool keeps their mean, with
equal weight for each job; configurations and epochs are in ascending order; an application that returns with other
batch limits counts as a new one, and its old history is dropped. So the pool depends on which jobs have finished but,
except for rounding, not on their order. Step times are separate by GPU type.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass
from typing import NamedTuple, TypeVar

from simsched.agent.agent import Measurement
from simsched.agent.fit import Configuration, Profile, fit
from simsched.agent.goodput_agent import Prior
from simsched.model import BatchLimits
from simsched.model.application import GradientStats, StepTime
from simsched.model.throughput import ThroughputParams

#: Applications are similar if each of their batch limits, and their step times on one GPU, differ by at most this.
SIMILAR_WITHIN = 2.0


class Pooled(NamedTuple):
    """The means of a pair of numbers, and the number of jobs behind them.

    The numbers are seconds of a step and of its synchronisation, or the two gradient statistics.
    """

    first: float
    second: float
    jobs: int


@dataclass(frozen=True)
class History:
    """The measurements of `jobs` finished jobs of an application.

    `profiles` maps GPU types to step times by configuration, `noise` 0-based epochs to gradient statistics (squared
    norm and variance); all ascend, and none is empty.
    """

    limits: BatchLimits
    jobs: int
    profiles: Mapping[str, Mapping[Configuration, Pooled]]
    noise: Mapping[int, Pooled]

    def max_profiled_gpus(self, gpu_type: str) -> int:
        """Return the largest number of GPUs of a type on which any of the jobs has run."""
        return max(gpus for _, gpus, _ in self.profiles[gpu_type])

    def step_times(self, gpu_type: str) -> dict[Configuration, StepTime]:
        """Return the step times on a GPU type, without counts."""
        return {key: StepTime(step.first, step.second) for key, step in self.profiles[gpu_type].items()}

    def gradient_at(self, progress: float) -> GradientStats:
        """Return the gradient statistics at a share of training in [0, 1): those of the last epoch observed by then."""
        epoch = progress * (max(self.noise) + 1)
        at = max((seen for seen in self.noise if seen <= epoch), default=min(self.noise))
        return GradientStats(self.noise[at].first, self.noise[at].second)


def history_of_job(
    limits: BatchLimits, profiles: Mapping[str, Profile], noise: Mapping[int, GradientStats]
) -> History | None:
    """Return the history of one finished job, None if it has no measurements."""
    if not profiles or not noise:
        return None
    steps = {
        gpu_type: {key: Pooled(*profile[key], 1) for key in sorted(profile)}
        for gpu_type, profile in sorted(profiles.items())
    }
    return History(limits, 1, steps, {epoch: Pooled(*noise[epoch], 1) for epoch in sorted(noise)})


def merge(one: History, other: History) -> History:
    """Merge the histories of two groups of jobs of one application; `ValueError` if their batch limits differ."""
    if one.limits != other.limits:
        raise ValueError("histories of applications with different batch limits cannot be merged")
    jobs = one.jobs + other.jobs
    types = sorted({*one.profiles, *other.profiles})
    profiles = {kind: _union(one.profiles.get(kind, {}), other.profiles.get(kind, {})) for kind in types}
    return History(one.limits, jobs, profiles, _union(one.noise, other.noise))


_Key = TypeVar("_Key", int, Configuration)


def _union(one: Mapping[_Key, Pooled], other: Mapping[_Key, Pooled]) -> dict[_Key, Pooled]:
    found = {**other, **one}
    for key in one.keys() & other.keys():
        found[key] = _mean(one[key], other[key])
    return dict(sorted(found.items()))


def _mean(one: Pooled, other: Pooled) -> Pooled:
    """Average by number of jobs; equal values stay exact, without the rounding of an average."""
    jobs = one.jobs + other.jobs
    share = other.jobs / jobs
    return Pooled(one.first + (other.first - one.first) * share, one.second + (other.second - one.second) * share, jobs)


class HistoryPool:
    """Histories by application, and the parameters fitted to each."""

    def __init__(
        self,
        histories: Mapping[str, History] | None = None,
        params: Mapping[tuple[str, str], ThroughputParams] | None = None,
    ) -> None:
        """Start with these histories; `params` are those fitted to them, by application and GPU type, if known."""
        self._histories = dict(histories or {})
        self._params = dict(params or {})

    @property
    def applications(self) -> tuple[str, ...]:
        """List the known applications, sorted."""
        return tuple(sorted(self._histories))

    @property
    def jobs(self) -> int:
        """Count the jobs behind the histories."""
        return sum(history.jobs for history in self._histories.values())

    def __getitem__(self, application: str) -> History:
        """Return what is known of an application; `KeyError` for an unknown one."""
        return self._histories[application]

    def params(self, application: str, gpu_type: str) -> ThroughputParams:
        """Return the throughput parameters on a GPU type, fitted on the first call after a change."""
        key = application, gpu_type
        if key not in self._params:
            self._params[key] = fit(self._histories[application].step_times(gpu_type)).params
        return self._params[key]

    def add(self, application: str, history: History) -> None:
        """Add the history of jobs of an application."""
        known = self._histories.get(application)
        if known is None or known.limits != history.limits:
            self._histories[application] = history
            self._forget_params(application, known.profiles if known else ())
            return
        self._histories[application] = both = merge(known, history)
        changed = [kind for kind in known.profiles if both.step_times(kind) != known.step_times(kind)]
        self._forget_params(application, changed)

    def _forget_params(self, application: str, gpu_types: Iterable[str]) -> None:
        for gpu_type in gpu_types:
            self._params.pop((application, gpu_type), None)

    def lookup(self, application: str, limits: BatchLimits) -> dict[str, Prior]:
        """Return the priors of a new job by GPU type; {} if its application is unknown with these limits."""
        history = self._histories.get(application)
        if history is None or history.limits != limits:
            return {}
        gradient = history.gradient_at(0)
        return {
            kind: Prior(
                self.params(application, kind), gradient, history.step_times(kind), history.max_profiled_gpus(kind)
            )
            for kind in history.profiles
        }

    def similar(self, limits: BatchLimits, seen: Measurement) -> Prior | None:
        """Return the prior that a job of an unknown application may borrow after a run on one GPU; None if none fits.

        An application is similar if each of its four batch limits, and its step time at the batch measured, lie within
        a factor of `SIMILAR_WITHIN` of the job's. The one with the closest step time wins. Its computation is stretched
        to the job's pace; its synchronisation is kept.
        """
        if seen.site.gpus != 1:
            return None
        ranked = sorted(self._candidates(limits, seen))
        if not ranked:
            return None
        _, name, pace = ranked[0]
        history, gpu_type = self._histories[name], seen.site.gpu_type
        times = {
            key: StepTime((t.step_s - t.sync_s) * pace + t.sync_s, t.sync_s)
            for key, t in history.step_times(gpu_type).items()
        }
        return Prior(fit(times).params, seen.gradient, times, history.max_profiled_gpus(gpu_type))

    def _candidates(self, limits: BatchLimits, seen: Measurement) -> Iterator[tuple[float, str, float]]:
        """List similar applications: distance, name, and the job's pace relative to theirs."""
        gpu_type = seen.site.gpu_type
        for name, history in self._histories.items():
            if gpu_type not in history.profiles:
                continue
            ratios = [a / b for a, b in zip(astuple(limits), astuple(history.limits), strict=True)]
            expected_s = float(self.params(name, gpu_type).step_time_s(1, 1, seen.local_bsz))
            pace = seen.step.step_s / expected_s
            if all(_close(ratio) for ratio in (*ratios, pace)):
                yield abs(math.log(pace)), name, pace


def _close(ratio: float) -> bool:
    return 1 / SIMILAR_WITHIN <= ratio <= SIMILAR_WITHIN
