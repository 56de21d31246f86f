"""Checks experiments and creates their cells, with third-party code in a separate process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing import current_process
from typing import Any, TypeVar

from simsched.documents import Document
from simsched.experiment.grid import Grid, make_grid
from simsched.experiment.results_name import results_name
from simsched.experiment.validation import Experiment, check_experiment, foreign_code

#: Receives the number of cells created so far and the total.
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
    """Check an experiment with `key=value` overrides and create its cells without running them.

    `ahead` starts to load the process that forks workers. Third-party policies are loaded and created in a separate
    process, where each step of their code may take `limit_s`, or `in_process`. Raises `InputError` with every problem;
    with `leave_out`, policies that cannot run are left out instead (`Grid.refused`). `seeds` replace the experiment's.
    """
    rest = (tuple(labels), name, leave_out, None if seeds is None else tuple(seeds))
    if not in_process:
        found = apart_if_foreign(_portable_grid, document, overrides, *rest, progress=progress, limit_s=limit_s)
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
    """Process a document that loads third-party code in another process; None if this process should do it."""
    foreign = foreign_code(document, overrides)
    if not foreign or current_process().daemon:  # which must not start processes
        return None
    from simsched.experiment.running.apart import done_apart  # loads what runs cells

    whose = ", ".join(f"'{one}'" for one in foreign)
    return done_apart(work, document, tuple(overrides), *rest, whose=whose, progress=progress, limit_s=limit_s)


def _portable_grid(*arguments: Any) -> Grid:
    """Return a grid without the classes of its policies."""
    grid = _grid(*arguments)
    return replace(grid, experiment=replace(grid.experiment, policies={}))


def _with_seeds(experiment: Experiment, seeds: tuple[int, ...]) -> Experiment:
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
