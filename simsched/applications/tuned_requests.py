"""The GPU counts and batch sizes that users of tuned jobs request (Pollux, section 5.1)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from simsched.model import Application, BatchLimits, Site
from simsched.model.batch import ceil_slack, split_batch
from simsched.model.placement import consolidated_shape

#: The GPU counts to try; a workload's random choice depends on this order.
GPU_COUNTS = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48)
#: Bounds on a tuned job's run time and GPU efficiency (both exclusive).
MAX_TIME_S = 12 * 3600
UTILISATION = (0.5, 0.8)


def configurations(application: Application, gpus_per_node: int = 4, gpu_type: str = "t4") -> list[tuple[int, int]]:
    """List the (GPUs, total batch size) with which a tuned job of the application may be submitted.

    For each GPU count on as few nodes as possible, the batch size of the shortest training is found; the count is
    listed if the job then takes less than 12 hours and reaches 50 to 80 % of perfect scaling over one GPU. If none
    does, one GPU with its best batch is the only entry. If an application names its tuned configurations, these are
    returned (the shipped ones name those found on the measurements that they were fitted to). Raises `ValueError` for
    an application without batch sizes.
    """
    if application.tuned:
        return list(application.tuned)
    limits = application.limits
    if limits is None or not application.batch_sizes:
        raise ValueError(f"application '{application.name}' has no batch sizes to tune")
    best = {
        gpus: _best_batch(application, limits, gpus, gpus_per_node, gpu_type)
        for gpus in GPU_COUNTS
        if gpus * limits.min_local_bsz <= limits.max_batch_size
        and (application.max_gpus is None or gpus <= max(application.max_gpus, 1))
    }
    alone_s, alone_batch = best[1]
    low, high = UTILISATION
    good = [
        (gpus, batch)
        for gpus, (time_s, batch) in best.items()
        if gpus > 1 and time_s < MAX_TIME_S and low < alone_s / (time_s * gpus) < high
    ]
    return good or [(1, alone_batch)]


def tuned_configurations(
    applications: Mapping[str, Application], gpus_per_node: int = 4, gpu_type: str = "t4"
) -> Mapping[str, tuple[tuple[int, int], ...]]:
    """Return the `configurations` of every application that has batch sizes, by name."""
    tunable = {name: app for name, app in sorted(applications.items()) if app.batch_sizes and app.limits}
    return MappingProxyType({n: tuple(configurations(a, gpus_per_node, gpu_type)) for n, a in tunable.items()})


def initial_batch_sizes(applications: Mapping[str, Application]) -> Mapping[str, int]:
    """Return the initial batch size of every application that has batch limits, by name."""
    return MappingProxyType(
        {name: app.limits.init_batch_size for name, app in sorted(applications.items()) if app.limits}
    )


def _best_batch(
    application: Application, limits: BatchLimits, gpus: int, gpus_per_node: int, gpu_type: str
) -> tuple[float, int]:
    """Find the known batch size that trains fastest on `gpus` GPUs; return (seconds, batch), the smaller one on a tie.

    Batch sizes that give a GPU less than its minimum are excluded; if all are, the time is infinite.
    """
    site = Site(consolidated_shape(gpus, gpus_per_node), gpu_type)
    found = (math.inf, limits.init_batch_size)
    for batch in application.batch_sizes:
        if ceil_slack(batch / gpus) < limits.min_local_bsz:
            continue
        split = split_batch(limits, batch, gpus)
        step = application.step_time(site, split.local_bsz)
        step_s = step.step_s + split.accum_steps * (step.step_s - step.sync_s)
        time_s = application.iterations(batch, application.epochs - 1) * step_s
        if time_s < found[0]:
            found = (time_s, batch)
    return found
