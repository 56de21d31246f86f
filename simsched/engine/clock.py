"""The clock: a SimPy environment whose events have a fixed order within one instant.

Engine times are whole ticks (by default seconds), which keeps sums exact; views, records and files use seconds. A tick
of 0 makes time continuous: unrounded float seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum, auto
from heapq import heappop, heappush

import simpy
from simpy.core import EmptySchedule
from simpy.events import NORMAL, EventPriority


class Phase(IntEnum):
    """The order of events within one instant: SimPy's priority of an event.

    PROGRESS precedes the decision, RESUME follows it: an epoch whose end was rounded down ends after the decision.
    """

    PROGRESS = auto()
    FAILURE = auto()
    RECOVERY = auto()
    ARRIVAL = auto()
    #: What users' processes wait for, and the processes themselves.
    PROCESS = auto()
    THRESHOLD = auto()
    DECISION = auto()
    RESUME = auto()


_DECISION, _RESUME = Phase.DECISION, Phase.RESUME
#: The order of SimPy's urgent events (a process begins, an interrupt) and normal ones, in one phase.
_OF_PROCESSES = (Phase.PROCESS - 0.5, float(Phase.PROCESS))


class Appointment(simpy.Event):
    """An event at a tick and phase that calls one function; emptying its `callbacks` takes the function back."""

    _ok = True
    _value = None
    #: SimPy's own would ask for an environment; whoever creates an appointment sets its `callbacks`.
    __init__ = object.__init__


class Clock(simpy.Environment):
    """A SimPy environment that schedules at absolute times, in ticks, and stops when a decision is due."""

    #: Ticks since the start of the workload.
    now: float = 0

    def __init__(self, tick_s: float = 1, decide: Callable[..., None] = lambda due: None) -> None:
        """Start at 0 with ticks of `tick_s` seconds (0: continuous time, in seconds); `ask` schedules `decide`."""
        super().__init__()
        self.continuous = tick_s == 0
        #: Set to make `advance` return after the current event.
        self.stopped = False
        #: Whether a decision is due at this instant, which needs no event.
        self.asked = False
        self._decide, self._asked_for = decide, set[float]()
        self._number = 0
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

    def step(self) -> None:
        """Process the next event, as SimPy does."""
        if not (self._queue or self.asked):
            raise EmptySchedule
        self.advance(once=True)

    def advance(self, *, once: bool = False) -> bool:
        """Process events (just `once`: one) until the clock stops; return False if none is left.

        `now` is an attribute here, which is read far more often than set.
        """
        queue = self._queue
        while not self.stopped:
            if self.asked and (not queue or queue[0] > (self.now, _RESUME)):
                self.asked = False
                self._decide(None)
                if once:
                    break
                continue
            if not queue:
                return False
            self.now, _, _, event = heappop(queue)
            callbacks, event.callbacks = event.callbacks, None  # type: ignore[assignment]  # so SimPy marks it processed
            for callback in callbacks:
                callback(event)
            if not event._ok and not event.defused:
                raise event._value
            if once:
                break
        return True

    def seconds(self, ticks: float) -> float:
        """Convert ticks to seconds."""
        return ticks if self.scale is None else ticks * self.scale

    def ticks(self, seconds: float) -> float:
        """Convert seconds to the nearest tick, half to even."""
        if self.scale is not None:
            return round(seconds / self.scale)
        return seconds if self.continuous or type(seconds) is int else round(seconds)

    def wake(self, seconds: float) -> float:
        """Convert the second of a requested wake-up to a future tick.

        A float sum just above the intended tick would make the policy ask for that tick forever.
        """
        return seconds if self.continuous else max(self.ticks(seconds), self.now + 1)

    def ask(self) -> None:
        """Schedule a decision at this instant, one for all callers."""
        self.asked = self.asked or self.now not in self._asked_for

    def ask_at(self, time: float) -> None:
        """Schedule a decision at a tick, one for all callers."""
        if time == self.now:
            self.ask()
        elif time not in self._asked_for:
            self._asked_for.add(time)
            self.at(time, _DECISION, self._decide_as_asked)

    def _decide_as_asked(self, due: simpy.Event) -> None:
        self._asked_for.remove(self.now)
        self.asked = False
        self._decide(due)

    def at(self, time: float, phase: Phase, action: Callable[..., None]) -> Appointment:
        """Schedule `action` at a tick and phase; it is called with the event."""
        appointment: Appointment = Appointment()
        appointment.callbacks = [action]
        self._number += 1
        heappush(self._queue, (time, phase, self._number, appointment))  # type: ignore[misc]
        return appointment

    def schedule(self, event: simpy.Event, priority: EventPriority = NORMAL, delay: float = 0) -> None:
        """Schedule an event of SimPy's own in the phase of processes."""
        self._number += 1
        heappush(self._queue, (self.now + delay, _OF_PROCESSES[priority], self._number, event))  # type: ignore[misc]
