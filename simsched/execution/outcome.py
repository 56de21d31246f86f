"""Runs one cell and says how it ended; what every way of running cells has in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from traceback import format_exc
from typing import Any

from simsched.errors import InputError
from simsched.execution.cell import NO_LIMITS, CellError, run_cell
from simsched.execution.limits import Limits
from simsched.experiment.task import Task


@dataclass(frozen=True)
class Outcome:
    """How a cell ended: the seconds it took, or why it failed.

    `died` tells that its process vanished over it, `interrupted` that a `KeyboardInterrupt` was raised in it.
    """

    wall_s: float = 0.0
    error: str = ""
    traceback: str = ""
    died: bool = False
    interrupted: bool = False


def say_nothing(now_s: float, finished_jobs: int) -> None:
    """Report no progress."""


def run_to_outcome(
    task: Task,
    folder: Path,
    environment: Mapping[str, Any],
    report: Callable[[float, int], None],
    limits: Limits = NO_LIMITS,
) -> Outcome:
    """Run a cell, and turn what may go wrong with it into an outcome."""
    try:
        return Outcome(wall_s=run_cell(task, folder, environment, report, limits))
    except CellError as error:
        return Outcome(error=error.message, traceback=format_exc())
    except InputError as error:
        return Outcome(error=str(error), traceback=format_exc())
    except KeyboardInterrupt:  # in another process it is for the one that waits for the outcome to raise it again
        return Outcome(error="interrupted", interrupted=True)
