"""What a metric is: a pure function of the tables of one cell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd

from simsched.results.power import Power

SECONDS_PER_HOUR = 3600


class LossTable(NamedTuple):
    """The normalised loss of an application at ascending progress; straight lines between."""

    progress: Sequence[float]
    loss: Sequence[float]


@dataclass(frozen=True)
class Tables:
    """The tables of one cell, None where not recorded, and the number of GPUs in the cluster.

    `node_price_per_h` is what a node costs an hour, `power` what GPUs and nodes draw, `accuracies` are those of the
    trials of hyper-parameter tuning, in per cent, `rho` the ratios of finish-time fairness, and `losses` those of the
    applications over progress; None where there are none.
    """

    jobs: pd.DataFrame
    allocations: pd.DataFrame | None
    rounds: pd.DataFrame | None
    total_gpus: int
    node_price_per_h: float | None = None
    accuracies: Sequence[float] | None = None
    rho: Sequence[float] | None = None
    losses: Mapping[str, LossTable] | None = None
    power: Power | None = None


@dataclass(frozen=True)
class Metric:
    """One number about a cell.

    `unit` is `s`, `GPU h`, `node h`, `1/h`, `$`, `kWh`, `%`, `share` (of 1) or empty (a plain count); `better` is
    `lower`, `higher` or empty where neither is. `compute` gives None where the tables do not allow the metric.
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


def makespan_s(tables: Tables) -> float | None:
    """Return the second of the last completion, None where no job has finished."""
    return float(tables.jobs["end_time_s"].max()) if len(tables.jobs) else None
