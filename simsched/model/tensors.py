"""Models described by their tensors: jobs that run for a given time, unless they are spread or preempted.

The ten models of Tiresias (NSDI'19, Table 6) ship as a table. Such a model adds to a duration what the paper measures:
large tensors slow training down when workers are spread over machines, and a preemption costs the time of a checkpoint
and of a resumption.
"""

from __future__ import annotations

from dataclasses import dataclass

from simsched.model.application import Application, BatchChoice, Running, StepTime
from simsched.model.job import Speedup
from simsched.model.placement import Shape, Site


@dataclass(frozen=True)
class TensorModel:
    """A model by its tensors, in megabytes, and its costs, in seconds.

    `spread_penalty` is the slow-down with every GPU on a separate node: 0.67 means 1.67 times the time. It grows in
    proportion to the nodes beyond those needed, counted with nodes of `gpus_per_node` GPUs.
    """

    name: str
    size_mb: float
    largest_mb: float
    checkpoint_s: float
    resume_s: float
    spread_penalty: float
    gpus_per_node: int = 4

    @property
    def skew(self) -> float:
        """Return the largest tensor as a share of the model (Tiresias, section 3.4)."""
        return self.largest_mb / self.size_mb

    def slow_down(self, shape: Shape) -> float:
        """Return the factor on the duration on a placement, 1 if it is fully consolidated."""
        gpus = sum(shape)
        needed = -(-gpus // self.gpus_per_node)
        if len(shape) <= needed:
            return 1.0
        return 1 + self.spread_penalty * (len(shape) - needed) / (gpus - needed)


class TensorModelJob(Application):
    """A job of a known model that takes `duration_s` seconds when it is consolidated; progress counts those seconds.

    A preemption costs checkpoint and resumption, charged when the job is placed again; the first start costs nothing.
    """

    __slots__ = ("_asked", "_model", "_speedup", "duration_s", "name", "only_gpus", "restart_delay_s", "tensor_skew")

    start_delay_s: float | None = 0

    def __init__(
        self, model: TensorModel, duration_s: float, num_gpus: int | None = None, speedup: Speedup | None = None
    ) -> None:
        """Take the service time in seconds, above 0, on `num_gpus` GPUs (None: on any number)."""
        if not duration_s > 0:
            raise ValueError(f"a job of {model.name} needs a duration above 0 seconds, not {duration_s}")
        self._model = model
        self.name = model.name
        self.duration_s = duration_s
        self.only_gpus = num_gpus if speedup is None else None
        self._asked = num_gpus
        self._speedup = speedup
        self.tensor_skew: float | None = model.skew
        self.restart_delay_s: float | None = round(model.checkpoint_s + model.resume_s)

    @property
    def other_counts(self) -> bool:
        """Whether its speed is known on other numbers of GPUs than it asks for."""
        return self.only_gpus is None

    def epoch_end(self, epoch: int) -> float:
        """Return the duration, at which the only epoch ends."""
        return float(self.duration_s)

    def run(self, site: Site, batch: BatchChoice, epoch: int) -> Running:
        """Run at one second per second if consolidated, slower if spread, and with the declared speed-up."""
        rate = 1 / self._model.slow_down(site.shape)
        if self._asked is not None and self._speedup is not None:
            rate *= self._speedup.speed(sum(site.shape)) / self._speedup.speed(self._asked)
        return Running(rate, 1.0, 0.0, None, None)

    def step_time(self, site: Site, local_bsz: int) -> StepTime:
        """Raise `ValueError`: such a job has no steps."""
        raise ValueError(f"jobs of {self.name} are known by their duration, so their step time is unknown")

    def iterations(self, batch_size: float, epoch: int) -> float:
        """Return the duration: one iteration a second."""
        return float(self.duration_s)
