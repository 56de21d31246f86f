"""How fair completion times are: metrics that are there only where jobs are compared with solo runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from simsched.results.fairness import share_above
from simsched.results.metric import LOWER, Metric, Tables, jain_index


def _rho(compute: Callable[[Sequence[float]], float]) -> Callable[[Tables], float | None]:
    return lambda tables: compute(tables.rho) if tables.rho is not None and len(tables.rho) else None


RHO_METRICS = (
    Metric("rho_median", "median rho", "", LOWER, "median of `rho`", _rho(lambda rho: float(np.median(rho)))),
    Metric(
        "rho_p99",
        "99th percentile rho",
        "",
        LOWER,
        "99th percentile of `rho`",
        _rho(lambda rho: float(np.percentile(rho, 99))),
    ),
    Metric("rho_max", "largest rho", "", LOWER, "largest `rho`", _rho(lambda rho: float(np.max(rho)))),
    Metric(
        "rho_above_1",
        "jobs with rho > 1",
        "share",
        LOWER,
        "share of the jobs with `rho` > 1: treated unfairly",
        _rho(lambda rho: share_above(rho, 1)),
    ),
    Metric(
        "rho_above_2",
        "jobs with rho > 2",
        "share",
        LOWER,
        "share of the jobs with `rho` > 2",
        _rho(lambda rho: share_above(rho, 2)),
    ),
    Metric(
        "rho_jain",
        "Jain's index of rho",
        "",
        "higher",
        "Jain's index of `rho`, (sum rho)^2 / (n sum rho^2): 1 where all jobs fare alike",
        _rho(jain_index),
        greatest=1.0,
    ),
)
