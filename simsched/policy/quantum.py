"""A clock for policies that re-examine running jobs at regular intervals, only while jobs wait."""

from __future__ import annotations

from simsched.errors import input_error
from simsched.policy import View


class Quantum:
    """Time divided into slices of `quantum_s` seconds that start at its multiples."""

    def __init__(self, policy: str, quantum_s: float) -> None:
        """Start in the first slice; messages name `policy`. Raises `ValueError` for less than a second."""
        if quantum_s < 1:
            raise ValueError(f"quantum_s must be at least 1, not {quantum_s}")
        self._policy = policy
        self._quantum_s = quantum_s
        self._slice: float = 0

    def check(self, restart_delay_s: float) -> None:
        """Raise `InputError` if a slice is no longer than a restart: jobs would take turns and make no progress."""
        if restart_delay_s >= self._quantum_s:
            message = (
                f"a quantum of {self._quantum_s} s is no longer than a restart, so that no job would make progress"
            )
            remedy = f"give a quantum_s above engine.restart_delay_s, which is {restart_delay_s}"
            raise input_error(f"policy '{self._policy}'", message, remedy)

    def over(self, view: View) -> bool:
        """Return whether a slice has ended since the last call; raises `InputError` as `check` does."""
        self.check(view.restart_delay_s)
        before, self._slice = self._slice, view.now_s // self._quantum_s
        return self._slice != before

    def end_s(self, now_s: float) -> float:
        """Return when the current slice ends."""
        return (now_s // self._quantum_s + 1) * self._quantum_s
