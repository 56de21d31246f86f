"""The CSV files next to the tables of a cell: published curves, and the trials of hyper-parameter tuning."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from simsched.errors import InputError, Problem, input_error
from simsched.files import written_aside
from simsched.outlets import csv_cell
from simsched.reading import number, open_text, records
from simsched.results.metric import HIGHER, IF_THERE, Metric, Tables
from simsched.results.rows import LARGEST

if TYPE_CHECKING:
    import pandas as pd

_AGAIN = "run the experiment again"


def read_sheet(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    """Read a CSV file that has at least `columns`, ids of jobs as text.

    Raises `InputError` if it is missing or damaged, or lacks a column.
    """
    import pandas as pd  # slow to load, and few cells have such a file

    try:
        sheet = pd.read_csv(path, converters={"job_id": str})  # an id like `NA` or `007` is text
    except (ValueError, OSError) as error:
        raise input_error(path, f"cannot be read: {error}", _AGAIN) from error
    missing = [column for column in columns if column not in sheet]
    if missing:
        raise input_error(path, f"lacks the column '{missing[0]}'", _AGAIN)
    for column in set(columns) - {"job_id"}:
        if not pd.api.types.is_numeric_dtype(sheet[column]) or not (np.abs(sheet[column]) <= LARGEST).all():
            raise input_error(path, f"its column '{column}' holds what is not a number in reach", _AGAIN)
    return sheet


def write_sheet(path: Path, sheet: pd.DataFrame) -> None:
    """Write a CSV file atomically, with texts quoted by `csv_cell`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_aside(path) as aside:
        sheet.map(csv_cell).to_csv(aside, index=False, lineterminator="\n")


class CurvePoint(NamedTuple):
    """A point of the curve `series` in the `panel` of a `figure`, in the units that its axes show."""

    figure: str
    panel: str
    series: str
    x: float
    y: float


def read_curves(path: Path) -> tuple[CurvePoint, ...]:
    """Read a CSV of `figure,panel,series,x,y` with `#` comments; `InputError` names every bad row."""
    with open_text(path) as stream:
        lines = [line for line in stream if not line.startswith("#")]
    found, problems = [], []
    for _, row in records(lines, str(path), CurvePoint._fields):
        try:
            x, y = (number(row[name], name) for name in ("x", "y"))
        except ValueError as error:
            problems.append(Problem(str(path), f"{error} in {','.join(row.values())}"))
        else:
            found.append(CurvePoint(row["figure"], row["panel"], row["series"], x, y))
    if problems:
        raise InputError(*problems)
    return tuple(found)


TRIALS_FILE = "trials.csv"
_TOP = 5
#: Columns that every such file has; the others are the hyper-parameters.
_TRIAL_COLUMNS = ("job_id", "submit_time_s", "end_time_s", "accuracy")


def write_trials(folder: Path, trials: pd.DataFrame) -> None:
    """Write the trials of a cell in order of completion, atomically."""
    write_sheet(Path(folder) / TRIALS_FILE, trials)


def read_trials(folder: Path) -> pd.DataFrame | None:
    """Read the trials of a cell, None if it is not a tuning run; `InputError` if the file is damaged."""
    path = Path(folder) / TRIALS_FILE
    return read_sheet(path, _TRIAL_COLUMNS) if path.is_file() else None


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
