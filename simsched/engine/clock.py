"""The clock: simpy's event list, in whole ticks, with a fixed order of happenings inside one instant.

A tick is a second unless an experiment says otherwise. Inside the engine times and durations are numbers of ticks, so
that sums stay exact; views, records and files show seconds. A tick of 0 stands for continuous time: numbers are seconds
in double precision, and nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from heapq import heappop, heappush
from typing import cast

import simpy


class Phase(IntEnum):
    """What happens at one instant, in this order.

    PROGRESS precedes the decision and RESUME follows it. A job whose epoch ends a fraction of a second after the
    instant to which it is rounded belongs to RESUME, because it is still under way when the policy decides. The numbers
    start above simpy's own priorities, so that interrupts and process starts keep coming first.
    """

    PROGRESS = 10
    FAILURE = 11
    RECOVERY = 12
    ARRIVAL = 13
    THRESHOLD = 14
    DECISION = 15
    RESUME = 16


class Appointment(list[Callable[[], None]]):
    """A moment at which something is due; can be cancelled, though it stays in the list.

    What is due is its one item, until it has happened or is cancelled: a list is made in half the time of an object
    with a method `__init__`, and several are made for every job.
    """

    __slots__ = ()

    cancel = list.clear


#: Time, phase, running number, and what is due.
_Due = tuple[float, int, int, Appointment]


class _Environment(simpy.Environment):
    """simpy's environment with moments at absolute times: now + (time - now) need not be the time.

    Instead of simpy's events, which processes wait for, its list holds appointments, which only call somebody.
    """

    def __getstate__(self) -> dict[str, object]:
        """Say what a copy needs; simpy's own makers of events would not find their way to it."""
        return {"_now": self._now, "_queue": self._queue, "_eid": self._eid}

    @property
    def due(self) -> list[_Due]:
        """The list: time, phase, running number, and what is due."""
        return cast("list[_Due]", self._queue)

    @property
    def numbers(self) -> Iterator[int]:
        """The running numbers by which things due at one instant and phase keep their order."""
        return self._eid

    def happen(self, clock: Clock) -> bool:
        """Let happen what is due until the clock is stopped; return False if nothing is due any more before.

        Does what `step` does for every event, without a call for each.
        """
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
    """Makes appointments at absolute times, in ticks."""

    def __init__(self, tick_s: float = 1) -> None:
        """Start at 0; a tick lasts `tick_s` seconds (0: time is continuous, and counted in seconds)."""
        self.continuous = tick_s == 0
        self.env = _Environment(initial_time=0)
        self._queue, self._numbers = self.env.due, self.env.numbers
        #: Ticks since the start of the workload.
        self.now: float = 0
        self.stopped = False
        #: Seconds of a tick, None where ticks are seconds; `unit_s` is 1 then, a whole number that keeps others whole.
        self.scale: float | None = None if tick_s in (0, 1) else tick_s
        self.unit_s: float = 1 if self.scale is None else self.scale

    @property
    def now_s(self) -> float:
        """Seconds since the start of the workload."""
        return self.now if self.scale is None else self.now * self.scale

    def run(self) -> bool:
        """Let happen what is due until somebody stops the clock; return False if nothing is due any more before."""
        return self.env.happen(self)

    def stop(self) -> None:
        """Have `run` return after what is happening now."""
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
        """Convert a second to come, at which a policy asks to be woken, to a tick to come.

        Sums of seconds may lie just above the tick that is meant: a policy that compares them with now finds it too
        early at that tick, asks again, and would be woken there for ever.
        """
        return seconds if self.continuous else max(self.ticks(seconds), self.now + 1)

    def at(self, time: float, phase: Phase, action: Callable[[], None]) -> Appointment:
        """Have `action` called at a tick, in its phase."""
        appointment = Appointment((action,))
        heappush(self._queue, (time, phase, next(self._numbers), appointment))
        return appointment
