"""Earliest deadline first (Liu and Layland, JACM 20(1), 1973): the baseline of policies that know deadlines."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from simsched.policy import Decision, JobView, Policy, View
from simsched.policy.placers import PLACERS, PlacerName
from simsched.policy.priority import Key, PriorityScheduler


@dataclass
class Edf(Policy):
    """Runs the jobs whose deadline is next, preempting others; those without one come last, in order of submission.

    Nobody is refused, and a job that is late keeps its place. Jobs that do not fit are skipped.
    """

    name: ClassVar[str] = "edf"

    preempts: bool = True
    placement: PlacerName = "most-free"
    _scheduler: PriorityScheduler = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Start without jobs."""
        self._scheduler = PriorityScheduler(preempts=self.preempts)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Admit by deadline."""
        self._scheduler.take_in(view, _key, PLACERS[self.placement])
        return Decision.change(*self._scheduler.schedule())


def _key(job: JobView) -> Key:
    deadline_s = job.request.deadline_s
    return (math.inf if deadline_s is None else job.request.submit_time_s + deadline_s,)
