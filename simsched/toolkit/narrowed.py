"""A view of a part of the cluster: some of the nodes, some of the jobs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

from simsched.model import Node
from simsched.policy import JobView, View, ViewSignal

T = TypeVar("T")


class NarrowedView:
    """Shows another view with only some nodes up and, unless told otherwise, all of its jobs."""

    def __init__(self, view: View, nodes: Collection[int], jobs: Mapping[str, JobView] | None = None) -> None:
        """Show `view` as if just `nodes` were up, and with just `jobs`."""
        allowed = frozenset(nodes)
        self._view = view
        self.now_s = view.now_s
        self.jobs: Mapping[str, JobView] = view.jobs if jobs is None else jobs
        self.nodes: Sequence[Node] = view.nodes
        self.up: Sequence[bool] = [node.index in allowed for node in view.nodes]
        self.free: Sequence[int] = [free if up else 0 for free, up in zip(view.free, self.up, strict=True)]
        self.arrived: Sequence[JobView] = self._of(view.arrived)
        self.finished: Sequence[str] = view.finished
        self.reached_threshold: Sequence[JobView] = self._of(view.reached_threshold)
        self.lost: Sequence[JobView] = self._of(view.lost)
        self.restart_delay_s = view.restart_delay_s
        self.max_jobs_per_gpu = view.max_jobs_per_gpu

    def _of(self, jobs: Sequence[JobView]) -> Sequence[JobView]:
        return jobs if self.jobs is self._view.jobs else [job for job in jobs if job.id in self.jobs]

    def __getitem__(self, signal: ViewSignal[T]) -> T:
        """Read a signal of the whole view."""
        return self._view[signal]
