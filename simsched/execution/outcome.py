"""One attempt at a cell, and how it may end; what every way of running cells has in common."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simsched.errors import InputError, Problem
from simsched.execution.cell import CellError, run_cell
from simsched.experiment.grid import Task


@dataclass(frozen=True)
class Outcome:
    """How a cell ended: the seconds it took, or why it failed. `problems` is filled where the user's input is wrong."""

    wall_s: float = 0.0
    error: str = ""
    trace: str = ""
    problems: tuple[Problem, ...] = ()


class WorkerDiedError(Exception):
    """A worker process vanished, and with it what it was running."""


def say_nothing(now_s: int, finished_jobs: int) -> None:
    """Report no progress."""


def attempt(task: Task, folder: Path, around: Mapping[str, Any], report: Callable[[int, int], None]) -> Outcome:
    """Run a cell, and turn what may go wrong with it into an outcome."""
    try:
        return Outcome(wall_s=run_cell(task, folder, around, report))
    except CellError as error:
        return Outcome(error=error.message, trace=traceback.format_exc())
    except InputError as error:
        return Outcome(error=str(error), problems=error.problems)
