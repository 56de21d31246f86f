"""Shortest remaining time first: an oracle that knows how long every job still runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from simsched.policy import Decision, Policy, Signal, View
from simsched.policy.gang import admit, available_gpus, keep_and_place


@dataclass
class Srtf(Policy):
    """Runs the jobs with the least time left, preempting others; jobs that do not fit are skipped.

    Source: the baseline of Tiresias, section 5.1. The time left is the true one, on the GPUs asked for.
    """

    name: ClassVar[str] = "srtf"
    needs: ClassVar[frozenset[Signal]] = frozenset({Signal.REMAINING_WORK})

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Admit by time left; ties go to the job submitted first."""
        order = sorted(view.jobs.values(), key=lambda job: job.remaining.seconds)
        return Decision(keep_and_place(admit(order, available_gpus(view)), view))
