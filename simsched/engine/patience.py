"""When a run is given up in which nothing happens any more."""

from __future__ import annotations

from collections.abc import Iterable

from simsched.engine.clock import Clock
from simsched.engine.errors import StuckError


class Patience:
    """Counts the rounds in which a policy leaves everything idle."""

    def __init__(self, policy: str, clock: Clock, rounds: int, pause_s: float = 0.0) -> None:
        """Bear fewer than `rounds` idle rounds in a row, or however many there are within `pause_s` seconds."""
        self._policy = policy
        self._clock = clock
        self._most = rounds
        self._pause_s = pause_s
        self._rounds = 0
        self._begin_s: float = 0

    def renew(self) -> None:
        """Begin to count anew."""
        self._rounds = 0

    def idle(self, waiting: Iterable[str]) -> None:
        """Count an idle round; raises `StuckError` where it is one too many."""
        if not self._rounds:
            self._begin_s = self._clock.now_s
        self._rounds += 1
        if self._rounds >= self._most and self._clock.now_s - self._begin_s >= self._pause_s:
            raise self.stuck(waiting)

    def stuck(self, waiting: Iterable[str]) -> StuckError:
        """Return the error that names the policy and the jobs that wait."""
        ids = list(waiting)
        names = ", ".join(ids[:5]) + (f" and {len(ids) - 5} more" if len(ids) > 5 else "")
        return StuckError(
            f"policy '{self._policy}' at t={self._clock.now_s} s: nothing runs and nothing is due to happen, "
            f"but {len(ids)} jobs wait: {names}"
        )
