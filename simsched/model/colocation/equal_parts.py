"""Sharing in equal parts: at a constant factor, or by turns of equal length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simsched.errors import input_error
from simsched.model.colocation.contract import Resident


@dataclass(frozen=True)
class ConstantSharing:
    """Every job that shares a GPU runs at `factor` times its speed when alone; None means 1/k among k jobs."""

    factor: float | None = None

    def __post_init__(self) -> None:
        if self.factor is not None and not 0 < self.factor <= 1:
            raise input_error("sharing.factor", f"is {self.factor}, not in (0, 1]", "leave it out for 1/k among k jobs")

    def speeds(self, on_one_gpu: Sequence[Resident], gpu_type: str) -> tuple[float, ...]:
        """Return the same speed for all; 1 for a job alone."""
        jobs = len(on_one_gpu)
        if jobs <= 1:
            return (1.0,) * jobs
        return (1 / jobs if self.factor is None else self.factor,) * jobs


@dataclass(frozen=True)
class TimeSlicing:
    """Jobs take turns of `quantum_s`; each turn starts with a switch of `switch_s` in which no job progresses.

    Source: Gandiva, section 3.2 (60 s, suspend and resume under 2 %).
    """

    quantum_s: float = 60.0
    switch_s: float = 0.0

    def __post_init__(self) -> None:
        if not self.quantum_s > 0:
            raise input_error("sharing.quantum_s", f"is {self.quantum_s}, not positive", "for example 60")
        if not 0 <= self.switch_s < self.quantum_s:
            raise input_error(
                "sharing.switch_s",
                f"is {self.switch_s}, not in [0, {self.quantum_s}): no time is left to run",
                "make the turn longer or the switch cheaper",
            )

    def speeds(self, on_one_gpu: Sequence[Resident], gpu_type: str) -> tuple[float, ...]:
        """Return (quantum - switch) / quantum / k for each of k jobs; 1 for a job alone."""
        jobs = len(on_one_gpu)
        if jobs <= 1:
            return (1.0,) * jobs
        return ((1 - self.switch_s / self.quantum_s) / jobs,) * jobs
