"""The rows of a trace as they stand: the applications, GPUs and batch sizes that the file names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from simsched.model.job import JobSpec
from simsched.workload.recipes.recipe import Ingredients, jobs_key, trace_of

if TYPE_CHECKING:
    import pandas as pd

#: The columns of a trace in the order of the fields of `JobSpec`.
_FIELDS = (
    "job_id", "submit_time_s", "num_gpus", "application", "batch_size", "duration_s", "tenant", "user", "status",
    "attempts",
)  # fmt: skip
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

    def extremes(self, ingredients: Ingredients, most_gpus: int) -> list[JobSpec]:
        """Return the jobs where all seeds have the same, else one that asks for the most GPUs."""
        if ingredients.trace is not None:
            return self.make(ingredients)
        return [JobSpec(f"a-job-of-{most_gpus}-gpus", 0, most_gpus, duration_s=1)]


def specs_of(table: pd.DataFrame) -> list[JobSpec]:
    """Return one `JobSpec` for each row of a trace's table, in its order."""
    rows = zip(*(_values(table[column]) for column in _FIELDS), strict=True)
    rare = [column for column in _RARE if column in table and (table[column] != _IDLE.get(column, 0)).any()]
    if not rare:
        return [JobSpec(*values) for values in rows]
    more = zip(*(_values(table[column]) for column in rare), strict=True)
    turned = [(column, _RARE[column]) for column in rare]
    return [
        JobSpec(*values, **{name: turn(one) for (name, turn), one in zip(turned, others, strict=True) if one})
        for values, others in zip(rows, more, strict=True)
    ]


def _values(column: pd.Series) -> list[Any]:
    """List the values of a column, equal texts being one object, but for names, of which no two are equal."""
    if column.dtype.kind in "iufb" or column.name == "job_id":
        return column.tolist()
    known: dict[Any, Any] = {}
    return [known.setdefault(value, value) for value in column]
