"""Readers of tables of steps per second.

Gavel's layout is JSON that maps GPU types to rows named `('LM (batch size 10)', 1)`, i.e. job type and GPUs; the entry
`null` of a row is the rate of a job that does not share its GPUs. The other layout is a CSV of one GPU type, one rate
per line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from simsched.errors import InputError, Problem, input_error
from simsched.model.regimes import BatchRegimes, CriticalEpochs, Window
from simsched.model.tabulated import Setting, TabulatedModel
from simsched.paths import data_folder
from simsched.reading import read_json, read_records

SUFFIX = ".json"
LINES_SUFFIX = ".csv"
_COLUMNS = ("model_name", "batch_size", "num_gpu", "rate")
_ROW = re.compile(r"\('(?P<model>\S+)(?: \(batch size (?P<batch>\d+)\))?', (?P<gpus>\d+)\)")


def read_rate_table(path: Path) -> Mapping[str, TabulatedModel]:
    """Read the applications of a table, by model; published batch regimes are added to the models that have them.

    Rates of 0 (out of memory, or never measured) are left out. Raises `InputError` if the file is not such a table.
    """
    table = read_json(path, "give a table of rates")
    if not isinstance(table, dict) or not all(isinstance(rows, dict) for rows in table.values()) or not table:
        raise input_error(path, "this is not a table of rates", "its keys are GPU types, below them job types")
    rates: dict[str, dict[str, dict[Setting, float]]] = {}
    for gpu_type, rows in sorted(table.items()):
        for row, entry in rows.items():
            model, setting = _row(path, row)
            rate = _alone(path, row, entry)
            if rate > 0:
                rates.setdefault(model, {}).setdefault(gpu_type, {})[setting] = rate
    regimes = shockwave_regimes()
    return MappingProxyType(
        {model: TabulatedModel(model, MappingProxyType(rows), regimes.get(model)) for model, rows in rates.items()}
    )


def read_rate_lines(path: Path, gpu_type: str) -> Mapping[str, TabulatedModel]:
    """Read the applications of a CSV with the columns model_name, batch_size, num_gpu and rate, of GPUs of a type.

    Raises `InputError` naming the line of every wrong value.
    """
    rates: dict[str, dict[Setting, float]] = {}
    problems: list[Problem] = []
    for line, row in read_records(path, _COLUMNS):
        wrong = [column for column in _COLUMNS[1:] if not _positive(row[column], whole=column != "rate")]
        messages = [f"column '{column}': '{row[column]:.40}' is not a valid number above 0" for column in wrong]
        if not wrong:
            setting = Setting(int(row["batch_size"]), int(row["num_gpu"]))
            known = rates.setdefault(row["model_name"], {})
            messages += ["an earlier line has a rate for this setting"] * (setting in known)
            known[setting] = float(row["rate"])
        problems += [Problem(str(path), message, "correct the line, or leave it out", line) for message in messages]
    if problems:
        raise InputError(*problems)
    return MappingProxyType(
        {model: TabulatedModel(model, MappingProxyType({gpu_type: rows})) for model, rows in rates.items()}
    )


def _positive(cell: str, *, whole: bool) -> bool:
    try:
        number = int(cell) if whole else float(cell)
    except ValueError:
        return False
    return 0 < number < float("inf")


def _row(path: Path, row: str) -> tuple[str, Setting]:
    match = _ROW.fullmatch(row)
    if match is None:
        remedy = "a row reads \"('LM (batch size 10)', 1)\": job type and GPUs"
        raise input_error(path, f'"{row}" is not a row of a table of rates', remedy)
    return match["model"], Setting(int(match["batch"] or 0), int(match["gpus"]))


def _alone(path: Path, row: str, entry: Any) -> float:
    rate = entry.get("null", 0.0) if isinstance(entry, dict) else None
    if not isinstance(rate, int | float) or not 0 <= rate < float("inf"):
        raise input_error(path, f'row "{row}" has no rate alone', "give steps per second under the key 'null'")
    return float(rate)


def shockwave_regimes() -> Mapping[str, BatchRegimes]:
    """Return the regimes of the models in Shockwave's evaluation, by model (NSDI'23, artifact)."""
    path = data_folder("workloads") / "batch-regimes" / "shockwave.json"
    models: Mapping[str, Any] = read_json(path, "reinstall simsched")["models"]
    return MappingProxyType({name: _regimes(entry) for name, entry in sorted(models.items())})


def _regimes(entry: Mapping[str, Any]) -> BatchRegimes:
    doublings = {
        (int(batch), int(gpus)): tuple(epochs)
        for batch, by_gpus in entry.get("doublings", {}).items()
        for gpus, epochs in by_gpus.items()
    }
    critical = entry.get("critical")
    return BatchRegimes(
        samples=entry["samples"],
        smallest=entry["smallest_batch"],
        largest=entry["largest_batch"],
        doublings=MappingProxyType(doublings),
        critical=_critical(critical) if critical else None,
    )


def _critical(entry: Mapping[str, Any]) -> CriticalEpochs:
    return CriticalEpochs(
        windows=_windows(entry["windows"]),
        period=entry.get("period", 0),
        by_batch=MappingProxyType({int(batch): _windows(w) for batch, w in entry.get("by_batch", {}).items()}),
        in_profile=_windows(entry.get("in_profile", ())),
    )


def _windows(pairs: Any) -> tuple[Window, ...]:
    return tuple((first, end) for first, end in pairs)
