"""Reading the CSV files that stand beside the tables of a cell."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from simsched.errors import input_error

if TYPE_CHECKING:
    import pandas as pd

_AGAIN = "run the experiment again"


def read_sheet(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    """Read a CSV file that has at least `columns`, ids of jobs as text.

    Raises `InputError` where it is missing or damaged, or lacks a column.
    """
    import pandas as pd  # slow to load, and few cells have such a file

    try:
        sheet = pd.read_csv(path, dtype={"job_id": str})
    except (ValueError, OSError) as error:
        raise input_error(path, f"cannot be read: {error}", _AGAIN) from error
    missing = [column for column in columns if column not in sheet]
    if missing:
        raise input_error(path, f"lacks the column '{missing[0]}'", _AGAIN)
    return sheet
