"""The read-only window through which a policy sees jobs and the cluster.

Nothing is copied: a view shows the live state at the decision and must not be kept. Signals that the policy did not
declare are absent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from simsched.model import Allocation, ApplicationFacts, BatchLimits, JobRequest, Node
from simsched.model.placement import describe
from simsched.policy.signals import JobSignal, UndeclaredSignalError, ViewSignal
from simsched.words import Why as Why, counted

#: The numbers by which the policy orders a job; () if its position follows from none.
Urgency = float | tuple[float, ...]


class Reasons:
    """Receives from a policy, or from the toolkit, the reasons of the decision that it is about to return."""

    def __init__(self) -> None:
        self.places: dict[str, tuple[int, Urgency]] = {}
        self.waits: dict[str, tuple[Why, str]] = {}

    def order(self, scores: Mapping[str, Urgency]) -> None:
        """Report the order in which jobs are considered, the most urgent first, each with its score."""
        self.places |= {job_id: (rank, score) for rank, (job_id, score) in enumerate(scores.items(), start=1)}

    def wait(self, job_id: str, why: Why, detail: str = "") -> None:
        """Report why a job has to wait; ignored for a job that runs after the decision."""
        self.waits[job_id] = why, detail

    def clear(self) -> None:
        """Forget all reasons once the decision is carried out."""
        self.places.clear()
        self.waits.clear()


T = TypeVar("T")


class JobFacts(Protocol):
    """The state of a job that a view needs; the engine's job state provides it."""

    @property
    def facts(self) -> ApplicationFacts:
        """Return what is known of its application."""

    @property
    def allocation(self) -> Allocation:
        """Return the GPUs held."""

    @property
    def attained_gpu_s(self) -> float:
        """Return the attained service in GPU-seconds."""

    @property
    def held_s(self) -> float:
        """Return the seconds with GPUs."""

    @property
    def age_s(self) -> float:
        """Return the seconds since submission."""

    @property
    def starts(self) -> int:
        """Return the number of placements so far."""

    @property
    def first_start_s(self) -> float | None:
        """Return when GPUs were first held."""

    @property
    def neighbours(self) -> tuple[str, ...]:
        """Return the jobs that share a GPU with this one."""


#: Reads one declared signal of a job.
Provider = Callable[[Any], object]


class JobView:
    """One submitted, unfinished job."""

    __slots__ = ("_granted", "_state", "id", "request")

    def __init__(self, request: JobRequest, state: JobFacts, granted: Mapping[JobSignal[Any], Provider]) -> None:
        """Show a request, the state of its job, and only the signals granted."""
        self._state = state
        self._granted = granted
        self.request = request
        self.id: str = request.id

    def __repr__(self) -> str:
        """Describe in one line what it asks for and where it runs."""
        where = f"runs on {describe(self.allocation)} (node:GPUs)" if self.allocation else "waits"
        return f"<job {self.id}: {counted(self.num_gpus, 'GPU')}, {where}>"

    def __getitem__(self, signal: JobSignal[T]) -> T:
        """Read a signal that the policy has declared; raises `UndeclaredSignalError` for others."""
        if signal not in self._granted:
            raise undeclared(signal)
        return self._granted[signal](self._state)  # type: ignore[return-value]  # a provider gives what its signal says

    @property
    def num_gpus(self) -> int:
        """GPUs that the user asked for."""
        return self.request.num_gpus

    @property
    def facts(self) -> ApplicationFacts:
        """What a user or a profiler knows of the application, except its plans, which are a signal."""
        facts = self._state.facts
        return facts if facts.plans is None else facts.without_plans

    @property
    def limits(self) -> BatchLimits | None:
        """Batch sizes that the application accepts, None if it has none."""
        return self._state.facts.limits

    @property
    def max_gpus(self) -> int | None:
        """The largest number of GPUs that the application can use, None if only its batch bounds it."""
        return self._state.facts.max_gpus

    @property
    def fixed_batch_size(self) -> int | None:
        """The only total batch size that the application runs at, None if it may be chosen."""
        return self._state.facts.fixed_batch_size

    @property
    def allocation(self) -> Allocation:
        """The GPUs held now."""
        return self._state.allocation

    @property
    def running(self) -> bool:
        """Whether the job holds GPUs."""
        return bool(self._state.allocation)

    @property
    def attained_gpu_s(self) -> float:
        """Service attained so far, in GPU-seconds, restart delays included."""
        return self._state.attained_gpu_s

    @property
    def held_s(self) -> float:
        """Seconds for which the job has held GPUs."""
        return self._state.held_s

    @property
    def age_s(self) -> float:
        """Seconds since submission."""
        return self._state.age_s

    @property
    def starts(self) -> int:
        """The number of placements of the job, including the first start."""
        return self._state.starts

    @property
    def restarts(self) -> int:
        """The number of placements of the job after its first start."""
        return max(self._state.starts - 1, 0)

    @property
    def first_start_s(self) -> float | None:
        """The time at which the job first held GPUs, None before."""
        return self._state.first_start_s

    @property
    def neighbours(self) -> tuple[str, ...]:
        """Ids of the jobs that share a GPU with this one."""
        return self._state.neighbours

    @property
    def memory_mb(self) -> float:
        """Memory on each of its GPUs at the requested batch size, in MB; 0 if unknown."""
        need = self.facts.memory
        return 0.0 if need is None else need.total_mb(max(self.request.batch_size // self.num_gpus, 1))


class View(Protocol):
    """The state of queue and cluster at a decision.

    `jobs` holds the active jobs by id, in the order of the workload. `arrived` and `reached_threshold` list jobs since
    the last decision (neither lists a finished job); `finished` lists ids of jobs that have ended.
    """

    @property
    def now_s(self) -> float:
        """Seconds since the start of the workload."""

    @property
    def jobs(self) -> Mapping[str, JobView]:
        """Active jobs by id, in workload order."""

    @property
    def nodes(self) -> Sequence[Node]:
        """All nodes that exist, in index order; those that are down have no free GPU and may not be used."""

    @property
    def free(self) -> Sequence[int]:
        """Free GPUs of each node (0 if it is down), before the decision."""

    @property
    def up(self) -> Sequence[bool]:
        """Whether each node is up."""

    @property
    def beside(self) -> Sequence[tuple[int, int]] | None:
        """Thousandths of cores and MiB taken on each node, None if they do not count."""

    @property
    def arrived(self) -> Sequence[JobView]:
        """Jobs submitted since the last decision, in workload order."""

    @property
    def finished(self) -> Sequence[str]:
        """Ids of jobs that finished since the last decision."""

    @property
    def reached_threshold(self) -> Sequence[JobView]:
        """Jobs whose attained service has reached the watched threshold since the last decision."""

    @property
    def lost(self) -> Sequence[JobView]:
        """Jobs that lost their GPUs since the last decision because a node or the job itself failed."""

    @property
    def max_jobs_per_gpu(self) -> int:
        """The most jobs that may hold one GPU; 1 if GPUs are not shared."""

    @property
    def restart_delay_s(self) -> float:
        """Seconds that a change of placement costs unless the application says otherwise."""

    @property
    def reasons(self) -> Reasons | None:
        """Receives the policy's order and why jobs wait; None if reasons are not kept."""

    def __getitem__(self, signal: ViewSignal[T]) -> T:
        """Read a signal that the policy has declared; raises `UndeclaredSignalError` for others."""
        ...


def undeclared(signal: object) -> UndeclaredSignalError:
    """Create the error for a signal that the policy did not declare."""
    return UndeclaredSignalError(f"the signal '{signal}' is not in the policy's needs")
