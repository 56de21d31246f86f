"""Least attained service in two dimensions, without queues: the job that has had the fewest GPU-seconds runs.

Idea: without any knowledge, what a job has had is the best guess of what it will still want (Gu et al., Tiresias,
NSDI'19, section 3.2.1, 2D-LAS). In continuous time jobs of equal service would share the GPUs infinitely finely; here
the service of the running jobs is looked at anew every `quantum_s` while any job waits. In between, only arrivals and
completions change who runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from simsched.policy import Decision, Policy, Quantum, View
from simsched.toolkit import PLACERS, PlacerName, PriorityScheduler


@dataclass
class Las(Policy):
    """Runs the jobs with the least attained GPU-seconds, compared every `quantum_s` seconds; ties by arrival."""

    name: ClassVar[str] = "las"

    quantum_s: int = 60
    placement: PlacerName = "most-free"
    _scheduler: PriorityScheduler = field(default_factory=PriorityScheduler, init=False, repr=False)
    _quantum: Quantum = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Start without jobs."""
        self._quantum = Quantum(self.name, self.quantum_s)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Admit by attained service."""
        scheduler = self._scheduler
        scheduler.take_in(view, lambda job: (job.attained_gpu_s,), PLACERS[self.placement])
        if self._quantum.over(view):
            for job_id in list(scheduler.running):
                scheduler.rekey(job_id, (view.jobs[job_id].attained_gpu_s,))
        start, stop = scheduler.schedule()
        for job_id in stop:
            scheduler.rekey(job_id, (view.jobs[job_id].attained_gpu_s,))
        return Decision.change(start, stop, wake_at_s=self._quantum.end_s(view.now_s) if scheduler.waits else None)
