"""The contract of models of GPU sharing, and what they know of a job on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from simsched.arithmetic import ordered_sum
from simsched.errors import input_error


class Resident(NamedTuple):
    """A job on a GPU, as far as it affects the speed of its neighbours.

    `batch_size` counts the examples per GPU and step, 0 if it has no batch size; `iteration_s` is the time of an
    iteration of the job when it is alone, and `stages_s` the seconds of it that each resource is busy, () if unknown.
    Sharing must not slow down a `guaranteed` job.
    """

    application: str
    batch_size: int
    iteration_s: float
    stages_s: tuple[float, ...]
    guaranteed: bool


class Colocation(Protocol):
    """A model of the speed of jobs that share a GPU."""

    def speeds(self, on_one_gpu: Sequence[Resident], gpu_type: str) -> tuple[float, ...]:
        """Return the speed of each resident as a share of its speed when alone, in the order of the residents."""


@dataclass(frozen=True, slots=True)
class Guarantee:
    """A term of `Place.more`: guaranteed jobs come first, see `GuaranteedFirst`; `kept` says whether this one is.

    None leaves that as it was, at first as submitted.
    """

    kept: bool | None = None


@dataclass(frozen=True)
class GuaranteedFirst:
    """A model in which a guaranteed job runs as if alone, and jobs together achieve what `beneath` says.

    Priority divides the work of a GPU without adding to it: the others share what the guaranteed job leaves of the sum
    of speeds, in proportion to their speeds under `beneath`, and stop if that is nothing. Source: AntMan, section 4.2,
    whose local scheduler holds opportunistic jobs back until the guaranteed one is as fast as if alone.
    """

    beneath: Colocation

    def speeds(self, on_one_gpu: Sequence[Resident], gpu_type: str) -> tuple[float, ...]:
        """Return 1 for the guaranteed resident and shares of the rest for the others.

        Raises `InputError` if two residents are guaranteed: they cannot both keep the whole GPU.
        """
        refuse_two_guaranteed(on_one_gpu)
        below = self.beneath.speeds(on_one_gpu, gpu_type)
        others = ordered_sum(speed for who, speed in zip(on_one_gpu, below, strict=True) if not who.guaranteed)
        if not others or not any(who.guaranteed for who in on_one_gpu):
            return below
        left = max(0.0, ordered_sum(below) - 1)
        return tuple(
            1.0 if who.guaranteed else left * speed / others for who, speed in zip(on_one_gpu, below, strict=True)
        )


def refuse_two_guaranteed(on_one_gpu: Sequence[Resident]) -> None:
    """Raise `InputError` if two residents are guaranteed: they cannot both keep the whole GPU."""
    guaranteed = [resident for resident in on_one_gpu if resident.guaranteed]
    if len(guaranteed) > 1:
        names = " and ".join(f"'{resident.application}'" for resident in guaranteed)
        raise input_error("sharing", f"{names} are both guaranteed and share a GPU", "place guaranteed jobs apart")


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
