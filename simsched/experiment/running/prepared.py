"""Checks experiments and makes their cells, with third-party code in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing import current_process
from typing import Any, TypeVar

from simsched.documents import Document
from simsched.errors import input_error
from simsched.experiment.grid import Grid, make_grid
from simsched.experiment.results_name import results_name
from simsched.experiment.validation import Experiment, check_experiment, foreign_code

#: Is told how many cells have been made, and of how many.
Progress = Callable[[int, int], None]
Result = TypeVar("Result")


def prepare_grid(
    document: Document,
    overrides: Sequence[str] = (),
    labels: Sequence[str] = (),
    name: str | None = None,
    *,
    progress: Progress | None = None,
    in_process: bool = False,
    ahead: bool = False,
    limit_s: float | None = None,
    leave_out: bool = False,
    seeds: Sequence[int] | None = None,
) -> Grid:
    """Check an experiment with `key=value` overrides, and make its cells; nothing is run.

    `ahead` starts to load the process that workers are forked from. Third-party policies are loaded and made in a
    process of their own, or `in_process`; there each piece of their code may take `limit_s`. Raises `InputError` with
    everything that is wrong; with `leave_out`, policies that cannot run are left out instead (`Grid.refused`).
    `seeds` take the place of the experiment's.
    """
    rest = (tuple(labels), name, leave_out, None if seeds is None else tuple(seeds))
    if not in_process:
        found = apart_if_foreign(_kept_grid, document, overrides, *rest, progress=progress, limit_s=limit_s)
        if found is not None:
            return found
    return _grid(document, overrides, *rest, progress, ahead=ahead)


def apart_if_foreign(
    work: Callable[..., Result],
    document: Document,
    overrides: Sequence[str],
    *rest: object,
    progress: Progress | None = None,
    limit_s: float | None = None,
) -> Result | None:
    """Process a document that loads third-party code in another process; None if it is to be done here."""
    foreign = foreign_code(document, overrides)
    if not foreign or current_process().daemon:  # which may have no processes of its own
        return None
    from simsched.experiment.running.apart import done_apart  # loads what runs cells

    whose = ", ".join(f"'{one}'" for one in foreign)
    return done_apart(work, document, tuple(overrides), *rest, whose=whose, progress=progress, limit_s=limit_s)


def _kept_grid(*arguments: Any) -> Grid | None:
    """Make a grid without the classes of its policies; None if its cells are made whenever they are asked for."""
    grid = _grid(*arguments)
    if not isinstance(grid.cells, tuple) or not isinstance(grid.experiment.points, tuple):
        return None
    return replace(grid, experiment=replace(grid.experiment, policies={}))


def _with_seeds(experiment: Experiment, seeds: tuple[int, ...]) -> Experiment:
    if not isinstance(experiment.points, tuple):
        message = f"{len(experiment.points)} points are too many for seeds that are added"
        raise input_error("sweep", message, "list the seeds")
    points = tuple(replace(one, spec=one.spec.model_copy(update={"seeds": seeds})) for one in experiment.points)
    return replace(experiment, spec=experiment.spec.model_copy(update={"seeds": seeds}), points=points)


def _grid(
    document: Document,
    overrides: Sequence[str],
    labels: Sequence[str],
    name: str | None,
    leave_out: bool,
    seeds: tuple[int, ...] | None,
    progress: Progress | None,
    *,
    ahead: bool = False,
) -> Grid:
    checked = check_experiment(document, overrides)
    if seeds is not None:
        checked = _with_seeds(checked, seeds)
    if ahead:
        from simsched.experiment.running.worker import begin_loading  # loads what runs cells

        begin_loading()
    grid = make_grid(checked, progress, labels=labels, leave_out=leave_out)
    return replace(grid, results_name=results_name(checked, name))
