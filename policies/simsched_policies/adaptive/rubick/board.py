"""A round of Rubick: which job would hold which GPUs while jobs take them from each other."""

from __future__ import annotations

from collections.abc import Iterator

from simsched.model import Allocation, Capacity, gpus_of
from simsched.policy import JobView, View
from simsched.toolkit import PlanCurves

#: The slope of a job that has waited or run for too long: it is served first and gives up no GPUs.
OVERDUE = 1e9
#: GPUs that change hands in one step, as in the published artifact.
PARCELS = (1, 2, 4, 8)


class Board:
    """The planned GPUs of all jobs and the free ones; starts from what the jobs hold."""

    def __init__(self, view: View, curves: PlanCurves, overdue_s: float) -> None:
        self.room = Capacity.of(view)
        self.at: dict[str, Allocation] = {job.id: job.allocation for job in view.jobs.values() if job.running}
        self._jobs, self._curves, self._overdue_s = view.jobs, curves, overdue_s

    def kind(self, node: int) -> str:
        """Return the GPU type of a node."""
        return self.room.nodes[node].gpu_type

    def move(self, job_id: str, at: Allocation) -> None:
        """Let a job hold these GPUs instead of its current ones."""
        self.room.give_back(self.at.pop(job_id, ()))
        self.room.take(at)
        if at:
            self.at[job_id] = at

    def held(self, job_id: str, node: int) -> int:
        """Return the GPUs of a node that a job holds."""
        return sum(gpus for at, gpus in self.at.get(job_id, ()) if at == node)

    def alone_on(self, node: int) -> Iterator[JobView]:
        """Yield the jobs that hold GPUs of this node and no other."""
        return (self._jobs[one] for one, at in list(self.at.items()) if len(at) == 1 and at[0][0] == node)

    def slope(self, job: JobView, gpus: int, change: int, kind: str) -> float:
        """Return the change of a job's rate per GPU of a change, relative to its rate on the GPUs that it asked for."""
        if job.age_s > self._overdue_s:
            return OVERDUE
        reference = self._curves.rate(job, job.num_gpus, kind) or 1.0
        rate = self._curves.rate
        return abs(rate(job, gpus + change, kind) - rate(job, gpus, kind)) / (reference * abs(change))

    def total(self, job_id: str) -> int:
        """Return the GPUs that a job holds."""
        return gpus_of(self.at.get(job_id, ()))
