"""Finish-time fairness: minimises the largest ratio of a job's finish time to that in an n-th of the cluster.

Narayanan et al., Gavel (OSDI'20), section 4.2, after Themis (NSDI'20). As in Gavel's simulator weights are ignored, and
the time of past steps in isolation accumulates from one computation of shares to the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np

from simsched.policy import REMAINING_WORK, Traits
from simsched.toolkit.programs import Elapsed, Program, finish_time, isolated
from simsched.toolkit.rounds import SharesPolicy, Snapshot, Unit


@dataclass
class _Notes:
    """The record of a job: its rate in isolation and remaining progress at the last update, and seconds so far."""

    isolated_rate: float
    remaining: float
    isolated_s: float = 0.0


@dataclass
class FinishTimeFairness(SharesPolicy):
    """Minimises the largest finish-time ratio; knows the remaining work of jobs.

    With `speeds: reference`, Gavel's agnostic form, all types count as the first of the cluster.
    """

    name: ClassVar[str] = "gavel-finish-time-fairness"
    traits: ClassVar[Traits] = replace(SharesPolicy.traits, needs={REMAINING_WORK})

    speeds: Literal["true", "measured", "fitted", "reference"] = "true"
    _program: Program = field(default_factory=Program, init=False, repr=False)
    _notes: dict[str, _Notes] = field(default_factory=dict, init=False, repr=False)

    def shares(self, snapshot: Snapshot) -> Mapping[Unit, Sequence[float]]:
        """Update the records and solve the program."""
        problem, remaining = snapshot.problem, snapshot.remaining
        rates = (problem.throughput * isolated(problem)).sum(axis=1)
        notes: dict[str, _Notes] = {}
        for job_id, rate, left in zip(snapshot.ids, rates.tolist(), remaining.tolist(), strict=True):
            before = self._notes.get(job_id)
            done_s = 0.0
            if before is not None:
                done_s = before.isolated_s
                if before.isolated_rate > 0:
                    done_s += (before.remaining - left) / before.isolated_rate
            notes[job_id] = _Notes(rate, left, done_s)
        self._notes = notes
        isolated_s = np.array([note.isolated_s for note in notes.values()])
        progress = Elapsed(snapshot.age_s, remaining, np.maximum(isolated_s, 0.0))
        return snapshot.by_job(finish_time(problem, progress, program=self._program))
