"""The rows of a trace as they stand: the applications, GPUs and batch sizes that the file names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import pandas as pd

from simsched.model.job import JobSpec
from simsched.workload.recipes.recipe import Ingredients, jobs_key, trace_of

#: The columns of a trace in the order of the fields of `JobSpec`.
_FIELDS = (
    "job_id", "submit_time_s", "num_gpus", "application", "batch_size", "duration_s", "tenant", "user", "status",
    "attempts",
)  # fmt: skip


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
    columns = [table[column].tolist() for column in _FIELDS]
    jobs = [JobSpec(*values) for values in zip(*columns, strict=True)]
    if "attempts_s" not in table or not table["attempts_s"].any():
        return jobs
    return [
        replace(job, attempts_s=tuple(map(float, text.split()))) if text else job
        for job, text in zip(jobs, table["attempts_s"], strict=True)
    ]
