"""The read-only window through which a policy sees jobs and cluster.

Nothing is copied: a view shows the live state at the time of the decision, and must not be kept for later. Signals that
the policy did not declare are absent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from simsched.model.application import BatchLimits, StepTime
from simsched.model.cluster import Node
from simsched.model.job import JobSpec
from simsched.model.placement import Allocation, Shape
from simsched.policy.signals import Signal, UndeclaredSignalError


class RemainingWork(Protocol):
    """An oracle of the work that a job has left."""

    @property
    def epoch(self) -> int:
        """Give the 0-based epoch in progress."""

    @property
    def epochs(self) -> int:
        """Count the epochs until completion."""

    def iterations(self, batch_size: float, epoch: int) -> float:
        """Give the iterations done by the end of an epoch when trained at `batch_size` throughout."""

    @property
    def seconds(self) -> float:
        """Give the seconds left on the GPUs and at the batch size asked for, in one piece and undisturbed."""


class JobFacts(Protocol):
    """What the view needs to know of a job; the engine's own job state is one."""

    @property
    def spec(self) -> JobSpec:
        """Give what was submitted."""

    @property
    def limits(self) -> BatchLimits | None:
        """Give the batch limits."""

    @property
    def max_gpus(self) -> int | None:
        """Give the largest useful number of GPUs."""

    @property
    def fixed_batch_size(self) -> int | None:
        """Give the only batch size."""

    @property
    def allocation(self) -> Allocation:
        """Give the GPUs held."""

    @property
    def attained_gpu_s(self) -> int:
        """Give the attained service in GPU-seconds."""

    @property
    def held_s(self) -> int:
        """Count the seconds with GPUs."""

    @property
    def age_s(self) -> int:
        """Count the seconds since submission."""

    @property
    def starts(self) -> int:
        """Count the placements so far."""

    @property
    def first_start_s(self) -> int | None:
        """Say when GPUs were first held."""

    @property
    def report(self) -> object:
        """Give the agent's report."""

    @property
    def remaining(self) -> RemainingWork:
        """Give the oracle of the work left."""

    def step_time(self, shape: Shape, local_bsz: int) -> StepTime:
        """Give the true step time."""


class JobView:
    """One submitted, unfinished job."""

    __slots__ = ("_facts", "_granted", "id", "spec")

    def __init__(self, facts: JobFacts, granted: frozenset[Signal]) -> None:
        """Show `facts`, and of the signals only those granted."""
        self._facts = facts
        self._granted = granted
        self.spec: JobSpec = facts.spec
        self.id: str = facts.spec.id

    def _require(self, signal: Signal) -> None:
        if signal not in self._granted:
            message = f"the signal '{signal}' is not in the policy's needs"
            raise UndeclaredSignalError(message)

    @property
    def num_gpus(self) -> int:
        """GPUs that the user asked for."""
        return self.spec.num_gpus

    @property
    def limits(self) -> BatchLimits | None:
        """Batch sizes that the application accepts, None where it has none."""
        return self._facts.limits

    @property
    def max_gpus(self) -> int | None:
        """The largest number of GPUs that the application can use, None where nothing but its batch bounds it."""
        return self._facts.max_gpus

    @property
    def fixed_batch_size(self) -> int | None:
        """The only total batch size that the application runs at, None where it may be chosen."""
        return self._facts.fixed_batch_size

    @property
    def allocation(self) -> Allocation:
        """The GPUs held now."""
        return self._facts.allocation

    @property
    def running(self) -> bool:
        """Whether the job holds GPUs."""
        return bool(self._facts.allocation)

    @property
    def attained_gpu_s(self) -> int:
        """Service attained so far, in GPU-seconds, restart delays included."""
        return self._facts.attained_gpu_s

    @property
    def held_s(self) -> int:
        """Seconds for which the job has held GPUs."""
        return self._facts.held_s

    @property
    def age_s(self) -> int:
        """Seconds since submission."""
        return self._facts.age_s

    @property
    def starts(self) -> int:
        """How often the job was placed anew, the first start included."""
        return self._facts.starts

    @property
    def restarts(self) -> int:
        """How often the job was placed anew after its first start."""
        return max(self._facts.starts - 1, 0)

    @property
    def first_start_s(self) -> int | None:
        """When the job first held GPUs, None before."""
        return self._facts.first_start_s

    @property
    def goodput(self) -> object:
        """The agent's report (signal `goodput`), for instance `simsched.agent.goodput_agent.GoodputReport`."""
        self._require(Signal.GOODPUT)
        return self._facts.report

    @property
    def remaining(self) -> RemainingWork:
        """The true work left (signal `remaining_work`)."""
        self._require(Signal.REMAINING_WORK)
        return self._facts.remaining

    def step_time(self, shape: Shape, local_bsz: int) -> StepTime:
        """Give the true step time on a placement (signal `step_times`), in seconds."""
        self._require(Signal.STEP_TIMES)
        return self._facts.step_time(shape, local_bsz)


class View(Protocol):
    """The state of queue and cluster at a decision.

    `jobs` holds the active jobs by id, in the order of the workload. `arrived` and `crossed` list jobs since the last
    decision (a job that has finished meanwhile is in neither); `finished` lists ids of jobs that are gone.
    """

    @property
    def now_s(self) -> int:
        """Seconds since the start of the workload."""

    @property
    def jobs(self) -> Mapping[str, JobView]:
        """Active jobs by id, in workload order."""

    @property
    def nodes(self) -> Sequence[Node]:
        """All nodes that exist, in index order; those that are down have no free GPU and may not be used."""

    @property
    def free(self) -> Sequence[int]:
        """Free GPUs of each node (0 where it is down), as things stand before the decision."""

    @property
    def up(self) -> Sequence[bool]:
        """Whether each node is up."""

    @property
    def arrived(self) -> Sequence[JobView]:
        """Jobs submitted since the last decision, in workload order."""

    @property
    def finished(self) -> Sequence[str]:
        """Ids of jobs that finished since the last decision."""

    @property
    def crossed(self) -> Sequence[JobView]:
        """Jobs that crossed the threshold watched for, since the last decision."""

    @property
    def restart_delay_s(self) -> int:
        """Seconds that a change of placement costs unless the application says otherwise."""

    @property
    def service_history_gpu_s(self) -> Sequence[int]:
        """Attained service of finished jobs in GPU-seconds, in order of completion (signal `service_history`)."""
