"""What a metric is: a pure function of the tables of one cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd

SECONDS_PER_HOUR = 3600


@dataclass(frozen=True)
class Tables:
    """The tables of one cell, None where not recorded, and the number of GPUs in the cluster.

    `node_price_per_h` is what a node costs an hour, `gpu_price_per_h` what a GPU of each node does (empty: unknown),
    `accuracies` are those of the trials of hyper-parameter tuning, in
    per cent, and `rho` the ratios of finish-time fairness; None where there are none.
    """

    jobs: pd.DataFrame
    allocations: pd.DataFrame | None
    rounds: pd.DataFrame | None
    total_gpus: int
    node_price_per_h: float | None = None
    accuracies: Sequence[float] | None = None
    rho: Sequence[float] | None = None
    gpu_price_per_h: Sequence[float] = ()


@dataclass(frozen=True)
class Metric:
    """One number about a cell.

    `unit` is `s`, `GPU h`, `node h`, `1/h`, `$`, `%`, `share` (of 1) or empty (a plain count); `better` is `lower`,
    `higher` or empty where neither is. `compute` gives None where the tables do not allow the metric.
    """

    name: str
    title: str
    unit: str
    better: str
    meaning: str
    compute: Callable[[Tables], float | None]


def ratio(above: float, below: float) -> float | None:
    """Return a ratio, None where there is nothing below."""
    return above / below if below > 0 else None
