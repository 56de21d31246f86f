"""When which node was out of use, and why; told to the recorder as each interval ends."""

from __future__ import annotations

from collections.abc import Iterable

from simsched.engine.clock import Clock
from simsched.engine.records import OutageRecord, Recorder

#: Why a node is out of use: the policy has let it go. What is wrong with one that is out of order says its outage.
OFF = "off"


class OutageLog:
    """Keeps the intervals under way, which end with the run at the latest. Times are in ticks."""

    def __init__(self, clock: Clock, recorder: Recorder, off: Iterable[int] = ()) -> None:
        """Begin with some nodes `off`, as a policy may leave them."""
        self._clock = clock
        self._recorder = recorder
        self._broken: list[tuple[float, int, str]] = []
        self._off: dict[int, float] = dict.fromkeys(off, 0)

    def breaks(self, node: int, kind: str) -> None:
        """Note that a node gets out of order."""
        self._broken.append((self._clock.now, node, kind))

    def repaired(self, node: int, kind: str, since: float) -> None:
        """Note that this is over."""
        self._broken.remove((since, node, kind))
        self._tell(since, node, kind)

    def let_go(self, node: int) -> None:
        """Note that the policy does without a node (which may be so already)."""
        self._off.setdefault(node, self._clock.now)

    def back(self, node: int) -> None:
        """Note that a node is up again, or would be if it were in order."""
        since = self._off.pop(node, None)
        if since is not None:
            self._tell(since, node, OFF)

    def close(self) -> None:
        """Tell what is under way at the end of the run, by begin, node and kind."""
        off = [(since, node, OFF) for node, since in self._off.items()]
        for since, node, kind in sorted([*self._broken, *off]):
            self._tell(since, node, kind, ended=False)

    def _tell(self, since: float, node: int, kind: str, *, ended: bool = True) -> None:
        clock = self._clock
        self._recorder.outage(OutageRecord(node, clock.seconds(since), clock.now_s, kind, ended))
