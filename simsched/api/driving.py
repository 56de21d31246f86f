"""Simulations of an experiment's cells, for a caller who decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from simsched.api.checking import ExperimentSource, prepare
from simsched.api.running import override_texts
from simsched.applications import catalogue, with_speeds
from simsched.engine import Recorder, Simulation, Terms
from simsched.errors import input_error
from simsched.experiment import Task, colocation_of
from simsched.policy import Policy


def task_of(
    experiment: ExperimentSource, changes: Mapping[str, Any] | None, seed: int, labels: Sequence[str] = ()
) -> Task:
    """Return what the first cell of an experiment is given under a seed, or that of the first of some policies.

    See `run` for the experiment and `changes`.

    Raises `InputError` for invalid input, and for jobs that depend on more than the seed.
    """
    grid = prepare(experiment, override_texts({**(changes or {}), "seeds": [seed]}), labels=labels)
    if any(cell.point for cell in grid.cells):
        name = grid.experiment.spec.name
        raise input_error(name, "it sweeps values or job lists, so its seeds do not say which jobs", "fix one of them")
    task = grid.wanted[0].task
    if task.tuning is not None or task.cuts is not None:
        raise input_error(grid.experiment.spec.name, "tuning and shards cannot be driven", "leave them out")
    return task


def drive_task(task: Task, policy: Policy | Terms, recorder: Recorder | None = None) -> Simulation:
    """Return a simulation of a cell that stops at every decision; `policy` as `drive` takes it, in place of its own.

    `recorder` takes its records, by default into memory.
    """
    return Simulation(
        task.cluster,
        task.jobs,
        with_speeds(catalogue(task.applications), task.gpu_speed, task.cluster),
        task.engine,
        task.seed,
        policy,
        recorder=recorder,
        agents=None if task.agent is None else task.agent.make(),
        colocation=colocation_of(task.sharing),
        failures=task.failures,
    )
