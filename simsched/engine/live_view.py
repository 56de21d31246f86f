"""The policy's window on the live state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from simsched.engine.clock import Clock
from simsched.engine.state import ClusterState
from simsched.model.cluster import Node
from simsched.policy.signals import Signal, UndeclaredSignalError
from simsched.policy.view import JobView


class _ReadOnly(Sequence[int]):
    """A sequence of numbers that shows a list without letting it be changed."""

    __slots__ = ("_items",)

    def __init__(self, items: list[int]) -> None:
        self._items = items

    def __getitem__(self, index):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN204  # as Sequence has it
        return self._items[index]

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self):  # type: ignore[no-untyped-def]  # noqa: ANN204
        return iter(self._items)


class LiveView:
    """Implements `simsched.policy.view.View` on the engine's state."""

    def __init__(
        self,
        clock: Clock,
        cluster: ClusterState,
        jobs: dict[str, JobView],
        history_gpu_s: list[int],
        granted: frozenset[Signal],
        restart_delay_s: int,
    ) -> None:
        """Show the state to a policy that declared the signals in `granted`."""
        self._clock = clock
        self._granted = granted
        self._history_gpu_s = _ReadOnly(history_gpu_s)
        self.jobs: Mapping[str, JobView] = MappingProxyType(jobs)
        self.nodes: Sequence[Node] = cluster.cluster.nodes
        self.free: Sequence[int] = _ReadOnly(cluster.free)
        self.up: Sequence[bool] = _ReadOnly(cluster.up)  # type: ignore[assignment, arg-type]
        self.restart_delay_s = restart_delay_s
        self.arrived: Sequence[JobView] = ()
        self.finished: Sequence[str] = ()
        self.crossed: Sequence[JobView] = ()

    @property
    def now_s(self) -> int:
        """Seconds since the start of the workload."""
        return self._clock.now_s

    @property
    def service_history_gpu_s(self) -> Sequence[int]:
        """Attained service of finished jobs, in GPU-seconds (signal `service_history`)."""
        if Signal.SERVICE_HISTORY not in self._granted:
            message = f"the signal '{Signal.SERVICE_HISTORY}' is not in the policy's needs"
            raise UndeclaredSignalError(message)
        return self._history_gpu_s
