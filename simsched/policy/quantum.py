"""A clock for policies that re-examine running jobs every so many seconds, only while jobs wait."""

from __future__ import annotations

from simsched.errors import input_error
from simsched.policy import View


class Quantum:
    """Time cut into slices of `quantum_s` seconds that begin at its multiples."""

    def __init__(self, policy: str, quantum_s: float) -> None:
        """Begin in the first slice; `policy` is named in messages. Raises `ValueError` for less than a second."""
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
        """Return whether a slice has ended since this was last asked; raises `InputError` as `check` does."""
        self.check(view.restart_delay_s)
        before, self._slice = self._slice, view.now_s // self._quantum_s
        return self._slice != before

    def end_s(self, now_s: float) -> float:
        """Say when the slice ends that is under way."""
        return (now_s // self._quantum_s + 1) * self._quantum_s
