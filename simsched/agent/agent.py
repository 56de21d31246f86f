"""The contract between the engine and whatever picks a job's batch size."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from simsched.model.application import BatchChoice, GradientStats, StepTime


class Measurement(NamedTuple):
    """What a job sees of itself when it begins to run in some way, in its 0-based `epoch`."""

    nodes: int
    gpus: int
    local_bsz: int
    step: StepTime
    gradient: GradientStats
    epoch: int = 0


class Agent(Protocol):
    """Chooses batch sizes for one job and learns from what the job measures."""

    @property
    def stale(self) -> bool:
        """Tell whether `choose` could answer otherwise than when it was last asked, so that re-tuning may pay."""

    def choose(self, nodes: int, gpus: int) -> BatchChoice:
        """Choose the batch for a placement on `gpus` GPUs of `nodes` nodes."""

    def observe(self, measurement: Measurement) -> None:
        """Take note of a measurement."""

    @property
    def report(self) -> object:
        """Give what the job tells a scheduler that asks for its goodput (see `simsched.agent.goodput_agent`)."""
