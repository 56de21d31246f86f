"""Applications known by a table: optimizer steps per second of a job by GPU type, batch size and GPUs.

Gavel (Narayanan et al., OSDI'20) and Shockwave (Zheng et al., NSDI'23) measured their jobs this way. A job takes a
number of steps at the batch size asked for; if the data set is known, another batch keeps the number of epochs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from simsched.model.application import Application, BatchChoice, Running, StepTime
from simsched.model.job import FIXED_DURATION, Speedup, StageProfile
from simsched.model.placement import Site
from simsched.model.regimes import BatchRegimes, epoch_seconds, profile

_RUNNING = Running(1.0, 1.0, 0.0, None, None)


class FixedDuration(Application):
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


class StagedJob(Application):
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


class Setting(NamedTuple):
    """A batch size (0 if the application has none) and a number of GPUs."""

    batch_size: int
    num_gpus: int


@dataclass(frozen=True)
class TabulatedModel:
    """What is known of an application, for all its jobs.

    `rates[gpu_type][setting]` are steps per second of a job that does not share its GPUs; a missing setting cannot run.
    `regimes` hold the data set and the published batch regimes, None if they are not known.
    """

    name: str
    rates: Mapping[str, Mapping[Setting, float]]
    regimes: BatchRegimes | None = None

    def rate(self, gpu_type: str, setting: Setting) -> float:
        """Return the steps per second, 0 if the table has none."""
        return self.rates.get(gpu_type, {}).get(setting, 0.0)

    def types_for(self, setting: Setting) -> tuple[str, ...]:
        """List the GPU types for which the table has a rate, sorted."""
        return tuple(sorted(gpu_type for gpu_type in self.rates if self.rate(gpu_type, setting) > 0))


class TabulatedJob(Application):
    """A job of a tabulated application: `total_steps` at its initial batch size, only on the GPUs asked for.

    Progress counts steps at the initial batch size. Batches are those of the table: the choice (b, 0) means the row of
    batch size b, and no choice the initial one. A job without a batch rule is one epoch.
    """

    def __init__(self, model: TabulatedModel, asked: Setting, total_steps: float, batch_rule: str = "") -> None:
        """Take what the user asked for; raises `ValueError` if the table has no rate for it, or without steps."""
        self.model = model
        self.asked = asked
        self.total_steps = total_steps
        self.batch_rule = batch_rule or "static"
        self.name = model.name
        self.regimes = model.regimes if asked.batch_size else None
        self.gpu_types: tuple[str, ...] | None = model.types_for(asked)
        if not self.gpu_types:
            known = sorted({f"{batch} on {gpus}" for rows in model.rates.values() for batch, gpus in rows})
            message = f"no rate of {model.name} at batch size {asked.batch_size} on {asked.num_gpus} GPUs is known"
            raise ValueError(f"{message} (batch size on GPUs: {', '.join(known)})")
        tables = [model.rates[gpu_type] for gpu_type in self.gpu_types]
        sizes = [{batch for batch, gpus in rows if gpus == asked.num_gpus} for rows in tables]
        self.batch_sizes = tuple(sorted(set.intersection(*sizes) - {0}))
        if total_steps < 1:
            raise ValueError(f"a job of {model.name} needs its number of steps, at least 1")
        self._epoch_steps = total_steps
        if self.regimes is not None and self.batch_rule != "static":
            self._epoch_steps = self.regimes.steps_per_epoch(asked.batch_size)
        self.epochs = int(-(-total_steps // self._epoch_steps))

    def epoch_end(self, epoch: int) -> float:
        """Return the progress at the end of a 0-based epoch; the last may be shorter."""
        return float(min((epoch + 1) * self._epoch_steps, self.total_steps))

    def rate(self, gpu_type: str, batch_size: int = 0, num_gpus: int = 0) -> float:
        """Return steps per second at a batch size on some GPUs (0: what was asked for); 0 if unknown."""
        setting = Setting(batch_size or self.asked.batch_size, num_gpus or self.asked.num_gpus)
        return self.model.rate(gpu_type, setting)

    def run(self, site: Site, batch: BatchChoice, epoch: int) -> Running:
        """Return the speed in the table; raises `ValueError` if it has none."""
        size = batch.local_bsz or self.asked.batch_size
        rate = self.model.rate(site.gpu_type, Setting(size, site.gpus))
        if rate <= 0:
            message = f"no rate of {self.name} at batch size {size} on {site.gpus} GPUs of {site.gpu_type} is known"
            raise ValueError(message)
        scale = size / self.asked.batch_size if size != self.asked.batch_size else 1.0
        return Running(rate * scale, 1.0, rate * size, None, None)

    def step_time(self, site: Site, local_bsz: int) -> StepTime:
        """Return the seconds of a step, none of them as synchronisation; `ValueError` if no rate is known."""
        rate = self.model.rate(site.gpu_type, Setting(local_bsz or self.asked.batch_size, site.gpus))
        if rate <= 0:
            raise ValueError(f"no rate of {self.name} at batch size {local_bsz} on {site.gpus} GPUs is known")
        return StepTime(1 / rate, 0.0)

    def iterations(self, batch_size: float, epoch: int) -> float:
        """Return the steps done by the end of a 0-based epoch at a constant `batch_size`."""
        own = self.asked.batch_size
        return self.epoch_end(epoch) * (own / batch_size if own and batch_size else 1.0)

    @cached_property
    def profile(self) -> tuple[int, ...]:
        """The batch size of each epoch as a profile of the training predicts it from the batch rule."""
        own, gpus = self.asked
        if self.regimes is None:
            return (own,) * self.epochs
        return profile(self.regimes, self.batch_rule, own, gpus, self.total_steps)

    def profile_s(self, gpu_type: str) -> tuple[float, ...]:
        """Return the seconds of each epoch of the profile, alone on the GPUs asked for, for a GPU type."""
        if self.regimes is None:
            return (self.total_steps / self.rate(gpu_type),)
        return epoch_seconds(self.regimes, self.profile, lambda batch: self.rate(gpu_type, batch))
