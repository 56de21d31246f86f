"""What finished jobs have taught: a pool from which later jobs of the same or a similar application start.

For each application the pool merges what its jobs have measured: step times by configuration, the largest number of
GPUs among these, and gradient statistics over training. A parameter fit of the merged step times goes with them. It is
plain data, and JSON when it is kept between runs (`simsched.agent.pool_file`).

The rules of merging: where several jobs have measured one configuration (or one epoch), their mean counts, each job
once; configurations are kept in ascending order; an application that comes with other batch limits than before is
another one, and what was known of it is forgotten. Hence the pool depends on which jobs have finished, and, but for
rounding, not on their order. It knows nothing of GPU types: use one pool for one type.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from simsched.agent.agent import Measurement
from simsched.agent.fit import fit
from simsched.agent.goodput_agent import Prior
from simsched.model.application import BatchLimits, GradientStats, StepTime
from simsched.model.throughput import ThroughputParams

#: A configuration: nodes, GPUs, per-GPU batch.
Configuration = tuple[int, int, int]

#: Applications are similar if each of their batch limits, and their step times on one GPU, differ by less than this.
SIMILAR_WITHIN = 2.0


class PooledStep(NamedTuple):
    """Mean seconds of a step and of its synchronisation, and how many jobs measured them."""

    step_s: float
    sync_s: float
    jobs: int

    @property
    def time(self) -> StepTime:
        """Give the step time alone."""
        return StepTime(self.step_s, self.sync_s)


class PooledGradient(NamedTuple):
    """Mean gradient statistics in an epoch, and how many jobs measured them."""

    sqr: float
    var: float
    jobs: int

    @property
    def stats(self) -> GradientStats:
        """Give the statistics alone."""
        return GradientStats(self.sqr, self.var)


@dataclass(frozen=True)
class History:
    """What `jobs` finished jobs of an application taught.

    `profile` maps configurations to step times, `noise` 0-based epochs to gradient statistics; both ascend, and neither
    is empty. `params` are the throughput parameters fitted to the profile.
    """

    limits: BatchLimits
    jobs: int
    profile: Mapping[Configuration, PooledStep]
    noise: Mapping[int, PooledGradient]
    params: ThroughputParams

    @property
    def max_profiled_gpus(self) -> int:
        """Give the largest number of GPUs that any of the jobs has run on."""
        return max(gpus for _, gpus, _ in self.profile)

    def gradient_at(self, progress: float) -> GradientStats:
        """Give the gradient statistics at a share of training in [0, 1): those of the last epoch seen until then."""
        epoch = progress * (max(self.noise) + 1)
        seen = [at for at in self.noise if at <= epoch]
        return self.noise[seen[-1] if seen else min(self.noise)].stats

    def prior(self) -> Prior:
        """Give what a new job of the application starts from."""
        profile = {key: step.time for key, step in self.profile.items()}
        return Prior(self.params, self.gradient_at(0.0), MappingProxyType(profile), self.max_profiled_gpus)


def lesson(
    limits: BatchLimits, profile: Mapping[Configuration, StepTime], noise: Mapping[int, GradientStats]
) -> History | None:
    """Give what one finished job has taught, None where it has measured nothing."""
    if not profile or not noise:
        return None
    steps = {key: PooledStep(*profile[key], 1) for key in sorted(profile)}
    gradients = {epoch: PooledGradient(*noise[epoch], 1) for epoch in sorted(noise)}
    return History(limits, 1, MappingProxyType(steps), MappingProxyType(gradients), _fitted(steps))


def merged(one: History, other: History) -> History:
    """Put together what two groups of jobs of one application taught; `ValueError` where their batch limits differ."""
    if one.limits != other.limits:
        message = "histories of applications with different batch limits cannot be merged"
        raise ValueError(message)
    steps = _union(one.profile, other.profile, _mean_step)
    noise = _union(one.noise, other.noise, _mean_gradient)
    known = {key: step.time for key, step in one.profile.items()}
    learnt = {key: step.time for key, step in steps.items()} != known
    params = _fitted(steps) if learnt else one.params
    return History(one.limits, one.jobs + other.jobs, MappingProxyType(steps), MappingProxyType(noise), params)
