"""Step times on a GPU type of which only the speed relative to another type is known."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from simsched.model.fitted import FittedApplication
from simsched.model.step_model import Floats, Placements, StepModel


@dataclass(frozen=True)
class RelativeSteps:
    """Computes `factors` times as fast as `base`; synchronising costs as many seconds as there (an assumption).

    `factors` are (per-GPU batch size, factor) pairs in ascending order: straight lines between, constant beyond.
    """

    base: StepModel
    factors: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        """Refuse no factors, and those of 0 or less."""
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
    """Return an application that runs on further GPU types too, at `speeds` relative to the type `base`."""
    models = dict(app.step_models)
    for gpu_type, speed in sorted(speeds.items()):
        models.setdefault(gpu_type, RelativeSteps(app.step_models[base], ((1, speed),)))
    delay_s = app.restart_delay_s if restart_delay_s is None else restart_delay_s
    return replace(app, step_models=models, restart_delay_s=delay_s)
