"""Runs one cell and returns its outcome, for every way to run cells."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import singledispatch
from pathlib import Path
from traceback import format_exc
from typing import Any

from simsched.errors import InputError, safe_text, said
from simsched.experiment.running.cell import NO_LIMITS, CellError, raised_by_user, run_cell
from simsched.experiment.running.limits import Limits
from simsched.experiment.task import Task

#: Creates the cell of a task by the task's class: a simulation, unless the module of the class registers another
#: function.
make_cell = singledispatch(run_cell)


@dataclass(frozen=True)
class Outcome:
    """How a cell ended: its seconds, or why it failed.

    `died` if its process vanished.
    """

    wall_s: float = 0.0
    error: str = ""
    traceback: str = ""
    died: bool = False

    def packed(self) -> bytes:
        """Serialise to plain numbers and text."""
        return json.dumps(asdict(self)).encode("ascii")

    @staticmethod
    def unpacked(content: bytes) -> Outcome | None:
        """Deserialise what `packed` wrote, None for anything else."""
        try:
            values = json.loads(content)
            types = {field.name: type(field.default) for field in fields(Outcome)}
            fits = values.keys() == types.keys() and all(type(values[name]) is kind for name, kind in types.items())
            return Outcome(**values) if fits else None
        except (ValueError, AttributeError, RecursionError):
            return None


def say_nothing(now_s: float, finished_jobs: int) -> None:
    """Ignore progress."""


def run_to_outcome(
    task: Task,
    folder: Path,
    environment: Mapping[str, Any],
    report: Callable[[float, int], None],
    limits: Limits = NO_LIMITS,
) -> Outcome:
    """Make a cell; errors become an outcome with safe text, except interrupts."""
    return outcome_of(lambda: make_cell(task, folder, environment, report, limits))


def outcome_of(work: Callable[[], float]) -> Outcome:
    """Create a cell and return the seconds taken; otherwise as `run_to_outcome`."""
    try:
        return Outcome(wall_s=work())
    except CellError as error:
        return failed(error.message)
    except InputError as error:
        return failed(said(error))
    except BaseException as error:
        if raised_by_user(error):
            raise
        return failed(f"internal error: {type(error).__name__}: {said(error)}")


def failed(message: str) -> Outcome:
    """Return the outcome of a cell that failed with the current exception."""
    trace = "its traceback cannot be shown"
    with contextlib.suppress(Exception):  # an exception's own methods may raise
        trace = format_exc()
    return Outcome(error=safe_text(message), traceback=safe_text(trace))
