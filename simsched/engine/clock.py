"""The clock: simpy's event list, in whole seconds, with a fixed order of happenings inside one instant."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

import simpy
from simpy.events import EventPriority


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
    SAMPLE = 16
    RESUME = 17


class Appointment(simpy.Event):
    """A moment at which something is due; can be cancelled, though simpy keeps it in its list."""

    def __init__(self, env: simpy.Environment, action: Callable[[], None] | None) -> None:
        """Make an event that has its value already, as simpy's own timeouts have."""
        self.env = env
        self.callbacks = [] if action is None else [lambda _: action()]
        self._value = None
        self._ok = True

    def cancel(self) -> None:
        """Make nothing happen."""
        if self.callbacks is not None:
            self.callbacks.clear()


class Clock:
    """Makes appointments at absolute times."""

    def __init__(self) -> None:
        """Start at second 0."""
        self.env = simpy.Environment(initial_time=0)

    @property
    def now_s(self) -> int:
        """Seconds since the start of the workload."""
        return int(self.env.now)

    def at(self, time_s: int, phase: Phase, action: Callable[[], None]) -> Appointment:
        """Have `action` called at a second, in its phase."""
        appointment = Appointment(self.env, action)
        self.env.schedule(appointment, priority=EventPriority(phase), delay=time_s - self.env.now)
        return appointment

    def until(self, time_s: int, phase: Phase) -> Appointment:
        """Make an event for a process to wait for."""
        appointment = Appointment(self.env, None)
        self.env.schedule(appointment, priority=EventPriority(phase), delay=time_s - self.env.now)
        return appointment
