"""Reading the CSV files that stand beside the tables of a cell."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from simsched.errors import input_error
from simsched.files import written_aside
from simsched.outlets import csv_cell

if TYPE_CHECKING:
    import pandas as pd

_AGAIN = "run the experiment again"


def read_sheet(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    """Read a CSV file that has at least `columns`, ids of jobs as text.

    Raises `InputError` where it is missing or damaged, or lacks a column.
    """
    import pandas as pd  # slow to load, and few cells have such a file

    from simsched.results.schema import LARGEST  # loads pyarrow

    try:
        sheet = pd.read_csv(path, converters={"job_id": str})  # an id such as `NA` or `007` is a text
    except (ValueError, OSError) as error:
        raise input_error(path, f"cannot be read: {error}", _AGAIN) from error
    missing = [column for column in columns if column not in sheet]
    if missing:
        raise input_error(path, f"lacks the column '{missing[0]}'", _AGAIN)
    for column in set(columns) - {"job_id"}:
        if not pd.api.types.is_numeric_dtype(sheet[column]) or not (np.abs(sheet[column]) <= LARGEST).all():
            raise input_error(path, f"its column '{column}' holds what is no number in reach", _AGAIN)
    return sheet


def write_sheet(path: Path, sheet: pd.DataFrame) -> None:
    """Write a CSV file, whole or not at all, its texts as `csv_cell` has them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_aside(path) as aside:
        sheet.map(csv_cell).to_csv(aside, index=False, lineterminator="\n")
