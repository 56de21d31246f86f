"""Limits of a cell: memory, time, and time per decision."""

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
    """Limits of one cell, None for unlimited.

    `memory_mib` bounds allocations beyond what its process holds beforehand; `decision_s` and `cell_s` are wall-clock
    seconds. Whoever waits for the cell enforces `cell_s` by killing its process, which no code in it can evade.
    """

    memory_mib: int | None = None
    decision_s: float | None = None
    cell_s: float | None = None


class DecisionTimeoutError(BaseException):
    """A decision timed out; no `Exception`, so policies do not catch it by accident."""


@contextlib.contextmanager
def limited_memory(limits: Limits) -> Iterator[None]:
    """Limit this process's data during the block, where supported; beyond it allocations raise `MemoryError`."""
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
    """Return a process's memory in MiB as Linux reports it, by default its peak; 0 if unknown."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines():
            if line.startswith(f"{what}:"):
                return int(line.split()[1]) // 1024
    return 0


class TimedPolicy:
    """Delegates to a policy and times out its decisions, where the main thread has a timer."""

    def __init__(self, policy: Policy, seconds: float) -> None:
        self._policy = policy
        self._seconds = seconds
        main = threading.current_thread() is threading.main_thread()
        self._can = main and hasattr(signal, "setitimer")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Decide; raises `DecisionTimeoutError` if that takes too long."""
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
        raise DecisionTimeoutError(f"a decision lasted longer than {self._seconds:g} s")
