"""The Gittins index in two dimensions, without queues: runs the jobs most likely to finish per unit of service.

Idea: if the distribution of service is known, but not the service of a single job, the index tells which job to serve
(Gu et al., Tiresias, NSDI'19, section 3.2.1, 2D-Gittins). The distribution comes from samples, from a file, or from
finished jobs; never from a job's own future. The index of the running jobs is read again every `quantum_s` while any
job waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import numpy as np

from simsched.policy import INPUT_FILE, Decision, Policy, Quantum, Traits, View
from simsched.policy.signals import SERVICE_HISTORY
from simsched.toolkit import PLACERS, Key, PlacerName, PriorityScheduler
from simsched.toolkit.gittins import ServiceHistory


@dataclass
class Gittins(Policy):
    """Runs the jobs of the largest Gittins index, compared every `quantum_s` seconds; ties by arrival.

    The total service of past jobs in GPU-seconds is given as `history_gpu_s` or in the file `history_file` (one number
    a line), or else learned from finished jobs; until ten have finished, jobs run in order of arrival.
    """

    name: ClassVar[str] = "gittins"
    traits: ClassVar[Traits] = Traits(needs={SERVICE_HISTORY}, quantum="quantum_s")

    quantum_s: int = 60
    history_gpu_s: Sequence[int] = ()
    history_file: Annotated[str | None, INPUT_FILE] = None
    placement: PlacerName = "most-free"
    _scheduler: PriorityScheduler = field(default_factory=PriorityScheduler, init=False, repr=False)
    _quantum: Quantum = field(init=False, repr=False)
    _history: ServiceHistory = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Start without jobs."""
        self._quantum = Quantum(self.name, self.quantum_s)
        self._history = ServiceHistory(self.history_gpu_s, self.history_file)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Admit by index."""
        scheduler = self._scheduler
        learned = self._history.learn(view[SERVICE_HISTORY])
        scheduler.take_in(view, lambda job: self._key(job.attained_gpu_s), PLACERS[self.placement])
        over = self._quantum.over(view)
        for job_id in list(scheduler.ids if learned else scheduler.running if over else ()):
            scheduler.rekey(job_id, self._key(view.jobs[job_id].attained_gpu_s))
        start, stop = scheduler.schedule()
        for job_id in stop:
            scheduler.rekey(job_id, self._key(view.jobs[job_id].attained_gpu_s))
        return Decision.change(start, stop, wake_at_s=self._quantum.end_s(view.now_s) if scheduler.waits else None)

    def _key(self, attained_gpu_s: float) -> Key:
        known = self._history.distribution
        return (-known.index(attained_gpu_s) if known else 0.0,)
