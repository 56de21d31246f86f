"""Tiresias: least attained service in two dimensions, discretised into queues.

Idea: a job's priority falls as its attained service (GPUs x time) grows, in steps, so that short jobs overtake long
ones without anybody knowing durations, and long jobs do not preempt each other all the time (Gu et al., NSDI'19,
section 3).

This is the variant that Pollux compares with (section 5.1 there, and its simulator): queues are examined every
`interval_s`, promotion is off, a running job keeps its exact GPUs, and a starting job takes the nodes with the most
free GPUs. Deviations from the Tiresias paper: demotion happens at the next interval after the crossing, and placement
does not look at the skew of tensor sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import ClassVar

import numpy as np

from simsched.policy import Decision, Policy, Triggers, View
from simsched.policy.gang import admit, available_gpus, keep_and_place


@dataclass
class Tiresias(Policy):
    """Two-dimensional least attained service with K queues, first in first out within a queue.

    `queue_thresholds_gpu_s` are the K - 1 ascending limits on attained service in GPU-seconds (16 GPU-hours in Pollux's
    evaluation, 3,200 GPU-seconds in the Tiresias testbed).
    """

    name: ClassVar[str] = "tiresias"

    queue_thresholds_gpu_s: Sequence[int] = (57_600,)
    interval_s: int = 60
    _queues: list[dict[str, None]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Start with empty queues."""
        limits = list(self.queue_thresholds_gpu_s)
        if any(low >= high for low, high in pairwise([0, *limits])):
            message = f"queue_thresholds_gpu_s must be positive and ascending, not {limits}"
            raise ValueError(message)
        self._queues = [{} for _ in range(len(limits) + 1)]

    @property
    def triggers(self) -> Triggers:
        """Decide every `interval_s`."""
        return Triggers(interval_s=self.interval_s)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Update the queues, then admit from the first queue to the last; jobs that do not fit are skipped."""
        for queue in self._queues:
            for job_id in view.finished:
                queue.pop(job_id, None)
        self._queues[0].update((job.id, None) for job in view.arrived)
        self._demote(view)
        order = (view.jobs[job_id] for job_id in chain(*self._queues))
        return Decision(keep_and_place(admit(order, available_gpus(view)), view))

    def _demote(self, view: View) -> None:
        for job in view.jobs.values():
            if not job.running:
                continue
            for level, limit in enumerate(self.queue_thresholds_gpu_s):
                if job.id in self._queues[level] and job.attained_gpu_s >= limit:
                    del self._queues[level][job.id]
                    self._queues[level + 1][job.id] = None
