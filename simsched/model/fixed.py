"""Jobs known by a duration or by a profile of their iterations: the physics of a trace without models."""

from __future__ import annotations

from simsched.model.application import BatchChoice, Running, StepTime, Undeclared
from simsched.model.job import FIXED_DURATION, StageProfile
from simsched.model.placement import Site
from simsched.model.speedup import Speedup

_RUNNING = Running(1.0, 1.0, 0.0, None, None)


class FixedDuration(Undeclared):
    """A job that takes `duration_s` seconds on the GPUs that it asks for; progress counts those seconds.

    On other numbers of GPUs it runs as `speedup` says. Without `speedup` its duration there is unknown, and `only_gpus`
    gives the number for which it is known; None means any number.
    """

    __slots__ = ("_asked", "_speedup", "duration_s", "only_gpus")

    name = FIXED_DURATION

    def __init__(self, duration_s: float, num_gpus: int | None = None, speedup: Speedup | None = None) -> None:
        """Take the service time in seconds, above 0, on `num_gpus` GPUs (None: on any number)."""
        if not duration_s > 0:
            raise ValueError(f"a job of fixed duration needs more than 0 seconds, not {duration_s}")
        self.duration_s = duration_s
        self.only_gpus = num_gpus if speedup is None else None
        self._asked = num_gpus
        self._speedup = speedup

    @property
    def other_counts(self) -> bool:
        """Whether its speed is known on other numbers of GPUs than it asks for."""
        return self.only_gpus is None

    def epoch_end(self, epoch: int) -> float:
        """Return the duration, at which the only epoch ends."""
        return float(self.duration_s)

    def run(self, site: Site, batch: BatchChoice, epoch: int) -> Running:
        """Run at one second per second on the GPUs asked for, and faster or slower on others if a speed-up is declared.

        Raises `ValueError` on other numbers of GPUs without a declared speed-up.
        """
        if self._asked is None or (gpus := sum(site.shape)) == self._asked:
            return _RUNNING
        if self._speedup is None:
            raise ValueError(f"its duration is known on {self._asked} GPUs only, not on {gpus}")
        return _RUNNING._replace(rate=self._speedup.speed(gpus) / self._speedup.speed(self._asked))

    def step_time(self, site: Site, local_bsz: int) -> StepTime:
        """Raise `ValueError`: such a job has no steps."""
        raise ValueError(f"jobs of {FIXED_DURATION} have no training steps, so their step time is unknown")

    def iterations(self, batch_size: float, epoch: int) -> float:
        """Return the duration: one iteration a second."""
        return float(self.duration_s)


class StagedJob(Undeclared):
    """A job of `total_steps` iterations, each as long as in its profile, on the GPUs asked for and at any place.

    Progress counts iterations. The batch size is part of the profile, so there is no choice.
    """

    def __init__(self, name: str, profile: StageProfile, total_steps: float) -> None:
        """Take the profile; raises `ValueError` for a job without iterations or iterations without length."""
        if total_steps < 1 or not profile.iteration_s > 0:
            raise ValueError(f"a job of {name} needs at least 1 iteration of more than 0 seconds")
        self.name = name
        self.total_steps = total_steps
        self.iteration_s = profile.iteration_s
        self.stages_s: tuple[float, ...] = profile.stages_s

    def epoch_end(self, epoch: int) -> float:
        """Return the total iterations, at which the only epoch ends."""
        return float(self.total_steps)

    def run(self, site: Site, batch: BatchChoice, epoch: int) -> Running:
        """Run one iteration in the seconds of the profile, on any placement; throughput counts iterations."""
        return Running(1 / self.iteration_s, 1.0, 1 / self.iteration_s, None, None)

    def step_time(self, site: Site, local_bsz: int) -> StepTime:
        """Return the seconds of an iteration, and of its network stage."""
        return StepTime(self.iteration_s, self.stages_s[2])

    def iterations(self, batch_size: float, epoch: int) -> float:
        """Return the total iterations, which do not depend on the batch."""
        return float(self.total_steps)
