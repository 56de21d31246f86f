"""Runs the cells of an experiment that are not there yet, over processes of their own or in this one."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing import current_process
from pathlib import Path
from typing import Protocol

from simsched.experiment.grid import MOST_KEPT, Grid, GridCell
from simsched.experiment.running.cell import NO_LIMITS, refresh_summary
from simsched.experiment.running.dask_runner import run_on_dask
from simsched.experiment.running.limits import Limits
from simsched.experiment.running.manifest import describe_environment, run_index
from simsched.experiment.running.outcome import Outcome, run_to_outcome
from simsched.experiment.running.pool import run_in_pool
from simsched.experiment.running.store import Store
from simsched.results import RUN_FILE, write_json


@dataclass(frozen=True)
class Failure:
    """A cell that could not be run, by its name, with the reason and the traceback."""

    name: str
    message: str
    traceback: str


@dataclass(frozen=True)
class RunResult:
    """What a run left behind: its folder, how many cells were run and reused, and what failed."""

    folder: Path
    ran: int
    reused: int
    failures: tuple[Failure, ...]


class Listener(Protocol):
    """Is told how a run proceeds."""

    def began(self, cells: int, reused: int) -> None:
        """Take note of how many cells there are and how many of them were there already."""

    def advanced(self, running: Sequence[tuple[GridCell, int, int]]) -> None:
        """Take note of running cells: each with its simulated second and its finished jobs."""

    def damaged(self, cell: GridCell, fault: str) -> None:
        """Take note of a cell that was there, is not as it was written, and is run again."""

    def workers(self, number: int) -> None:
        """Take note of how many workers there are, beyond this machine's own processes."""

    def finished(self, cell: GridCell, wall_s: float) -> None:
        """Take note of a finished cell."""

    def failed(self, cell: GridCell, message: str) -> None:
        """Take note of a failed cell."""


class Silence:
    """A listener that does nothing."""

    def began(self, cells: int, reused: int) -> None:
        """Do nothing."""

    def advanced(self, running: Sequence[tuple[GridCell, int, int]]) -> None:
        """Do nothing."""

    def damaged(self, cell: GridCell, fault: str) -> None:
        """Do nothing."""

    def workers(self, number: int) -> None:
        """Do nothing."""

    def finished(self, cell: GridCell, wall_s: float) -> None:
        """Do nothing."""

    def failed(self, cell: GridCell, message: str) -> None:
        """Do nothing."""


def run_grid(
    grid: Grid,
    out: Path,
    workers: int = 1,
    listener: Listener | None = None,
    *,
    dask: str | None = None,
    beside: Sequence[GridCell] = (),
    limits: Limits = NO_LIMITS,
    in_process: bool = False,
) -> RunResult:
    """Run an experiment into `out`/NAME: complete cells are reused, the others run over `workers` processes.

    Cells in `beside` are run too, but the index of the run does not name them. With `dask`, the address of a scheduler,
    all run there instead, and `in_process` all run in this very process, for a debugger. A cell that fails, be it by
    killing its process, does not keep the others from running, and the index of the run names it. The results do not
    depend on `workers`. Raises `InputError` where nothing can be written.
    """
    heard = listener or Silence()
    grid = replace(grid, cells=tuple(grid.cells))  # those of a large grid are made each time that they are asked for
    store = Store(out / grid.folder_name)
    with store.in_use():
        return _run_grid(grid, store, workers, heard, dask, beside, limits, in_process=in_process)


