"""Converts experiment sections, and what a task has of them, to what a simulation takes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from simsched.applications import catalogue, read_pair_table, with_speeds
from simsched.errors import input_error
from simsched.experiment.spec import SharingSpec
from simsched.model import ApplicationSource
from simsched.model.colocation import Colocation, ConstantSharing, GapFilling, StageInterleaving, TimeSlicing

if TYPE_CHECKING:
    from simsched.experiment.task import Task


def applications_of(task: Task) -> ApplicationSource:
    """Return the applications of a task, at the speeds of its cluster's GPU types."""
    return with_speeds(catalogue(task.applications), task.gpu_speed, task.cluster)


def settings_of(task: Task) -> dict[str, Any]:
    """Return the settings of `Simulation` that a task has whoever decides: agents, colocation and failures."""
    agents = None if task.agent is None else task.agent.make()
    return {"agents": agents, "colocation": colocation_of(task.sharing), "failures": task.failures}


def colocation_of(spec: SharingSpec | None) -> Colocation | None:
    """Return the colocation model, None without GPU sharing; raises `InputError` for a bad pair table."""
    if spec is None or spec.max_jobs == 1:
        return None
    if spec.model == "pairs":
        if spec.pairs_path is None:
            raise input_error("engine.sharing", "the model 'pairs' needs 'pairs_path'", "name a CSV of measured pairs")
        return read_pair_table(Path(spec.pairs_path), spec.default_speed)
    if spec.model == "stages":
        return StageInterleaving()
    if spec.model == "gaps":
        return GapFilling()
    if spec.model == "time-slicing":
        return TimeSlicing(spec.quantum_s, spec.switch_s)
    return ConstantSharing(1.0 if spec.model == "shares" else spec.factor)


def interleaves(spec: SharingSpec | None) -> bool:
    """Return whether jobs that share a GPU need stage times."""
    return spec is not None and spec.max_jobs > 1 and spec.model in ("stages", "gaps")
