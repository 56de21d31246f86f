"""Jobs that know only GPUs and seconds: the physics of a trace without models."""

from __future__ import annotations

from simsched.model.application import BatchChoice, BatchLimits, MemoryNeed, Running, StepTime
from simsched.model.job import FIXED_DURATION
from simsched.model.placement import Site

_RUNNING = Running(1.0, 1.0, 0.0, None, None)


class FixedDuration:
    """A job that runs for `duration_s` seconds wherever it is placed; progress counts those seconds."""

    __slots__ = ("duration_s",)

    name = FIXED_DURATION
    limits: BatchLimits | None = None
    batch_sizes: tuple[int, ...] = ()
    tuned: tuple[tuple[int, int], ...] = ()
    gpu_types: tuple[str, ...] | None = None
    max_gpus: int | None = None
    fixed_batch_size: int | None = None
    restart_delay_s: float | None = None
    start_delay_s: float | None = None
    tensor_skew: float | None = None
    memory: MemoryNeed | None = None
    stages_s: tuple[float, ...] = ()
    epochs = 1

    def __init__(self, duration_s: float) -> None:
        """Take the service time in seconds, above 0."""
        if duration_s <= 0:
            message = f"a job of fixed duration needs more than 0 seconds, not {duration_s}"
            raise ValueError(message)
        self.duration_s = duration_s

    def epoch_end(self, epoch: int) -> float:
        """Give the duration, which is where the only epoch ends."""
        return float(self.duration_s)

    def run(self, site: Site, batch: BatchChoice, epoch: int) -> Running:
        """Run at one second per second on any placement."""
        return _RUNNING

    def step_time(self, site: Site, local_bsz: int) -> StepTime:
        """Refuse: such a job has no steps."""
        message = f"jobs of {FIXED_DURATION} have no training steps, so their step time is unknown"
        raise ValueError(message)

    def iterations(self, batch_size: float, epoch: int) -> float:
        """Give the duration: one iteration a second."""
        return float(self.duration_s)
