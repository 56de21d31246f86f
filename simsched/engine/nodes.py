"""Nodes that a policy releases and requests, and the record of when and why each was out of use."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial

from simsched.engine.clock import Clock, Phase
from simsched.engine.records import OutageRecord, Recorder
from simsched.engine.state import ClusterState

#: The reason of a node that the policy released; for a broken node, it is that of its outage.
OFF = "off"


@dataclass(eq=False)
class Nodes:
    """Brings nodes up, `_start` ticks after a request, and down, and records each interval out of use when it ends."""

    _clock: Clock
    _cluster: ClusterState
    _recorder: Recorder
    _start: float
    _on_join: Callable[[], None]
    _broken: list[tuple[float, int, str]] = field(default_factory=list)
    #: Since when each node is off, and why.
    _off: dict[int, tuple[float, str]] = field(init=False)

    def __post_init__(self) -> None:
        self._off = {node: (0, OFF) for node, up in enumerate(self._cluster.up) if not up}

    def provision(self, wanted: Collection[int]) -> None:
        """Release unwanted nodes and start wanted ones that are down."""
        for node in range(len(self._cluster.up)):
            self.switch(node, on=node in wanted)

    def switch(self, node: int, *, on: bool, cause: str = OFF) -> None:
        """Start a node if it is down, or take an empty one out of use."""
        cluster, clock = self._cluster, self._clock
        if not on:
            cluster.returning.discard(node)
            cluster.take_down(node)
            self._off.setdefault(node, (clock.now, cause))
        elif node in cluster.broken:
            cluster.returning.add(node)
            self._back(node)
        elif not cluster.up[node] and node not in cluster.starting:
            cluster.start(node, clock.at(clock.now + self._start, Phase.RECOVERY, partial(self._join, node)))

    def _join(self, node: int, due: object) -> None:
        self._cluster.bring_up(node)
        self._back(node)
        self._on_join()

    def break_down(self, node: int, kind: str) -> None:
        """Mark an empty node as broken."""
        self._cluster.break_down(node)
        self._broken.append((self._clock.now, node, kind))
        if node in self._cluster.returning:
            self._back(node)

    def repair(self, node: int, kind: str, since: float) -> None:
        """Repair one cause of a node's outage."""
        self._cluster.repair(node)
        self._broken.remove((since, node, kind))
        self._tell(since, node, kind)

    def stand_in(self, spare: int, gone: int) -> None:
        """Bring up a spare instead of a broken node, which will be off once it is repaired."""
        self._cluster.returning.remove(gone)
        self._off[gone] = self._clock.now, OFF
        self._cluster.bring_up(spare)
        self._back(spare)

    def close(self) -> None:
        """Record open intervals at the end of the run, by start, node and kind."""
        off = [(since, node, cause) for node, (since, cause) in self._off.items()]
        for since, node, kind in sorted([*self._broken, *off]):
            self._tell(since, node, kind, ended=False)

    def _back(self, node: int) -> None:
        if node in self._off:
            since, cause = self._off.pop(node)
            self._tell(since, node, cause)

    def _tell(self, since: float, node: int, kind: str, *, ended: bool = True) -> None:
        clock = self._clock
        self._recorder.outage(OutageRecord(node, clock.seconds(since), clock.now_s, kind, ended))
