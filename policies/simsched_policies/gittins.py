"""The Gittins index in two dimensions, without queues: the job most likely to finish for the service it takes runs.

Idea: where the distribution of service is known, but not that of a single job, the index says which job to serve (Gu et
al., Tiresias, NSDI'19, section 3.2.1, 2D-Gittins). The distribution comes from samples, from a file, or from the jobs
that have finished; never from a job's own future. The index of the running jobs is looked at anew every `quantum_s`
while any job waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import numpy as np

from simsched.policy import INPUT_FILE, Decision, Policy, Signal, View
from simsched.policy.gittins import History
from simsched.policy.placers import PLACERS, PlacerName
from simsched.policy.quantum import Quantum
from simsched.policy.roster import Key, Roster


@dataclass
class Gittins(Policy):
    """Runs the jobs of the largest Gittins index, compared every `quantum_s` seconds; ties by arrival.

    The total service of past jobs in GPU-seconds is given as `history_gpu_s` or in the file `history_file` (one number
    a line), or else is learned from the jobs that finish; until ten have, jobs run in order of arrival.
    """

    name: ClassVar[str] = "gittins"
    needs: ClassVar[frozenset[Signal]] = frozenset({Signal.SERVICE_HISTORY})

    quantum_s: int = 60
    history_gpu_s: Sequence[int] = ()
    history_file: Annotated[str | None, INPUT_FILE] = None
    placement: PlacerName = "most-free"
    _roster: Roster = field(default_factory=Roster, init=False, repr=False)
    _quantum: Quantum = field(init=False, repr=False)
    _history: History = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Start without jobs."""
        self._quantum = Quantum(self.name, self.quantum_s)
        self._history = History(self.history_gpu_s, self.history_file)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Admit by index."""
        roster = self._roster
        learned = self._history.learn(view.service_history_gpu_s)
        roster.take_in(view, lambda job: self._key(job.attained_gpu_s), PLACERS[self.placement])
        over = self._quantum.over(view)
        for job_id in list(roster.ids if learned else roster.running if over else ()):
            roster.rekey(job_id, self._key(view.jobs[job_id].attained_gpu_s))
        start, stop = roster.schedule()
        for job_id in stop:
            roster.rekey(job_id, self._key(view.jobs[job_id].attained_gpu_s))
        return Decision.change(start, stop, wake_at_s=self._quantum.end_s(view.now_s) if roster.waits else None)

    def _key(self, attained_gpu_s: int) -> Key:
        known = self._history.distribution
        return (-known.index(attained_gpu_s) if known else 0.0,)
