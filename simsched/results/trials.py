"""The trials of hyper-parameter tuning, in a file next to the tables, and the accuracies of the best."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from simsched.results.metric import HIGHER, IF_THERE, Metric, Tables
from simsched.results.sheets import read_sheet, write_sheet

if TYPE_CHECKING:
    import pandas as pd

TRIALS_FILE = "trials.csv"
_TOP = 5
#: Columns that every such file has; the others are the hyper-parameters.
COLUMNS = ("job_id", "submit_time_s", "end_time_s", "accuracy")


def write_trials(folder: Path, trials: pd.DataFrame) -> None:
    """Write the trials of a cell in order of completion, atomically."""
    write_sheet(Path(folder) / TRIALS_FILE, trials)


def read_trials(folder: Path) -> pd.DataFrame | None:
    """Read the trials of a cell, None if it is not a tuning run; `InputError` if the file is damaged."""
    path = Path(folder) / TRIALS_FILE
    return read_sheet(path, COLUMNS) if path.is_file() else None


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
    Metric("top5_accuracy", "top-5 accuracy", "%", HIGHER,
           "mean accuracy of the five best trials of hyper-parameter tuning", _accuracy, shown=IF_THERE),
    Metric("top5_accuracy_sd", "sd of top-5 accuracy", "%", "",
           "standard deviation (n - 1) of the accuracies of these five", _accuracy_spread, shown=IF_THERE),
)  # fmt: skip
