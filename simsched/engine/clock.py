"""The clock: simpy's event list in ticks, with a fixed order of events within one instant.

Engine times are whole ticks (by default seconds), which keeps sums exact; views, records and files use seconds. A tick
of 0 makes time continuous: unrounded float seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from heapq import heappop, heappush
from typing import cast

import simpy


class Phase(IntEnum):
    """The order of events within one instant; values start above simpy's own priorities.

    PROGRESS precedes the decision, RESUME follows it: an epoch whose end was rounded down ends after the decision.
    """

    PROGRESS = 10
    FAILURE = 11
    RECOVERY = 12
    ARRIVAL = 13
    THRESHOLD = 14
    DECISION = 15
    RESUME = 16


class Appointment(list[Callable[[], None]]):
    """A cancellable callback; cancelling leaves it in the event list.

    The callback is its one item until it fires: creating a list takes half the time of an object with `__init__`.
    """

    __slots__ = ()

    cancel = list.clear


#: Time, phase, running number, and what is due.
_Due = tuple[float, int, int, Appointment]


class _Environment(simpy.Environment):
    """A simpy environment that schedules callbacks at absolute times: now + (time - now) can differ from the time."""

    def __getstate__(self) -> dict[str, object]:
        """Omit simpy's event factories, which do not pickle."""
        return {"_now": self._now, "_queue": self._queue, "_eid": self._eid}

    @property
    def due(self) -> list[_Due]:
        """The list: time, phase, running number, and what is due."""
        return cast("list[_Due]", self._queue)

    @property
    def numbers(self) -> Iterator[int]:
        """The counter that orders events of the same instant and phase."""
        return self._eid

    def happen(self, clock: Clock) -> bool:
        """Process events until the clock stops; return False if none is left. Inlines `step`."""
        queue = self.due
        while not clock.stopped:
            if not queue:
                return False
            time, _, _, due = heappop(queue)
            self._now = clock.now = time
            if due:
                due.pop()()
        return True


class Clock:
    """Schedules callbacks at absolute times, in ticks."""

    def __init__(self, tick_s: float = 1) -> None:
        """Start at 0 with ticks of `tick_s` seconds (0: continuous time, in seconds)."""
        self.continuous = tick_s == 0
        self.env = _Environment(initial_time=0)
        self._queue, self._numbers = self.env.due, self.env.numbers
        #: Ticks since the start of the workload.
        self.now: float = 0
        self.stopped = False
        #: Seconds per tick, None where ticks are seconds; `unit_s` is then the integer 1.
        self.scale: float | None = None if tick_s in (0, 1) else tick_s
        self.unit_s: float = 1 if self.scale is None else self.scale

    @property
    def now_s(self) -> float:
        """Seconds since the start of the workload."""
        return self.now if self.scale is None else self.now * self.scale

    def run(self) -> bool:
        """Process events until the clock stops; return False if none is left."""
        return self.env.happen(self)

    def stop(self) -> None:
        """Make `run` return after the current event."""
        self.stopped = True

    def seconds(self, ticks: float) -> float:
        """Convert ticks to seconds."""
        return ticks if self.scale is None else ticks * self.scale

    def ticks(self, seconds: float) -> float:
        """Convert seconds to the nearest tick, half to even."""
        if self.scale is not None:
            return round(seconds / self.scale)
        return seconds if self.continuous or isinstance(seconds, int) else round(seconds)

    def wake(self, seconds: float) -> float:
        """Convert the second of a requested wake-up to a future tick.

        A float sum just above the intended tick would make the policy ask for that tick forever.
        """
        return seconds if self.continuous else max(self.ticks(seconds), self.now + 1)

    def at(self, time: float, phase: Phase, action: Callable[[], None]) -> Appointment:
        """Schedule `action` at a tick and phase."""
        appointment = Appointment((action,))
        heappush(self._queue, (time, phase, next(self._numbers), appointment))
        return appointment
