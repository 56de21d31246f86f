"""An application with scaled step times."""

from __future__ import annotations

from simsched.model.application import Application, BatchChoice, Running, StepTime, Undeclared
from simsched.model.placement import Site


class ScaledApplication(Undeclared):
    """Another application with every step time multiplied by `factor`, for example a wider or narrower network."""

    def __init__(self, inner: Application, name: str, factor: float) -> None:
        """Slow `inner` down by `factor` (above 0; below 1 it speeds it up)."""
        if not factor > 0:
            raise ValueError(f"factor must be above 0, not {factor}")
        self._inner = inner
        self._factor = factor
        self.name = name
        for declared in Undeclared.__annotations__:
            setattr(self, declared, getattr(inner, declared))
        self.stages_s = tuple(seconds * factor for seconds in inner.stages_s)
        self.reports_loss = inner.loss_curve is not None

    def epoch_end(self, epoch: int) -> float:
        """Return the progress at the end of a 0-based epoch."""
        return self._inner.epoch_end(epoch)

    def run(self, site: Site, batch: BatchChoice, epoch: int) -> Running:
        """Return the performance of the other one at 1 / `factor` of its speed."""
        running = self._inner.run(site, batch, epoch)
        return running._replace(
            rate=running.rate / self._factor,
            throughput=running.throughput / self._factor,
            step=None if running.step is None else self._scaled(running.step),
        )

    def step_time(self, site: Site, local_bsz: int) -> StepTime:
        """Return the true step time on a placement, in seconds."""
        return self._scaled(self._inner.step_time(site, local_bsz))

    def iterations(self, batch_size: float, epoch: int) -> float:
        """Return the iterations done by the end of a 0-based epoch at a constant `batch_size`."""
        return self._inner.iterations(batch_size, epoch)

    def _scaled(self, step: StepTime) -> StepTime:
        return StepTime(step.step_s * self._factor, step.sync_s * self._factor)
