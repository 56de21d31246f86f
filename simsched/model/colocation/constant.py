"""Sharing at a constant factor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simsched.errors import input_error
from simsched.model.colocation.contract import Resident


@dataclass(frozen=True)
class ConstantSharing:
    """Every job that shares a GPU runs at `factor` of its speed when alone; at 1/k among k jobs where it is None."""

    factor: float | None = None

    def __post_init__(self) -> None:
        if self.factor is not None and not 0 < self.factor <= 1:
            raise input_error("sharing.factor", f"is {self.factor}, not in (0, 1]", "leave it out for 1/k among k jobs")

    def speeds(self, on_one_gpu: Sequence[Resident], gpu_type: str) -> tuple[float, ...]:
        """Return the same speed for all; 1 for a job that is alone."""
        jobs = len(on_one_gpu)
        if jobs <= 1:
            return (1.0,) * jobs
        return (1 / jobs if self.factor is None else self.factor,) * jobs
