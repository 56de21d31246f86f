"""What jobs cost by the GPUs that they hold: there only where GPU types have prices."""

from __future__ import annotations

import numpy as np

from simsched.results.metric import LOWER, SECONDS_PER_HOUR, Metric, Tables


def _gpu_cost(tables: Tables) -> float | None:
    """Return the dollars for all GPU time held; of a GPU that is shared each holder pays its share."""
    intervals = tables.held
    if intervals is None or not len(tables.gpu_price_per_h):
        return None
    nodes = np.array([int(placement.partition(":")[0]) for placement in intervals["placement"]], dtype=np.int64)
    hours = (intervals["end_s"] - intervals["start_s"]) * intervals["gpus"] / SECONDS_PER_HOUR
    if "gpu_share" in intervals:
        hours = hours * intervals["gpu_share"]
    return float((hours * np.asarray(tables.gpu_price_per_h)[nodes]).sum())


COST_METRICS = (
    Metric(
        "gpu_cost",
        "GPU cost",
        "$",
        LOWER,
        "GPU hours held times `cluster.gpu_price_per_h` of their type, summed; a shared GPU is paid for once",
        _gpu_cost,
    ),
)
