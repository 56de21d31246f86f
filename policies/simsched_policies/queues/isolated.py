"""Isolated: every job gets an equal share of the cluster's time, as if it ran in its own partition.

Idea: with n jobs in the system, a job that asks for g of G GPUs should run for a share G / (n g) of the time, at most
1; time beyond the shares is given away. Gavel measures the fairness of other policies against it (Narayanan et al.,
OSDI'20, section 4.2), and realises the shares in rounds, as here: the jobs that have received the smallest part of
their due run (section 5).

Deviations: none that matter; on a cluster of several GPU types the share counts all GPUs alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from simsched.policy import Decision, JobView, Policy, Traits, View
from simsched.toolkit import available_gpus, run_in_order


@dataclass
class Isolated(Policy):
    """Runs, in rounds of `round_s` seconds, the jobs that are furthest behind an equal share; ties by arrival."""

    name: ClassVar[str] = "isolated"
    traits: ClassVar[Traits] = Traits(interval="round_s")

    round_s: int = 360

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Admit by how far jobs are behind their share."""
        gpus = available_gpus(view)
        jobs = list(view.jobs.values())

        def behind(job: JobView) -> float:
            return _behind(job, gpus / len(jobs))

        return Decision(run_in_order(sorted(jobs, key=behind, reverse=True), view, score=behind))


def _behind(job: JobView, fair_gpus: float) -> float:
    """Return Gavel's priority: the due share of time over the received share, infinite if the latter is 0."""
    due = min(fair_gpus / job.num_gpus, 1.0)
    return due * job.age_s / job.held_s if job.held_s else math.inf
