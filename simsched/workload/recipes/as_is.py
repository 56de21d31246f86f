"""The rows of a trace unchanged: the applications, GPUs and batch sizes that the file names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from simsched.errors import InputError, Problem
from simsched.keys import key
from simsched.model import FIXED_DURATION, JobSpec
from simsched.workload.recipes.recipe import Ingredients, jobs_key, trace_of
from simsched.workload.recipes.tiresias_testbed import MODELS
from simsched.workload.shapes import shapes_of
from simsched.workload.trace import PROBLEM_CAP

if TYPE_CHECKING:
    import pandas as pd

#: A job with required fields only.
_BARE = JobSpec("", 0, 1)
#: Columns of every trace that share their name with a field of `JobSpec`.
_FIELDS = (
    "submit_time_s", "num_gpus", "application", "batch_size", "duration_s", "tenant", "user", "status", "attempts",
)  # fmt: skip
#: Optional columns, with the conversion of a cell to the field of that name.
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
#: The value of such a column for no entry.
_IDLE: Mapping[str, Any] = MappingProxyType({"attempts_s": "", "queue": "", "qos": "", "group": "", "gpu_share": 1.0})


RuntimeFrom = Literal["application", "duration"] | None


#: Help for the key `runtime_from`.
RUNTIME_FROM = "which determines the run time of a job whose row names both an application and a duration"


def settled(table: pd.DataFrame, runtime_from: RuntimeFrom) -> pd.DataFrame:
    """Return the rows of a trace, in which either an application or a duration determines each run time.

    Models of Tiresias's Table 6 take their duration from the trace. Raises `InputError` with the first jobs that name
    both another application and a duration, unless `runtime_from` decides.
    """
    both = (table["duration_s"] > 0) & ~table["application"].isin((FIXED_DURATION, *MODELS))
    if not both.any() or runtime_from == "application":
        return table
    if runtime_from == "duration":
        batch_size = table["batch_size"].mask(both, 0)
        return table.assign(application=table["application"].mask(both, FIXED_DURATION), batch_size=batch_size)
    rows = table[both].head(PROBLEM_CAP)
    found = zip(rows["job_id"], rows["application"], rows["duration_s"], strict=True)
    rest = int(both.sum()) - len(rows)
    more = [Problem("workload", f"and {rest} more jobs like these")] if rest else []
    raise InputError(*(_both(name, application, seconds) for name, application, seconds in found), *more)


def _both(job_id: str, application: str, duration_s: float) -> Problem:
    message = f"it names the application '{application}' and a duration of {duration_s:g} s"
    remedy = "choose one with the key runtime_from (application or duration), or write a duration of 0"
    return Problem(f"workload, job '{job_id}'", message, remedy)


@dataclass(frozen=True)
class AsIsRecipe:
    """Take the rows of a trace, or the first `jobs` of them, unchanged."""

    needs_trace: ClassVar[bool] = True
    unread: ClassVar[Collection[str]] = ()

    jobs: int | None = jobs_key()
    runtime_from: Literal["application", "duration"] | None = key(None, RUNTIME_FROM)

    def make(self, ingredients: Ingredients) -> list[JobSpec]:
        """Return one job for each row, in order of submission; raises `InputError` as `settled` raises it."""
        table = trace_of(ingredients).table
        return specs_of(settled(table if self.jobs is None else table.head(self.jobs), self.runtime_from))

    def extremes(self, ingredients: Ingredients, most_gpus: int) -> list[JobSpec]:
        """Return the jobs if they are the same for all seeds, else one job that requests the most GPUs."""
        if ingredients.trace is not None:
            return self.make(ingredients)
        return [JobSpec(f"a-job-of-{most_gpus}-gpus", 0, most_gpus, duration_s=1)]


def specs_of(table: pd.DataFrame) -> list[JobSpec]:
    """Return one `JobSpec` for each row of a trace's table, in order."""
    said: dict[str, Iterable[Any]] = {"id": _values(table["job_id"])} | {name: _values(table[name]) for name in _FIELDS}
    for name, turn in _RARE.items():
        if name in table and (table[name] != _IDLE.get(name, 0)).any():
            idle = getattr(_BARE, name)
            said[name] = [turn(one) if one else idle for one in _values(table[name])]
    said |= shapes_of(table)
    return JobSpec.of_columns(len(table), said)


def _values(column: pd.Series) -> list[Any]:
    """List the values of a column; equal texts share one object, except names, which are unique."""
    if column.dtype.kind in "iufb" or column.name == "job_id":
        return column.tolist()
    numbers, texts = column.factorize(use_na_sentinel=False)
    known = texts.tolist()
    return [known[number] for number in numbers.tolist()]
