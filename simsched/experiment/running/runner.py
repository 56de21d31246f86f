"""Runs missing cells of an experiment, in worker processes or in this one."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing import current_process
from pathlib import Path
from typing import Protocol

from simsched.experiment.grid import MOST_KEPT, Grid, GridCell
from simsched.experiment.running.cell import NO_LIMITS, Outcome, run_to_outcome
from simsched.experiment.running.dask_runner import run_on_dask
from simsched.experiment.running.limits import Limits
from simsched.experiment.running.manifest import describe_environment, run_index
from simsched.experiment.running.pool import run_in_pool
from simsched.experiment.running.sharded import run_in_shards
from simsched.experiment.running.store import Store
from simsched.results import RUN_FILE
from simsched.results.writer import write_json


@dataclass(frozen=True)
class Failure:
    """A failed cell by name, with reason and traceback."""

    name: str
    message: str
    traceback: str


@dataclass(frozen=True)
class RunResult:
    """The outcome of a run: folder, numbers of cells run and reused, and failures."""

    folder: Path
    ran: int
    reused: int
    failures: tuple[Failure, ...]


class Listener(Protocol):
    """Receives the progress of a run."""

    def began(self, cells: int, reused: int) -> None:
        """Receive the number of cells, and how many are reused."""
        return

    def advanced(self, running: Sequence[tuple[GridCell, int, int]]) -> None:
        """Receive running cells, each with its simulated second and finished jobs."""
        return

    def damaged(self, cell: GridCell, fault: str) -> None:
        """Receive an existing cell that is damaged and runs again."""
        return

    def workers(self, number: int) -> None:
        """Receive the number of remote workers."""
        return

    def finished(self, cell: GridCell, wall_s: float) -> None:
        """Receive a finished cell."""
        return

    def failed(self, cell: GridCell, message: str) -> None:
        """Receive a failed cell."""
        return


class Silence(Listener):
    """A listener that ignores everything."""


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
    """Run an experiment into `out`/NAME: reuse complete cells, run the others over `workers` processes.

    Cells in `beside` run too but stay out of the run's index. With `dask` (a scheduler's address) all cells run there;
    with `in_process` in this process, for a debugger. Failed cells do not stop the others; the index names them.
    Results do not depend on `workers`. Raises `InputError` if nothing can be written.
    """
    heard = listener or Silence()
    grid = replace(grid, cells=tuple(grid.cells))  # large grids create cells on each access
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

        def run(cells: Sequence[GridCell], folder: Path) -> Generator[tuple[GridCell, Outcome], None, None]:
            return _started(cells, folder, workers, heard, dask, limits, in_process=in_process)

        whole = [cell for cell in missing if cell.task.cuts is None]
        _collect(run(whole, store.folder), heard, outcomes)
        cut = [cell for cell in missing if cell.task.cuts is not None]
        _collect(run_in_shards(cut, store.folder, run), heard, outcomes)
    except BaseException:  # interrupted or failed: finished cells can be shown
        if len(grid.cells) <= MOST_KEPT:
            _write_index(grid, store, keys, missing, outcomes)
        raise
    failures = _write_index(grid, store, keys, missing, outcomes)
    return RunResult(store.folder, len(missing) - len(failures), reused, tuple(failures.values()))


def _write_index(
    grid: Grid, store: Store, keys: Collection[str], missing: Sequence[GridCell], outcomes: Mapping[str, Outcome]
) -> dict[str, Failure]:
    """Write the run's index so far, if it has cells; returns failures by key."""
    failures = {
        cell.task.key: Failure(cell.name, outcomes[cell.task.key].error, outcomes[cell.task.key].traceback)
        for cell in missing
        if cell.task.key in outcomes and outcomes[cell.task.key].error
    }
    unheard = [cell.task.key for cell in missing if cell.task.key not in outcomes]  # may have finished while stopping
    gone = {key for key in unheard if store.fault(key) or not store.has(key)} | failures.keys()
    complete = [cell for cell in grid.cells if _complete(store, cell, keys, gone)]
    if complete:
        told = {key: failure.message for key, failure in failures.items()}
        write_json(store.folder / RUN_FILE, run_index(grid, complete, told))
    return failures


def _is_there(store: Store, cell: GridCell, listener: Listener) -> bool:
    """Return whether a cell is complete here or in a sibling run."""
    key = cell.task.key
    fault = store.fault(key)
    if fault:
        listener.damaged(cell, fault)
        return False
    return store.has(key) or store.adopt(key)


def _complete(store: Store, cell: GridCell, known: Collection[str], gone: Collection[str]) -> bool:
    """Return whether a cell is complete now, looking only at those this run has not."""
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
    if dask is not None:
        return run_on_dask(dask, missing, folder, listener, limits)
    if in_process or not missing:
        return _run_here(missing, folder, listener, limits)
    if current_process().daemon:
        message = "the cells run in this process, which may not start others: a policy that crashes it ends the run"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        return _run_here(missing, folder, listener, limits)
    return run_in_pool(missing, folder, min(workers, len(missing)), listener, limits)


def _collect(
    done: Generator[tuple[GridCell, Outcome], None, None], listener: Listener, outcomes: dict[str, Outcome]
) -> None:
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

        with contextlib.chdir("."):  # a policy may change it
            outcome = run_to_outcome(cell.task, folder.resolve(), environment, report, limits)
        yield cell, outcome
