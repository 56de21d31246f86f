"""What the best trials of hyper-parameter tuning reached."""

from __future__ import annotations

import numpy as np

from simsched.results.metric import HIGHER, Metric, Tables

_TOP = 5


def _best(tables: Tables) -> list[float]:
    return sorted(tables.accuracies or (), reverse=True)[:_TOP]


def _accuracy(tables: Tables) -> float | None:
    best = _best(tables)
    return float(np.mean(best)) if best else None


def _accuracy_spread(tables: Tables) -> float | None:
    best = _best(tables)
    return float(np.std(best, ddof=1)) if len(best) > 1 else None


#: The metrics of trials.
TRIAL_METRICS = (
    Metric(
        "top5_accuracy",
        "top-5 accuracy",
        "%",
        HIGHER,
        "mean accuracy of the five best trials of hyper-parameter tuning",
        _accuracy,
    ),
    Metric(
        "top5_accuracy_sd",
        "sd of top-5 accuracy",
        "%",
        "",
        "standard deviation (n - 1) of the accuracies of these five",
        _accuracy_spread,
    ),
)
