"""The jobs that a caller gives to `simulate`, a table or a list of rows or of `JobSpec`, and traces as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from math import isnan
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from simsched.applications import ApplicationCatalogue
from simsched.errors import input_error, nearest
from simsched.model import FIXED_DURATION, ApplicationSource, JobSpec
from simsched.model.job import SPEC_DEFAULTS, JobColumns, Speedup
from simsched.paths import data_folder
from simsched.workload import MOST_SECONDS, Trace
from simsched.workload.readers import read_trace as read_any

#: Jobs: a table or a list, its rows or items with the fields of `JobSpec`.
JobsLike = pd.DataFrame | Iterable[JobSpec | Mapping[str, Any]]

#: Names of a job's fields in tables and traces.
_ALIASES = {"job_id": "id", "name": "id", "submit_time": "submit_time_s", "time": "submit_time_s",
            "duration": "duration_s", "num_replicas": "num_gpus", "gpus": "num_gpus"}  # fmt: skip
_FIELDS = {field.name: field for field in fields(JobSpec)}
#: Numeric fields.
_NUMBERS = frozenset(name for name, field in _FIELDS.items() if str(field.type).split(" ")[0] in ("int", "float"))
#: Integer fields.
_COUNTS = frozenset(name for name in _NUMBERS if str(_FIELDS[name].type).split(" ")[0] == "int")
#: Text fields; a numeric id is converted to text.
_TEXTS = frozenset(name for name, field in _FIELDS.items() if str(field.type) == "str") - {"id"}


def jobs_of(jobs: JobsLike, source: ApplicationSource) -> Sequence[JobSpec]:
    """Return the jobs in order of submission, equal times as given; rows are checked against the applications."""
    known = frozenset(source.names()) if isinstance(source, ApplicationCatalogue) else frozenset()
    made = _from_columns(jobs, known) if isinstance(jobs, pd.DataFrame) else None
    return sorted(_from_rows(jobs, known), key=lambda job: job.submit_time_s) if made is None else made


def _from_columns(table: pd.DataFrame, applications: frozenset[str]) -> JobColumns | None:
    """Return the jobs of a table; None if a column has values that have to be looked at row by row."""
    names = [_ALIASES.get(str(column), str(column)) for column in table.columns]
    if len(set(names)) < len(names) or "num_gpus" not in names:
        return None
    columns: dict[str, Any] = {"id": [f"job-{number}" for number in range(len(table))]}
    columns["submit_time_s"] = np.zeros(len(table), np.int64)
    for position, name in enumerate(names):
        values = _column(name, table.iloc[:, position], columns.get(name, SPEC_DEFAULTS.get(name)))
        if values is None:
            return None
        columns[name] = values
    if np.any(columns.get("duration_s", ())) and not applications.isdisjoint(columns.get("application", ())):
        return None
    order = np.argsort(columns["submit_time_s"], kind="stable")
    if (order[1:] < order[:-1]).any():
        columns = {name: values[order] if isinstance(values, np.ndarray) else [values[place] for place in order]
                   for name, values in columns.items()}  # fmt: skip
    return JobColumns(len(table), columns)


def _column(name: str, column: pd.Series, absent: Any) -> Any:
    """Return the values of a field, missing ones as `absent` has them; None if not all are plain and in range."""
    missing = column.isna().to_numpy()
    if name in _NUMBERS:
        values: Any = _numbers(column, whole=name in _COUNTS)
    elif name == "id" or name in _TEXTS:
        values = _texts(column, missing, numbers=name == "id")
    elif name in _FIELDS and name != "speedup":
        values = column.tolist()
    else:
        return None
    if values is None or not missing.any():
        return values
    if name == "num_gpus":
        return None
    if isinstance(absent, np.ndarray):
        return np.where(missing, absent, values)
    values = values.tolist() if isinstance(values, np.ndarray) else values
    others = absent if isinstance(absent, list) else [absent] * len(values)
    return [other if gap else value for value, other, gap in zip(values, others, missing.tolist(), strict=True)]


def _numbers(column: pd.Series, *, whole: bool) -> np.ndarray | None:
    if not isinstance(column.dtype, np.dtype) or column.dtype.kind not in "iuf":
        return None
    numbers = column.to_numpy(copy=True)
    given = numbers[~np.isnan(numbers)]
    if given.size and not max(-float(given.min()), float(given.max())) <= MOST_SECONDS:
        return None
    if whole and column.dtype.kind == "f":
        return None if (given % 1).any() else np.nan_to_num(numbers).astype(np.int64)
    return numbers


def _texts(column: pd.Series, missing: np.ndarray, *, numbers: bool) -> list[str] | None:
    values = column.tolist()
    if numbers and isinstance(column.dtype, np.dtype) and column.dtype.kind in "iuf":
        return list(map(str, values))
    if missing.any():
        values = ["" if gap else value for value, gap in zip(values, missing, strict=True)]
    try:
        "".join(values).encode()
    except (TypeError, UnicodeEncodeError):
        return None
    if numbers:
        return values
    shared: dict[str, str] = {}
    return [shared.setdefault(value, value) for value in values]


def _from_rows(jobs: Any, applications: frozenset[str]) -> list[JobSpec]:
    given = jobs.to_dict("records") if isinstance(jobs, pd.DataFrame) else jobs
    if isinstance(given, str | bytes | Path) or not isinstance(given, Iterable):
        raise input_error("jobs", f"{jobs!r:.60} is not a list of jobs", "read a file with simsched.read_trace")
    made = [row if isinstance(row, JobSpec) else _job(number, row, applications) for number, row in enumerate(given)]
    for number, job in enumerate(made):
        _check_numbers(f"jobs, row {number}", job)
    return made


def _check_numbers(where: str, job: JobSpec) -> None:
    """Raise `InputError` for a job's number that is not finite, or a count that is not whole."""
    for name in sorted(_NUMBERS):
        value = getattr(job, name)
        if value is None:
            continue
        whole, real = (not isinstance(value, bool) and isinstance(value, kind) for kind in (Integral, Real))
        if not real:
            raise input_error(where, f"'{name}' is {value!r:.40}, which is not a number", "give it as a number")
        if not abs(value) <= MOST_SECONDS:
            remedy = f"give a number up to {MOST_SECONDS:g}"
            raise input_error(where, f"'{name}' is {value}, which is too large or not a number", remedy)
        if name in _COUNTS and not whole:
            raise input_error(where, f"'{name}' is {value}, which is not a whole number", "give it as an int")