def _run_grid(
    grid: Grid,
    store: Store,
    workers: int,
    heard: Listener,
    dask: str | None,
    beside: Sequence[GridCell],
    limits: Limits,
    *,
    in_process: bool,
) -> RunResult:
    first_named = {cell.task.key: cell for cell in reversed([*grid.wanted, *beside])}
    keys = dict.fromkeys([*(task.key for task in grid.tasks), *(cell.task.key for cell in beside)])
    missing = [first_named[key] for key in keys if not _is_there(store, first_named[key], heard)]
    reused = len(keys) - len(missing)
    heard.began(len(keys), reused)
    outcomes: dict[str, Outcome] = {}
    try:
        done = _started(missing, store.folder, workers, heard, dask, limits, in_process=in_process)
        _collect(done, heard, outcomes)
    except BaseException:  # the user stops the run, or is told why it cannot go on; what there is can be shown
        if len(grid.cells) <= MOST_KEPT:
            _write_index(grid, store, keys, missing, outcomes)
        raise
    failures = _write_index(grid, store, keys, missing, outcomes)
    return RunResult(store.folder, len(missing) - len(failures), reused, tuple(failures.values()))


def _write_index(
    grid: Grid, store: Store, keys: Collection[str], missing: Sequence[GridCell], outcomes: Mapping[str, Outcome]
) -> dict[str, Failure]:
    """Write the index of a run as far as it is, if there is anything in it; returns the failures by key."""
    failures = {
        cell.task.key: Failure(cell.name, outcomes[cell.task.key].error, outcomes[cell.task.key].traceback)
        for cell in missing
        if cell.task.key in outcomes and outcomes[cell.task.key].error
    }
    unheard = [cell.task.key for cell in missing if cell.task.key not in outcomes]  # perhaps finished while stopping
    gone = {key for key in unheard if store.fault(key) or not store.has(key)} | failures.keys()
    complete = [cell for cell in grid.cells if _complete(store, cell, keys, gone)]
    if complete:
        told = {key: failure.message for key, failure in failures.items()}
        write_json(store.folder / RUN_FILE, run_index(grid, complete, told))
    return failures


def _is_there(store: Store, cell: GridCell, listener: Listener) -> bool:
    """Return whether a cell is complete, here or beside; its summary is renewed where metrics are defined anew."""
    key = cell.task.key
    fault = store.fault(key)
    if fault:
        listener.damaged(cell, fault)
    elif store.has(key) or store.adopt(key):
        refresh_summary(store.cell(key))
        return True
    return False


def _complete(store: Store, cell: GridCell, known: Collection[str], gone: Collection[str]) -> bool:
    """Return whether a cell of the grid is there now; only those that this run did not look at are looked at."""
    key = cell.task.key
    return key not in gone if key in known else store.has(key)


def _started(
    missing: Sequence[GridCell],
    folder: Path,
    workers: int,
    listener: Listener,
    dask: str | None,
    limits: Limits,
    *,
    in_process: bool,
) -> Generator[tuple[GridCell, Outcome], None, None]:
    """Return what runs cells as it is asked for them."""
    if dask is not None:
        return run_on_dask(dask, missing, folder, listener, limits)
    if in_process or not missing:
        return _run_here(missing, folder, listener, limits)
    if current_process().daemon:
        message = "the cells run in this process, which may have none of its own: a policy that breaks it ends the run"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        return _run_here(missing, folder, listener, limits)
    return run_in_pool(missing, folder, min(workers, len(missing)), listener, limits)


def _collect(
    done: Generator[tuple[GridCell, Outcome], None, None], listener: Listener, outcomes: dict[str, Outcome]
) -> None:
    """Put into `outcomes` how each cell ended."""
    with contextlib.closing(done):
        for cell, outcome in done:
            outcomes[cell.task.key] = outcome
            if outcome.error:
                listener.failed(cell, outcome.error)
            else:
                listener.finished(cell, outcome.wall_s)


def _run_here(
    missing: Sequence[GridCell], folder: Path, listener: Listener, limits: Limits
) -> Generator[tuple[GridCell, Outcome], None, None]:
    environment = describe_environment()
    for cell in missing:

        def report(now_s: float, finished_jobs: int, cell: GridCell = cell) -> None:
            listener.advanced([(cell, int(now_s), finished_jobs)])

        with contextlib.chdir("."):  # a policy may go elsewhere
            outcome = run_to_outcome(cell.task, folder.resolve(), environment, report, limits)
        yield cell, outcome
