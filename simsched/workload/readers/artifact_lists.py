"""Job lists of artifacts: Muri (SIGCOMM'22), Rubick (MLSys'25, published as Morphling), ElasticFlow (ASPLOS'23)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simsched.model import JobSpec
from simsched.model.job import StageProfile
from simsched.model.plans import Plan, morphling_plan
from simsched.workload.readers.format import Head

if TYPE_CHECKING:
    from simsched.workload.readers.sheet import Sheet

#: Fields of `JobSpec`, each with its value for every job.
Fields = dict[str, Any]
_COUNTS = ("num_gpus", "total_steps", "batch_size")
_STAGES = ("resource_time_0", "resource_time_1", "resource_time_2")
_MS = 1000


@dataclass(frozen=True)
class ArtifactList:
    """A kind of CSV: the required columns (with `id`), the unused columns, and how its cells become fields."""

    name: str
    id: str
    columns: tuple[str, ...]
    idle: tuple[str, ...]
    fields: Callable[[Sheet], Fields]

    def matches(self, head: Head) -> bool:
        """Return whether a file's header is of this kind."""
        return head.has(self.id, *self.columns)

    def read(self, path: Path) -> list[JobSpec]:
        """Read a list in order of submission; ties keep the order of the file.

        Raises `InputError` naming line and column of every wrong value.
        """
        from simsched.workload.readers.sheet import open_sheet  # needs pandas, which detecting the format does not

        sheet = open_sheet(path, (self.id, *self.columns), idle=self.idle)
        fields = {"id": sheet.unique(self.id), **self.fields(sheet)}
        sheet.check()
        columns = {name: map(int, column) if name in _COUNTS else _plain(column) for name, column in fields.items()}
        return sorted(JobSpec.of_columns(len(sheet), columns), key=lambda job: job.submit_time_s)


def _plain(column: Iterable[Any]) -> Iterable[Any]:
    return column.tolist() if isinstance(column, np.ndarray) else column


def _common(
    sheet: Sheet, model: str, gpus: str, steps: str, submit: str, *, per_s: int = 1, whole: bool = False
) -> Fields:
    """Return the fields that all kinds have: model, GPUs, iterations, submission and duration."""
    sheet.blame(model, sheet.missing(model), "is missing")
    counts = [sheet.number(column, least=1, whole=True) for column in (gpus, steps)]
    times = [sheet.number(column, least=0, whole=whole) / per_s for column in (submit, "duration")]
    names = ("application", "num_gpus", "total_steps", "submit_time_s", "duration_s")
    return dict(zip(names, (sheet.text(model), *counts, *times), strict=True))


def _of_muri(sheet: Sheet) -> Fields:
    """Read times in milliseconds, and stages: loading (processors and storage), GPU and network.

    Jobs of `priority` 0 are guaranteed; all are if there is no such column.
    """
    found = _common(sheet, "model_name", "num_gpu", "iterations", "submit_time", per_s=_MS)
    iteration = sheet.number("iteration_time")
    sheet.blame("iteration_time", iteration <= 0, "is not above 0")
    stages = zip(*((sheet.number(column, least=0) / _MS).tolist() for column in _STAGES), strict=True)
    priority = sheet.number("priority", least=0) if "priority" in sheet else np.zeros(len(sheet))
    return found | {
        "batch_size": sheet.number("batch_size", least=0, whole=True),
        "guaranteed": priority == 0,
        "profile": map(StageProfile, (iteration / _MS).tolist(), stages),
    }


def _of_morphling(sheet: Sheet) -> Fields:
    """Read plans: three digits (pipeline, tensor, data) or a data-parallel strategy; `is_sla` 1 is guaranteed."""
    found = _common(sheet, "application", "num_gpus", "steps", "submission_time")
    guaranteed = sheet.number("is_sla", least=0, whole=True)
    sheet.blame("is_sla", guaranteed > 1, "is neither 0 nor 1")
    counts = np.nan_to_num(found["num_gpus"])
    plans = [_plan(text, int(count)) for text, count in zip(sheet.text("exec_plan"), counts, strict=True)]
    sheet.blame("exec_plan", np.array([plan is None for plan in plans]), "is not a plan for these GPUs")
    return found | {"guaranteed": guaranteed == 1, "plan": plans}


def _plan(text: object, gpus: int) -> Plan | None:
    try:
        return morphling_plan(str(text), gpus)
    except ValueError:
        return None


def _of_elasticflow(sheet: Sheet) -> Fields:
    """Read whole seconds; `ddl` counts from the start of the trace, and jobs of `best_effort` 1 have no deadline."""
    found = _common(sheet, "model_name", "num_gpu", "iteration", "submit_time", whole=True)
    submit, deadline = found["submit_time_s"], sheet.number("ddl", least=0, whole=True)
    sheet.blame("ddl", deadline < submit, "is before the job is submitted")
    free = "best_effort" in sheet and sheet.number("best_effort", least=0, most=1, whole=True) > 0
    left = zip((deadline - submit).tolist(), np.broadcast_to(free, len(sheet)).tolist(), strict=True)
    return found | {
        "batch_size": sheet.number("batch_size", least=1, whole=True),
        "deadline_s": [None if best_effort else left_s for left_s, best_effort in left],
    }


#: In the order of detection.
ARTIFACT_LISTS = (
    ArtifactList(
        "muri", "job_id",
        ("num_gpu", "submit_time", "iterations", "model_name", "batch_size", "duration", "iteration_time", *_STAGES),
        ("interval",), _of_muri,  # milliseconds since the previous job, which follow from the submission times
    ),
    ArtifactList(
        "morphling", "name",
        ("submission_time", "duration", "application", "num_gpus", "exec_plan", "steps", "is_sla"),
        ("num_cpus", "bandwidth"), _of_morphling,  # cores for offloading; the artifact reads neither
    ),
    ArtifactList(
        "elasticflow", "job_id",
        ("submit_time", "iteration", "model_name", "ddl", "batch_size", "num_gpu", "duration"),
        ("best_effort",), _of_elasticflow,
    ),
)  # fmt: skip
MURI, MORPHLING, ELASTICFLOW = ARTIFACT_LISTS