def _speedup(where: str, given: Any) -> Speedup:
    """Return a speed-up, given as in an experiment: `linear`, an exponent or a table."""
    if isinstance(given, Speedup):
        return given
    try:
        return Speedup.of(given)
    except (TypeError, ValueError) as error:
        remedy = "give 'linear', an exponent such as 0.8, or a table such as [[1, 1], [2, 1.8]]"
        raise input_error(where, f"its speed-up {given!r:.40} is invalid", remedy) from error


def _is_text(value: Any) -> bool:
    """Return whether a value is text that can be encoded, i.e. without lone surrogates."""
    return isinstance(value, str) and not any("\ud800" <= one <= "\udfff" for one in value)


def _job(number: int, row: Mapping[str, Any], applications: frozenset[str]) -> JobSpec:
    where = f"jobs, row {number}"
    if not isinstance(row, Mapping):
        raise input_error(where, f"{row!r:.60} is not a job", "give a dict of its fields, or a JobSpec")
    found: dict[str, Any] = {}
    for column, value in row.items():
        name = _ALIASES.get(str(column), str(column))
        if name not in _FIELDS:
            raise input_error(where, f"a job has no field '{column}'", nearest(str(column), [*_FIELDS, *_ALIASES]))
        if value is None or (isinstance(value, float) and isnan(value)):
            continue
        found[name] = value.item() if isinstance(value, np.generic) else value
        if name in _COUNTS and isinstance(found[name], float) and found[name].is_integer():
            found[name] = int(found[name])  # as in a table of floats
        if name in _TEXTS and not _is_text(found[name]):
            raise input_error(where, f"'{name}' is {value!r:.40}, which is not text", "give it as a str of Unicode")
    if "num_gpus" not in found:
        raise input_error(where, "it does not give the number of GPUs of the job", "add the column 'num_gpus'")
    name = found.get("application", FIXED_DURATION)
    if name in applications and found.get("duration_s") and not found.get("total_steps"):
        message = f"it names the application '{name}' and a duration of {found['duration_s']} s"
        raise input_error(where, message, "leave one of them out: the application determines how long its jobs run")
    if "speedup" in found:
        found["speedup"] = _speedup(where, found["speedup"])
    found["id"] = str(found.get("id", f"job-{number}"))
    if not _is_text(found["id"]):
        raise input_error(where, f"its id {found['id']!r:.40} is not text", "give it as a str of Unicode")
    return JobSpec(**{"submit_time_s": 0, **found})


_COLUMNS = (
    "job_id", "submit_time_s", "num_gpus", "duration_s", "tenant", "user", "status", "attempts", "application",
    "batch_size",
)  # fmt: skip


def find_trace(source: str | Path, layout: str = "auto") -> Trace:
    """Read a trace: a file, a folder of CSV files, or a shipped one by name; raises `InputError` if there is none."""
    if Path(source).exists():
        return read_any(source, layout)
    shipped = {path.name.split(".")[0]: path for path in data_folder("traces").glob("*.csv*")}
    if str(source) in shipped:
        return read_any(shipped[str(source)], layout)
    raise input_error(source, "there is no such file, and no shipped trace of that name", nearest(str(source), shipped))


def read_trace(source: str | Path, layout: str = "auto") -> pd.DataFrame:
    """Return the jobs of a trace in order of submission, one row each.

    `source` is a file in any of the layouts of `traces/README.md`, a folder of such files, or the name of a shipped
    trace; `layout` names the layout if the content does not determine it. Columns: `job_id`, `submit_time_s` (seconds
    since the first submission), `num_gpus`, `duration_s`, `tenant`, `user`, `status`, `attempts`, `application`,
    `batch_size`. Raises `InputError` naming file, line and remedy.

    >>> jobs = read_trace("philly-synthetic")
    >>> len(jobs), int(jobs["num_gpus"].max())
    (55396, 128)
    """
    return find_trace(source, layout).table[list(_COLUMNS)].copy()
