"""The policy's view of the live state: what changed since the last decision, and the reasons that the policy gives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from simsched.engine.clock import Clock
from simsched.engine.options import EngineOptions
from simsched.engine.records import ReasonRecord
from simsched.engine.state import ClusterState, JobState
from simsched.model import Node, gpus_of
from simsched.policy import JobView, Reasons, Urgency, Why, undeclared
from simsched.policy.signals import ViewSignal
from simsched.words import counted, seen_of_room

_UNRANKED: tuple[int, Urgency] = 0, ()


class KeptReasons:
    """Builds the rows of a decision from the reasons given."""

    def __init__(self, cluster: ClusterState) -> None:
        self.said = Reasons()
        self._cluster = cluster
        self._nodes: dict[str, list[int]] = {}
        for node in cluster.cluster.nodes:
            self._nodes.setdefault(node.gpu_type, []).append(node.index)

    def rows(self, now_s: float, active: Mapping[str, JobState]) -> Iterator[ReasonRecord]:
        """Yield the state of the active jobs now, and forget the reasons given."""
        free = self._cluster.free
        room = {kind: (sum(free[i] for i in nodes), max(free[i] for i in nodes)) for kind, nodes in self._nodes.items()}
        for job_id, job in active.items():
            gpus = gpus_of(job.allocation)
            rank, score = self.said.places.get(job_id, _UNRANKED)
            why, detail = ("", "") if gpus else self.said.waits.get(job_id) or self._seen(job, room)
            yield ReasonRecord(now_s, job_id, gpus, rank, _text(score), str(why), detail)
        self.said.clear()

    def _seen(self, job: JobState, room: Mapping[str, tuple[int, int]]) -> tuple[Why, str]:
        """Derive a reason from the free GPUs on the types that a job can use and asks for."""
        wanted, kinds = job.request.num_gpus, [kind for kind in room if job.facts.runs_on(kind)]
        most, on_one = (max((room[kind][at] for kind in kinds), default=0) for at in (0, 1))
        nodes = self._cluster.cluster.nodes
        largest = max((nodes[i].gpus for kind in kinds for i in self._nodes[kind]), default=0)
        return seen_of_room(wanted, most, on_one, largest)


def _text(score: Urgency) -> str:
    return " ".join(f"{one + 0.0:.10g}" for one in (score if isinstance(score, tuple) else (score,)))


T = TypeVar("T")


class ReadOnly(Sequence[T]):
    """A read-only view of a list of numbers."""

    __slots__ = ("_items",)

    def __init__(self, items: list[T]) -> None:
        self._items = items

    def __getitem__(self, index):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN204  # as Sequence has it
        return self._items[index]

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self):  # type: ignore[no-untyped-def]  # noqa: ANN204
        return iter(self._items)

    def __repr__(self) -> str:
        return repr(self._items)

    def __eq__(self, other: object) -> bool:
        return self._items == other

    __hash__ = None  # type: ignore[assignment]  # what it shows changes


class LiveView:
    """Implements `simsched.policy.view.View` on the engine's state."""

    def __init__(
        self,
        clock: Clock,
        cluster: ClusterState,
        jobs: dict[str, JobView],
        granted: Mapping[ViewSignal[Any], object],
        options: EngineOptions,
    ) -> None:
        self._clock = clock
        #: Seconds since the start of the workload, at the last event.
        self.now_s = clock.now_s
        self._granted = granted
        self.jobs: Mapping[str, JobView] = MappingProxyType(jobs)
        self.nodes: Sequence[Node] = cluster.cluster.nodes
        self.free: Sequence[int] = ReadOnly(cluster.free)
        self._cluster = cluster
        self._up = cluster.up
        #: Whether each node is up; a new object whenever that changes.
        self.up: Sequence[bool] = ReadOnly(cluster.up)
        #: The cores and memory taken on each node, None if they do not count.
        self.beside = cluster.beside
        self.restart_delay_s, self.max_jobs_per_gpu = options.restart_delay_s, options.max_jobs_per_gpu
        self.reasons: Reasons | None = None
        self.arrived: Sequence[JobView] = ()
        self.finished: Sequence[str] = ()
        self.reached_threshold: Sequence[JobView] = ()
        self.lost: Sequence[JobView] = ()

    def show_nodes(self) -> None:
        """Show which nodes are up, by a new object whenever that changes, and what is taken beside GPUs."""
        self.beside = self._cluster.beside
        if self._up is not self._cluster.up:
            self._up, self.up = self._cluster.up, ReadOnly(self._cluster.up)

    def __repr__(self) -> str:
        jobs = f"{counted(len(self.jobs), 'job')}, {self._cluster.running_jobs} running"
        return f"<view at {self.now_s} s: {jobs}, {sum(self.free)} of {self._cluster.available_gpus} GPUs free>"

    def __getitem__(self, signal: ViewSignal[T]) -> T:
        if signal not in self._granted:
            raise undeclared(signal)
        return self._granted[signal]  # type: ignore[return-value]  # a signal's value is of its type


class Delta:
    """Changes since the last decision: jobs that arrived, ended, reached a threshold or lost their GPUs."""

    __slots__ = ("_lost", "_reached", "arrived", "finished")

    def __init__(self) -> None:
        #: Submitted jobs, and the ids of completed jobs.
        self.arrived: list[JobState] = []
        self.finished: list[str] = []
        self._reached: dict[str, JobState] = {}
        self._lost: dict[str, JobState] = {}

    def reach(self, job: JobState) -> None:
        """Add a job that attained the watched service."""
        self._reached[job.request.id] = job

    def lose(self, jobs: Iterable[JobState]) -> None:
        """Add jobs that lost their GPUs other than by the policy's decision."""
        self._lost.update((job.request.id, job) for job in jobs)

    def withdraw(self, job: JobState) -> None:
        """Tell nothing else of an ended job, which a process may cancel before the policy has seen it."""
        self._reached.pop(job.request.id, None)
        self._lost.pop(job.request.id, None)
        if job in self.arrived:
            self.arrived.remove(job)
            self.finished.remove(job.request.id)

    def tell(self, view: LiveView) -> None:
        """Show all changes in a view and reset; of their jobs, only those listed as finished can have ended since."""
        view.now_s = view._clock.now * view._clock.unit_s
        if view._up is not view._cluster.up or view.beside is not view._cluster.beside:
            view.show_nodes()
        view.arrived = [job.view for job in self.arrived] if self.arrived else ()
        view.finished = self.finished
        view.reached_threshold = [job.view for job in self._reached.values()] if self._reached else ()
        view.lost = [job.view for job in self._lost.values()] if self._lost else ()
        self.arrived, self.finished = [], []
        if self._reached:
            self._reached = {}
        if self._lost:
            self._lost = {}
