"""What finished jobs have taught: a pool from which later jobs of the same or a similar application start.

For each application the pool merges what its jobs have measured: step times by configuration (and with them the largest
number of GPUs that any has run on), and gradient statistics over training. The throughput parameters are fitted to the
merged step times. It is plain data, kept between runs as JSON (`simsched.agent.pool_file`).

The rules of merging: where several jobs have measured one configuration, or one epoch, their mean counts, each job
once; configurations and epochs are kept in ascending order; an application that comes with other batch limits than
before is another one, and what was known of it is forgotten. So the pool depends on which jobs have finished and, but
for rounding, not on their order. It knows nothing of GPU types: keep one pool for each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass
from typing import NamedTuple, TypeVar

from simsched.agent.agent import Measurement
from simsched.agent.fit import fit
from simsched.agent.goodput_agent import Prior
from simsched.model.application import BatchLimits, GradientStats, StepTime
from simsched.model.throughput import ThroughputParams

#: A configuration: nodes, GPUs, per-GPU batch.
Configuration = tuple[int, int, int]

#: Applications are similar if each of their batch limits, and their step times on one GPU, differ by at most this.
SIMILAR_WITHIN = 2.0


class Pooled(NamedTuple):
    """The means of two numbers that belong together, and how many jobs they come from.

    The numbers are seconds of a step and of its synchronisation, or the two gradient statistics.
    """

    first: float
    second: float
    jobs: int


@dataclass(frozen=True)
class History:
    """What `jobs` finished jobs of an application have taught.

    `profile` maps configurations to step times, `noise` 0-based epochs to gradient statistics (squared norm and
    variance); both ascend, and neither is empty.
    """

    limits: BatchLimits
    jobs: int
    profile: Mapping[Configuration, Pooled]
    noise: Mapping[int, Pooled]

    @property
    def max_profiled_gpus(self) -> int:
        """Give the largest number of GPUs that any of the jobs has run on."""
        return max(gpus for _, gpus, _ in self.profile)

    @property
    def step_times(self) -> dict[Configuration, StepTime]:
        """Give the step times alone."""
        return {key: StepTime(step.first, step.second) for key, step in self.profile.items()}

    def gradient_at(self, progress: float) -> GradientStats:
        """Give the gradient statistics at a share of training in [0, 1): those of the last epoch seen until then."""
        epoch = progress * (max(self.noise) + 1)
        at = max((seen for seen in self.noise if seen <= epoch), default=min(self.noise))
        return GradientStats(self.noise[at].first, self.noise[at].second)


def lesson(
    limits: BatchLimits, profile: Mapping[Configuration, StepTime], noise: Mapping[int, GradientStats]
) -> History | None:
    """Give what one finished job has taught, None where it has measured nothing."""
    if not profile or not noise:
        return None
    steps = {key: Pooled(*profile[key], 1) for key in sorted(profile)}
    return History(limits, 1, steps, {epoch: Pooled(*noise[epoch], 1) for epoch in sorted(noise)})


def merge(one: History, other: History) -> History:
    """Put together what two groups of jobs of one application taught; `ValueError` where their batch limits differ."""
    if one.limits != other.limits:
        message = "histories of applications with different batch limits cannot be merged"
        raise ValueError(message)
    jobs = one.jobs + other.jobs
    return History(one.limits, jobs, _union(one.profile, other.profile), _union(one.noise, other.noise))


_Key = TypeVar("_Key", int, Configuration)


def _union(one: Mapping[_Key, Pooled], other: Mapping[_Key, Pooled]) -> dict[_Key, Pooled]:
    found = {**other, **one}
    for key in one.keys() & other.keys():
        found[key] = _mean(one[key], other[key])
    return dict(sorted(found.items()))


def _mean(one: Pooled, other: Pooled) -> Pooled:
    """Average by jobs; what is equal stays just so, without the rounding of an average."""
    jobs = one.jobs + other.jobs
    share = other.jobs / jobs
    return Pooled(one.first + (other.first - one.first) * share, one.second + (other.second - one.second) * share, jobs)


class HistoryPool:
    """Histories by application, and the parameters fitted to each."""

    def __init__(
        self,
        histories: Mapping[str, History] | None = None,
        params: Mapping[str, ThroughputParams] | None = None,
    ) -> None:
        """Start with these histories; `params` are what was fitted to them where that is known already."""
        self._histories = dict(histories or {})
        self._params = dict(params or {})

    @property
    def applications(self) -> tuple[str, ...]:
        """List the applications that it knows, sorted."""
        return tuple(sorted(self._histories))

    @property
    def jobs(self) -> int:
        """Count the jobs that it has learnt from."""
        return sum(history.jobs for history in self._histories.values())

    def __getitem__(self, application: str) -> History:
        """Give what is known of an application; `KeyError` where that is nothing."""
        return self._histories[application]

    def params(self, application: str) -> ThroughputParams:
        """Give the throughput parameters of an application, fitted when first asked for after a change."""
        if application not in self._params:
            self._params[application] = fit(self._histories[application].step_times).params
        return self._params[application]

    def add(self, application: str, history: History) -> None:
        """Take in what jobs of an application have taught."""
        known = self._histories.get(application)
        if known is None or known.limits != history.limits:
            self._histories[application] = history
            self._params.pop(application, None)
            return
        self._histories[application] = both = merge(known, history)
        if both.step_times != known.step_times:
            self._params.pop(application, None)

    def lookup(self, application: str, limits: BatchLimits) -> Prior | None:
        """Give what a new job starts from; None where the pool does not know its application with these limits."""
        history = self._histories.get(application)
        if history is None or history.limits != limits:
            return None
        times = history.step_times
        return Prior(self.params(application), history.gradient_at(0), times, history.max_profiled_gpus)

    def similar(self, limits: BatchLimits, seen: Measurement) -> Prior | None:
        """Give what a job of an unknown application may borrow once it has run on one GPU; None where nothing fits.

        An application is similar if each of its four batch limits, and its step time at the batch measured, lie within
        a factor of `SIMILAR_WITHIN` of the job's. Of several, the one with the closest step time is taken. Its
        computation is stretched to the job's pace; its synchronisation is taken over as it stands.
        """
        if seen.gpus != 1:
            return None
        ranked = sorted(self._candidates(limits, seen))
        if not ranked:
            return None
        _, name, pace = ranked[0]
        history = self._histories[name]
        times = {
            key: StepTime((t.step_s - t.sync_s) * pace + t.sync_s, t.sync_s) for key, t in history.step_times.items()
        }
        return Prior(fit(times).params, seen.gradient, times, history.max_profiled_gpus)

    def _candidates(self, limits: BatchLimits, seen: Measurement) -> Iterator[tuple[float, str, float]]:
        """List similar applications: distance, name, and the job's pace relative to theirs."""
        for name, history in self._histories.items():
            ratios = [a / b for a, b in zip(astuple(limits), astuple(history.limits), strict=True)]
            expected_s = float(self.params(name).step_time_s(1, 1, seen.local_bsz))
            pace = seen.step.step_s / expected_s
            if all(_close(ratio) for ratio in (*ratios, pace)):
                yield abs(math.log(pace)), name, pace


def _close(ratio: float) -> bool:
    return 1 / SIMILAR_WITHIN <= ratio <= SIMILAR_WITHIN
