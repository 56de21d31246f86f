"""Published curves, read off a figure, that a figure of a run shows beside its own."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from simsched.errors import InputError, Problem, input_error


class CurvePoint(NamedTuple):
    """A point of the curve `series` in the `panel` of a `figure`, in the units that its axes show."""

    figure: str
    panel: str
    series: str
    x: float
    y: float


def read_curves(path: Path) -> tuple[CurvePoint, ...]:
    """Read a CSV of `figure,panel,series,x,y`, `#` beginning a comment; `InputError` names every row at fault."""
    import pandas as pd  # slow to load, and few experiments show published curves

    remedy = "give a CSV with the columns figure,panel,series,x,y"
    try:
        table = pd.read_csv(path, comment="#", dtype=str, keep_default_na=False)
    except (ValueError, OSError) as error:
        raise input_error(path, f"cannot be read: {error}", remedy) from error
    if tuple(table.columns) != CurvePoint._fields:
        raise input_error(path, f"has the columns {', '.join(table.columns)}", remedy)
    numbers = table[["x", "y"]].apply(pd.to_numeric, errors="coerce")
    bad = numbers.isna().any(axis=1)
    if bad.any():
        rows = table[bad].itertuples(index=False)
        raise InputError(*(Problem(str(path), f"x or y is no number in {','.join(row)}") for row in rows))
    table = table.assign(x=numbers["x"].astype(float), y=numbers["y"].astype(float))
    return tuple(CurvePoint(*row) for row in table.itertuples(index=False, name=None))
