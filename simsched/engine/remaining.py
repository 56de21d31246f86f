"""The oracle of the work that a job has left."""

from __future__ import annotations

from simsched.agent.fixed_agent import batch_for_target
from simsched.model.application import NO_BATCH, Application
from simsched.model.cluster import Cluster
from simsched.model.job import JobSpec
from simsched.model.placement import consolidated_shape


class TrueRemainingWork:
    """What is left of a job at one instant."""

    def __init__(self, spec: JobSpec, app: Application, epoch: int, progress: float, cluster: Cluster) -> None:
        """Look at a job in `epoch` with `progress` made."""
        self.epoch = epoch
        self.epochs = app.epochs
        self._spec = spec
        self._app = app
        self._progress = progress
        self._cluster = cluster

    def iterations(self, batch_size: float, epoch: int) -> float:
        """Give the iterations done by the end of an epoch when trained at `batch_size` throughout."""
        return self._app.iterations(batch_size, epoch)

    @property
    def seconds(self) -> float:
        """Seconds left on the GPUs asked for, consolidated, at the batch size asked for, undisturbed."""
        app, node = self._app, self._cluster.nodes[0]
        gpus = self._spec.num_gpus
        batch = NO_BATCH
        if app.limits is not None:
            target = self._spec.batch_size or app.fixed_batch_size or app.limits.init_batch_size
            batch = batch_for_target(app.limits, target, gpus)
        shape = consolidated_shape(gpus, node.gpus)
        seconds, progress = 0.0, self._progress
        for epoch in range(self.epoch, app.epochs):
            end = app.epoch_end(epoch)
            seconds += (end - progress) / app.run(shape, batch, epoch, node.gpu_type).rate
            progress = end
        return seconds
