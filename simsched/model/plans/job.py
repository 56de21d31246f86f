"""Jobs that train a large model with a plan."""

from __future__ import annotations

from simsched.model.application import Application, BatchChoice, Running, StepTime
from simsched.model.placement import Site
from simsched.model.plans.step_parts import StepParts
from simsched.model.plans.tabled import LargeModel


class PlannedJob(Application):
    """A job of `total_steps` steps at a global batch; progress counts steps, throughput sequences."""

    def __init__(self, plans: LargeModel, total_steps: float, global_batch: int = 0) -> None:
        """Take the model; raises `ValueError` for a job without steps."""
        if total_steps < 1:
            raise ValueError(f"a job of {plans.name} needs its number of steps, at least 1")
        self.plans = plans
        self.name = plans.name
        self.total_steps = total_steps
        self.global_batch = global_batch or plans.global_batch
        self.gpu_types: tuple[str, ...] | None = plans.gpu_types
        self.restart_delay_s: float | None = plans.replan_s or None
        self.checkpoint_s: float | None = plans.replan_s / 2 or None  # written, but not read

    def epoch_end(self, epoch: int) -> float:
        """Return the total steps, at which the only epoch ends."""
        return float(self.total_steps)

    def parts(self, site: Site, batch: BatchChoice) -> StepParts:
        """Return the seconds of a step by part, for the plan chosen or else the fastest."""
        if batch.plan is None:
            return self.plans.best(site, self.global_batch).parts
        return self.plans.parts(batch.plan, site, self.global_batch)

    def run(self, site: Site, batch: BatchChoice, epoch: int) -> Running:
        """Return the performance of the plan chosen, or else of the fastest; raises `ValueError` if it cannot run."""
        step_s = self.parts(site, batch).total
        return Running(1 / step_s, 1.0, self.global_batch / step_s, None, None)

    def step_time(self, site: Site, local_bsz: int) -> StepTime:
        """Return the seconds of a step of the fastest plan, and the exposed seconds of summing its gradients."""
        parts = self.plans.best(site, self.global_batch).parts
        return StepTime(parts.total, parts.data)

    def iterations(self, batch_size: float, epoch: int) -> float:
        """Return the steps that train the same number of sequences at another global batch."""
        return self.total_steps * self.global_batch / batch_size
