"""Fairness of completion times, relative to solo runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from simsched.results.fairness import share_above
from simsched.results.metric import LOWER, NO_ROWS, Metric, Tables, jain_index

if TYPE_CHECKING:
    import pandas as pd


def _rho(compute: Callable[[Sequence[float]], float]) -> Callable[[Tables], float | None]:
    return lambda tables: compute(tables.rho) if tables.rho is not None and len(tables.rho) else None


RHO_METRICS = (
    Metric("rho_median", "median rho", "", LOWER, "median of `rho`", _rho(lambda rho: float(np.median(rho)))),
    Metric("rho_p99", "99th percentile rho", "", LOWER, "99th percentile of `rho`",
           _rho(lambda rho: float(np.percentile(rho, 99)))),
    Metric("rho_max", "largest rho", "", LOWER, "largest `rho`", _rho(lambda rho: float(np.max(rho)))),
    Metric("rho_above_1", "jobs with rho > 1", "share", LOWER, "share of the jobs with `rho` > 1: treated unfairly",
           _rho(lambda rho: share_above(rho, 1)), of="all but an application"),
    Metric("rho_above_2", "jobs with rho > 2", "share", LOWER, "share of the jobs with `rho` > 2",
           _rho(lambda rho: share_above(rho, 2)), of="all but an application"),
    Metric("rho_jain", "Jain's index of rho", "", "higher",
           "Jain's index of `rho`, (sum rho)^2 / (n sum rho^2): 1 if all jobs fare alike", _rho(jain_index),
           greatest=1.0),
)  # fmt: skip


def summarise_rho(rho: Sequence[float] | pd.Series) -> dict[str, float]:
    """Compute the metrics of finish-time fairness from the ratios of a cell."""
    tables = Tables(NO_ROWS, None, None, 0, rho=np.asarray(rho, dtype=float).tolist())
    values = {metric.name: metric.compute(tables) for metric in RHO_METRICS}
    return {name: value for name, value in values.items() if value is not None}


def summarise_rho_without(rho: pd.DataFrame) -> dict[str, float]:
    """Compute, for each application, the shares of rho above 1 and 2 among the jobs of all other applications.

    `rho` has the columns `application` and `rho`, one row per job. An application limited to one GPU takes as long
    alone as under load; if it makes up much of a workload it hides the others.
    """
    found: dict[str, float] = {}
    partial = [metric.name for metric in RHO_METRICS if metric.of]
    for name in sorted(set(rho["application"])):
        rest = rho.loc[rho["application"] != name, "rho"]
        if len(rest):
            values = summarise_rho(rest)
            found |= {f"{metric}[all but {name}]": values[metric] for metric in partial}
    return found
