"""The agent of a job whose total batch size stays as submitted."""

from __future__ import annotations

import math
from dataclasses import dataclass

from simsched.agent.agent import Agent, Measurement
from simsched.model.application import NO_BATCH, Application, BatchChoice, BatchLimits
from simsched.model.job import JobSpec

_SLACK = 1e-8  # below this, a quotient counts as whole


def ceil_slack(value: float) -> int:
    """Round up, but not past a whole number that was missed by rounding error only."""
    return math.ceil(value - _SLACK)


def batch_for_target(limits: BatchLimits, target: int, gpus: int) -> BatchChoice:
    """Split a target total batch over GPUs and accumulation steps; it may be missed by rounding up.

    On one GPU a batch above the initial one is always accumulated at least once, so that gradient statistics can be
    taken (Pollux, section 4.3; AdaptDL's data loader). Never exceeds the application's largest batch.
    """
    local = ceil_slack(target / gpus)
    accum = ceil_slack(local / limits.max_local_bsz) - 1
    if gpus == 1 and target > limits.init_batch_size:
        accum = max(1, accum)
    return clip_to_max(limits, BatchChoice(ceil_slack(local / (accum + 1)), accum), gpus)


def clip_to_max(limits: BatchLimits, batch: BatchChoice, gpus: int) -> BatchChoice:
    """Lower the per-GPU batch until the total does not exceed the application's largest."""
    most = limits.max_batch_size // (gpus * (batch.accum_steps + 1))
    return BatchChoice(min(batch.local_bsz, most), batch.accum_steps)


@dataclass
class FixedBatchAgent:
    """Keeps the total batch at `target`, accumulating gradients where the GPUs are few."""

    limits: BatchLimits
    target: int

    stale = False
    report = None

    def choose(self, nodes: int, gpus: int) -> BatchChoice:
        """Split the target over the GPUs."""
        return batch_for_target(self.limits, self.target, gpus)

    def observe(self, measurement: Measurement) -> None:
        """Learn nothing."""


class NoBatchAgent:
    """Stands beside a job that has no batch size to choose."""

    stale = False
    report = None

    def choose(self, nodes: int, gpus: int) -> BatchChoice:
        """Choose nothing."""
        return NO_BATCH

    def observe(self, measurement: Measurement) -> None:
        """Learn nothing."""


def fixed_agent(job: JobSpec, application: Application) -> Agent:
    """Make the agent that keeps a job at the batch size submitted (the application's own where none was given)."""
    if application.limits is None:
        return NoBatchAgent()
    target = job.batch_size or application.fixed_batch_size or application.limits.init_batch_size
    return FixedBatchAgent(application.limits, target)
