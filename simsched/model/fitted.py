"""Applications whose physics is a fitted model: smooth and compact enough to ship.

Step times come from a `simsched.model.step_model.StepModel` for each GPU type, statistical efficiency from the gradient
noise scale as it changes over training and with the batch size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike

from simsched.arithmetic import exp, log
from simsched.model.application import (
    Application,
    BatchChoice,
    BatchLimits,
    GradientStats,
    LossCurve,
    MemoryNeed,
    Running,
    StepTime,
)
from simsched.model.goodput import gradient_of
from simsched.model.placement import Site
from simsched.model.step_model import Floats, Placements, StepModel


@dataclass(frozen=True)
class NoiseCurve:
    """The gradient noise scale, in examples, over training and over total batch sizes.

    `noise[i][j]` applies to the 0-based epoch `epochs[i]` at a total batch of `batch_sizes[j]`; both ascend. Between
    epochs the logarithm of the noise is linear in the epoch, between batch sizes in their logarithm; beyond the ends it
    is constant.
    """

    epochs: tuple[int, ...]
    batch_sizes: tuple[int, ...]
    noise: tuple[tuple[float, ...], ...]

    def at(self, batch_size: float, epoch: int) -> float:
        """Return the noise scale in an epoch at a total batch."""
        logs = log(self.noise)
        column = [np.interp(epoch, self.epochs, logs[:, j]) for j in range(len(self.batch_sizes))]
        return float(exp(np.interp(log(batch_size), log(self.batch_sizes), column)))


@dataclass(frozen=True)
class Training:
    """The work of training to the target: epochs of equal progress, and the noise over them.

    `iterations_per_epoch` counts iterations at the initial batch size. `batch_sizes` are the totals known to reach the
    target, ascending. For each of them, `iterations_ratio` gives the iterations of whole runs as a multiple of those
    that progress and gain imply (real runs do not follow the AdaScale gain exactly); it affects predictions of
    remaining iterations, not the speed of training.
    """

    epochs: int
    iterations_per_epoch: float
    noise: NoiseCurve
    batch_sizes: tuple[int, ...]
    iterations_ratio: tuple[float, ...]


@dataclass(eq=False, repr=False)
class FittedApplication(Application):
    """An application known by fitted models; `step_models` holds one of step times per GPU type."""

    name: str
    limits: BatchLimits = field()  # required, unlike that of `Application`
    training: Training
    step_models: Mapping[str, StepModel]
    _: KW_ONLY
    tuned: tuple[tuple[int, int], ...] = ()
    fixed_batch_size: int | None = None
    max_gpus: int | None = None
    restart_delay_s: float | None = None
    memory: MemoryNeed | None = None
    stages_s: tuple[float, ...] = ()
    loss_curve: LossCurve | None = None

    def __post_init__(self) -> None:
        """Derive the remaining attributes of `Application`, and start without cached answers."""
        self.batch_sizes, self.epochs = self.training.batch_sizes, self.training.epochs
        self.gpu_types: tuple[str, ...] = tuple(sorted(self.step_models))
        self.start_delay_s = self.restart_delay_s
        self.reports_loss = self.loss_curve is not None
        self._steps: dict[tuple[Site, int], StepTime] = {}
        self._runs: dict[tuple[Site, BatchChoice, int], Running] = {}
        self._gradients: dict[tuple[float, int], GradientStats] = {}
        self._iterations: dict[float, tuple[float, ...]] = {}

    def epoch_end(self, epoch: int) -> float:
        """Return the progress at the end of a 0-based epoch."""
        return (epoch + 1) * self.training.iterations_per_epoch

    def step_time(self, site: Site, local_bsz: int) -> StepTime:
        """Return the step time on a site, in seconds; `ValueError` for an unknown GPU type."""
        key = site, local_bsz
        if key not in self._steps:
            self._steps[key] = self._step_time(*key)
        return self._steps[key]

    def _step_time(self, site: Site, local_bsz: int) -> StepTime:
        shape, gpu_type = site.shape, site.gpu_type
        model = self.step_models.get(gpu_type)
        if model is None:
            message = f"{self.name} has no step times for GPUs of type {gpu_type}, only for {', '.join(self.gpu_types)}"
            raise ValueError(message)
        if not shape or local_bsz < 1:
            raise ValueError(f"{self.name} cannot run on the placement {shape} with a per-GPU batch of {local_bsz}")
        compute, step = model.times_s(Placements.at(site), [local_bsz])
        return StepTime(float(step[0]), float(step[0] - compute[0]))

    def gradient(self, batch_size: float, epoch: int) -> GradientStats:
        """Return the gradient statistics (unit squared mean) in an epoch at a batch; `ValueError` outside limits."""
        key = batch_size, epoch
        if key not in self._gradients:
            limits = self.limits
            if not limits.init_batch_size <= batch_size <= limits.max_batch_size:
                bounds = f"{limits.init_batch_size} to {limits.max_batch_size}"
                raise ValueError(f"{self.name}: total batch {batch_size:g} lies outside {bounds}")
            self._gradients[key] = gradient_of(self.training.noise.at(batch_size, epoch), limits.init_batch_size)
        return self._gradients[key]

    def run(self, site: Site, batch: BatchChoice, epoch: int) -> Running:
        """Return the performance of the job; `ValueError` for an unknown batch or GPU type."""
        key = site, batch, epoch
        found = self._runs.get(key)
        if found is None:
            found = self._runs[key] = self._running(*key)
        return found

    def _running(self, site: Site, batch: BatchChoice, epoch: int) -> Running:
        step = self.step_time(site, batch.local_bsz)
        gradient = self.gradient(batch.total(site.gpus), epoch)
        return Running.training(step, gradient, batch, site.gpus, self.limits.init_batch_size)

    def iterations(self, batch_size: float, epoch: int) -> float:
        """Return the iterations done by the end of an epoch: progress divided by the gain, summed over epochs."""
        if batch_size not in self._iterations:
            self._iterations[batch_size] = self._count_iterations(batch_size)
        return self._iterations[batch_size][epoch]

    def _count_iterations(self, batch_size: float) -> tuple[float, ...]:
        scale = batch_size / self.limits.init_batch_size
        per_epoch = self.training.iterations_per_epoch
        known, ratios = self.training.batch_sizes, self.training.iterations_ratio
        ratio = float(np.interp(log(batch_size), log(known), ratios))
        steps = [ratio * per_epoch / self.gradient(batch_size, epoch).gain(scale) for epoch in range(self.epochs)]
        return tuple(np.cumsum(steps).tolist())


@dataclass(frozen=True)
class RelativeSteps:
    """Computes `factors` times as fast as `base`; synchronisation takes the same seconds (an assumption).

    `factors` are (per-GPU batch size, factor) pairs in ascending order: linear between them, constant beyond.
    """

    base: StepModel
    factors: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        """Reject an empty list, and factors of 0 or less."""
        if not self.factors or min(factor for _, factor in self.factors) <= 0:
            raise ValueError("a relative speed needs at least one factor, and all above 0")

    def times_s(self, placements: Placements, local_bsz: ArrayLike) -> tuple[Floats, Floats]:
        """Return (computation, step)."""
        compute, step = self.base.times_s(placements, local_bsz)
        sizes, factors = zip(*self.factors, strict=True)
        faster = compute / np.interp(np.asarray(local_bsz, dtype=np.float64), sizes, factors)
        return faster, faster + (step - compute)


def with_types(
    app: FittedApplication, base: str, speeds: dict[str, float], *, restart_delay_s: float | None = None
) -> FittedApplication:
    """Return an application that also runs on further GPU types, at `speeds` relative to the type `base`."""
    models = dict(app.step_models)
    for gpu_type, speed in sorted(speeds.items()):
        models.setdefault(gpu_type, RelativeSteps(app.step_models[base], ((1, speed),)))
    delay_s = app.restart_delay_s if restart_delay_s is None else restart_delay_s
    return replace(app, step_models=models, restart_delay_s=delay_s)
