"""Jobs known by a profile: how many iterations they take, and how long each resource is busy in one of them."""

from __future__ import annotations

from simsched.model.application import BatchChoice, Running, StepTime, Undeclared
from simsched.model.job import StageProfile
from simsched.model.placement import Site


class StagedJob(Undeclared):
    """A job of `total_steps` iterations, each as long as its profile says on the GPUs asked for, wherever they are.

    Progress counts iterations. The batch size is part of the profile, so there is none to choose.
    """

    def __init__(self, name: str, profile: StageProfile, total_steps: float) -> None:
        """Take the profile; raises `ValueError` for a job without iterations or iterations without length."""
        if total_steps < 1 or not profile.iteration_s > 0:
            message = f"a job of {name} needs at least 1 iteration of more than 0 seconds"
            raise ValueError(message)
        self.name = name
        self.total_steps = total_steps
        self.iteration_s = profile.iteration_s
        self.stages_s: tuple[float, ...] = profile.stages_s

    def epoch_end(self, epoch: int) -> float:
        """Return the iterations in all, where the only epoch ends."""
        return float(self.total_steps)

    def run(self, site: Site, batch: BatchChoice, epoch: int) -> Running:
        """Run at one iteration in the seconds of the profile, on any placement; throughput counts iterations."""
        return Running(1 / self.iteration_s, 1.0, 1 / self.iteration_s, None, None)

    def step_time(self, site: Site, local_bsz: int) -> StepTime:
        """Return the seconds of an iteration, and of its network stage."""
        return StepTime(self.iteration_s, self.stages_s[2])

    def iterations(self, batch_size: float, epoch: int) -> float:
        """Return the iterations in all; they do not depend on the batch."""
        return float(self.total_steps)
