"""The trials of hyper-parameter tuning, in a file of their own beside the tables of a cell."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from simsched.results.sheets import read_sheet, write_sheet

if TYPE_CHECKING:
    import pandas as pd

TRIALS_FILE = "trials.csv"
#: Columns that every such file has; the others are the hyper-parameters.
COLUMNS = ("job_id", "submit_time_s", "end_time_s", "accuracy")


def write_trials(folder: Path, trials: pd.DataFrame) -> None:
    """Write the trials of a cell in the order of their completion, whole or not at all."""
    write_sheet(Path(folder) / TRIALS_FILE, trials)


def read_trials(folder: Path) -> pd.DataFrame | None:
    """Read the trials of a cell, None where it is no tuning; `InputError` where the file is damaged."""
    path = Path(folder) / TRIALS_FILE
    return read_sheet(path, COLUMNS) if path.is_file() else None
