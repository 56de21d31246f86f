"""What a cell may take: memory, time, and time for one decision of its policy."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from simsched.policy import Decision, Policy, View

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

_MIB = 1 << 20


@dataclass(frozen=True)
class Limits:
    """What one cell may take; None means that there is no limit.

    `memory_mib` is what a cell may allocate beyond what its process holds before it; `decision_s` are the seconds
    on the wall that one decision may last, `cell_s` those that the cell may take. The latter are kept by whoever waits
    for the cell, and ends its process; nothing that runs in that process can evade it.
    """

    memory_mib: int | None = None
    decision_s: float | None = None
    cell_s: float | None = None


class DecisionTimeoutError(BaseException):
    """A decision lasts longer than it may; not an `Exception`, so that no policy catches it by accident."""


@contextlib.contextmanager
def limited_memory(limits: Limits) -> Iterator[None]:
    """Refuse this process more data than it has now and the limit allows, for as long as the block lasts.

    Whoever asks for more gets a `MemoryError`. Systems without such limits let everything through.
    """
    if resource is None or limits.memory_mib is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = memory_of("self", "VmData") * _MIB + limits.memory_mib * _MIB
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))
    try:
        yield
    finally:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def memory_of(process: int | str, what: str = "VmHWM") -> int:
    """Return a process's memory in MiB as Linux counts it, its largest so far by default; 0 where that is not known."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines():
            if line.startswith(f"{what}:"):
                return int(line.split()[1]) // 1024
    return 0


class TimedPolicy:
    """A policy each of whose decisions must end in time; whatever else is asked of it, the policy itself answers.

    The clock is that of the process's main thread; elsewhere, and where the system has none, no decision is stopped.
    """

    def __init__(self, policy: Policy, seconds: float) -> None:
        """Wrap `policy`."""
        self._policy = policy
        self._seconds = seconds
        main = threading.current_thread() is threading.main_thread()
        self._can = main and hasattr(signal, "setitimer")

    def __getattr__(self, name: str) -> Any:
        """Ask the policy."""
        return getattr(self._policy, name)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Have the policy decide; raises `DecisionTimeoutError` where that lasts too long."""
        if not self._can:
            return self._policy.decide(view, rng)
        before = signal.signal(signal.SIGALRM, self._stop)
        signal.setitimer(signal.ITIMER_REAL, self._seconds)
        try:
            return self._policy.decide(view, rng)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        message = f"a decision lasted longer than {self._seconds:g} s"
        raise DecisionTimeoutError(message)
