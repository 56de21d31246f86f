"""The clock: an event list in ticks, with a fixed order of events within one instant.

Engine times are whole ticks (by default seconds), which keeps sums exact; views, records and files use seconds. A tick
of 0 makes time continuous: unrounded float seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum, auto
from heapq import heappop, heappush
from itertools import count


class Phase(IntEnum):
    """The order of events within one instant.

    PROGRESS precedes the decision, RESUME follows it: an epoch whose end was rounded down ends after the decision.
    """

    PROGRESS = auto()
    FAILURE = auto()
    RECOVERY = auto()
    ARRIVAL = auto()
    THRESHOLD = auto()
    DECISION = auto()
    RESUME = auto()


_DECISION, _RESUME = Phase.DECISION, Phase.RESUME


class Appointment(list[Callable[[], None]]):
    """A cancellable callback; cancelling leaves it in the event list.

    The callback is its only item until it fires: creating a list takes half the time of an object with `__init__`.
    """

    __slots__ = ()

    cancel = list.clear


#: Time, phase, running number, and what is due.
_Due = tuple[float, int, int, Appointment]


class Clock:
    """Schedules callbacks at absolute times, in ticks."""

    def __init__(self, tick_s: float = 1, decide: Callable[[], None] = lambda: None) -> None:
        """Start at 0 with ticks of `tick_s` seconds (0: continuous time, in seconds); `ask` schedules `decide`."""
        self.continuous = tick_s == 0
        self._queue: list[_Due] = []
        #: Orders events of the same instant and phase.
        self._numbers = count()
        #: Ticks since the start of the workload.
        self.now: float = 0
        self.stopped = False
        #: Whether a decision is due at this instant, which needs no event.
        self.asked = False
        self._decide, self._asked_for = decide, set[float]()
        #: Seconds per tick, None if ticks are seconds; `unit_s` is then the integer 1.
        self.scale: float | None = None if tick_s in (0, 1) else tick_s
        self.unit_s: float = 1 if self.scale is None else self.scale

    @property
    def now_s(self) -> float:
        """Seconds since the start of the workload."""
        return self.now if self.scale is None else self.now * self.scale

    @property
    def quiet(self) -> bool:
        """Whether no further event is due at this instant."""
        return not self.asked and (not self._queue or self._queue[0][0] > self.now)

    def run(self) -> bool:
        """Process events until the clock stops; return False if none is left."""
        queue = self._queue
        while not self.stopped:
            if self.asked and (not queue or queue[0] > (self.now, _RESUME)):
                self.asked = False
                self._decide()
                continue
            if not queue:
                return False
            self.now, _, _, due = heappop(queue)
            if due:
                due.pop()()
        return True

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

    def ask(self, time: float) -> None:
        """Schedule a decision at a tick, one for all callers."""
        if time not in self._asked_for:
            self._asked_for.add(time)
            self.at(time, _DECISION, self._decide_as_asked)

    def _decide_as_asked(self) -> None:
        self._asked_for.remove(self.now)
        self.asked = False
        self._decide()

    def at(self, time: float, phase: Phase, action: Callable[[], None]) -> Appointment:
        """Schedule `action` at a tick and phase."""
        appointment = Appointment((action,))
        heappush(self._queue, (time, phase, next(self._numbers), appointment))
        return appointment
