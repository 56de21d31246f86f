"""The rows of a trace as they stand: the applications, GPUs and batch sizes that the file names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar

import pandas as pd

from simsched.model.job import JobSpec
from simsched.workload.recipes.recipe import Ingredients, jobs_key, trace_of

#: The columns of a trace in the order of the fields of `JobSpec`.
_FIELDS = (
    "job_id", "submit_time_s", "num_gpus", "application", "batch_size", "duration_s", "tenant", "user", "status",
    "attempts",
)  # fmt: skip
#: Columns of few different texts, each of which jobs share: a trace may have hundreds of thousands of rows.
_REPEATED = frozenset({"application", "tenant", "user", "status"})
#: Columns that few traces have, and how a cell that holds anything becomes the field of that name.
_RARE: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {
        "attempts_s": lambda text: tuple(map(float, text.split())),
        "time_limit_s": float,
        "queue": str,
        "priority": float,
        "qos": str,
        "group": str,
        "gpu_share": float,
    }
)
#: What such a column holds where it says nothing.
_IDLE: Mapping[str, Any] = MappingProxyType({"attempts_s": "", "queue": "", "qos": "", "group": "", "gpu_share": 1.0})


@dataclass(frozen=True)
class AsIsRecipe:
    """Take the rows of a trace as they stand, or the first `jobs` of them."""

    needs_trace: ClassVar[bool] = True

    jobs: int | None = jobs_key()

    def make(self, ingredients: Ingredients) -> list[JobSpec]:
        """Return one job for each row, in order of submission."""
        table = trace_of(ingredients).table
        return specs_of(table if self.jobs is None else table.head(self.jobs))


def specs_of(table: pd.DataFrame) -> list[JobSpec]:
    """Return one `JobSpec` for each row of a trace's table, in its order."""
    columns = [_shared(table[column].tolist()) if column in _REPEATED else table[column].tolist() for column in _FIELDS]
    jobs = [JobSpec(*values) for values in zip(*columns, strict=True)]
    rare = [column for column in _RARE if column in table and (table[column] != _IDLE.get(column, 0)).any()]
    if not rare:
        return jobs
    rows = zip(*(table[column].tolist() for column in rare), strict=True)
    return [
        replace(job, **{column: _RARE[column](value) for column, value in zip(rare, values, strict=True) if value})
        for job, values in zip(jobs, rows, strict=True)
    ]


def _shared(texts: list[str]) -> list[str]:
    """Return the same texts with one object for equal ones."""
    known: dict[str, str] = {}
    return [known.setdefault(text, text) for text in texts]
