"""What jobs cost by the GPUs that they hold, and how many end too late: there only with prices, or with deadlines."""

from __future__ import annotations

import numpy as np

from simsched.results.metric import SECONDS_PER_HOUR, Metric, Tables, ratio


def _gpu_cost(tables: Tables) -> float | None:
    """Return the dollars for all GPU time held; of a GPU that is shared each holder pays its share."""
    intervals = tables.allocations
    if intervals is None or not len(tables.gpu_price_per_h):
        return None
    nodes = intervals["placement"].str.partition(":")[0].astype(np.int64).to_numpy()
    hours = (intervals["end_s"] - intervals["start_s"]).to_numpy() * intervals["gpus"].to_numpy() / SECONDS_PER_HOUR
    share = intervals["gpu_share"].to_numpy() if "gpu_share" in intervals else 1.0
    return float((hours * share * np.asarray(tables.gpu_price_per_h)[nodes]).sum())


def _missed(tables: Tables) -> float | None:
    jobs = tables.jobs
    if "deadline_s" not in jobs:
        return None
    late = (jobs["deadline_s"] > 0) & (jobs["jct_s"] > jobs["deadline_s"])
    return ratio(float(late.sum()), float((jobs["deadline_s"] > 0).sum()))


DEADLINE_METRICS = (
    Metric(
        "gpu_cost",
        "GPU cost",
        "$",
        "lower",
        "GPU hours held times `cluster.gpu_price_per_h` of their type, summed; a shared GPU is paid for once",
        _gpu_cost,
    ),
    Metric(
        "deadlines_missed",
        "deadlines missed",
        "share",
        "lower",
        "share of the jobs with a deadline whose `jct_s` exceeds `deadline_s`",
        _missed,
    ),
)
