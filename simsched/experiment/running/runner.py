"""Runs missing cells of an experiment: in worker processes, in this one, or on dask workers.

Dask workers need the same version of simsched and path to the results.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import closing, suppress
from dataclasses import dataclass
from multiprocessing import current_process
from pathlib import Path
from typing import Any

from simsched.errors import extra, input_error
from simsched.experiment.grid import Grid, GridCell
from simsched.experiment.running.cell import NO_LIMITS, Outcome, run_to_outcome, say_nothing
from simsched.experiment.running.limits import Limits
from simsched.experiment.running.manifest import run_index
from simsched.experiment.running.pool import Listener, Silence, run_in_pool
from simsched.experiment.running.sharded import Outcomes, Run, run_in_shards
from simsched.experiment.running.store import Store
from simsched.experiment.task import Task
from simsched.results import RUN_FILE
from simsched.results.writer import write_json
from simsched.sources import code

#: Cells sent ahead per worker thread; the rest wait here to relieve the scheduler.
_AHEAD = 3
_LEAST_AHEAD = 64
_LOOK_EVERY_S = 1.0
_LOOK_AGAIN_S = 0.1


def run_on_dask(
    address: str, missing: Sequence[GridCell], folder: Path, listener: Listener, limits: Limits
) -> Outcomes:
    """Run cells on the scheduler at `address` and yield them as they finish.

    A lost worker's cells go to others; a cell that costs several workers fails. After a lost connection cells are sent
    again if a scheduler returns, else fail. Raises `InputError` if dask or the scheduler is missing.
    """
    try:
        from distributed import Client, as_completed
    except ImportError:
        raise input_error("--dask", "the package 'distributed' is not installed", extra("dask")) from None
    try:
        client = Client(address, timeout="10s")
    except (OSError, ValueError, TimeoutError) as error:
        raise input_error("--dask", f"no dask scheduler answers at '{address}': {error}", "start one first") from None
    waiting = list(reversed(missing))
    sent: dict[str, GridCell] = {}

    def send() -> Any:
        cell = waiting.pop()
        sent[cell.task.key] = cell
        return client.submit(_run, cell.task, folder.resolve(), limits, code().digest, key=cell.task.key, pure=False)

    with client:
        threads: Mapping[str, int] = client.nthreads()
        ahead = min(max(_AHEAD * sum(threads.values()), _LEAST_AHEAD), len(waiting))
        listener.workers(len(threads))
        known, again = len(threads), time.monotonic() + _LOOK_EVERY_S
        running = as_completed([send() for _ in range(ahead)])
        for future in running:
            outcome = _outcome_of(future)
            cell = sent.pop(future.key)
            future.release()
            if outcome is None:
                waiting.append(cell)
                if not _connected_again(client):
                    break
                running.add(send())
                continue
            if waiting:
                running.add(send())
            if time.monotonic() >= again:
                again = time.monotonic() + _LOOK_EVERY_S
                with suppress(OSError):  # the next future reports the lost connection
                    if (now := len(client.nthreads())) != known:
                        known = now
                        listener.workers(now)
            yield cell, outcome
    for cell in (*sent.values(), *waiting):  # none, unless the scheduler is gone
        yield cell, Outcome(error=f"dask: the connection to the scheduler at '{address}' was lost")


def _connected_again(client: Any) -> bool:
    """Wait while the client looks for a lost scheduler; return whether it reconnected."""
    while client.status == "connecting":
        time.sleep(_LOOK_AGAIN_S)
    return bool(client.status == "running")


def _outcome_of(future: Any) -> Outcome | None:
    """Return how a cell ended, failed if workers died over it or cannot load it; None if the connection was lost."""
    try:
        error = future.exception()
        if error is None:
            outcome: Outcome = future.result()
            return outcome
    except (CancelledError, OSError):
        return None
    return Outcome(error=f"dask: {type(error).__name__}: {error}")


def _run(task: Task, folder: Path, limits: Limits, same: str) -> Outcome:
    """Run a cell on a worker, which must have the sender's code."""
    if code().digest != same:
        return Outcome(error="this dask worker has another version of simsched; install the same one everywhere")
    return run_to_outcome(task, folder, say_nothing, limits)


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
    store = Store(out / grid.folder_name)

    def run(cells: Sequence[GridCell], folder: Path) -> Outcomes:
        if dask is not None:
            return run_on_dask(dask, cells, folder, heard, limits)
        return _run_locally(cells, folder, workers, heard, limits, in_process=in_process)

    with store.in_use():
        return _run_grid(grid, store, beside, heard, run)


def _run_grid(grid: Grid, store: Store, beside: Sequence[GridCell], listener: Listener, run: Run) -> RunResult:
    cells: dict[str, GridCell] = {}
    for cell in (*grid.wanted, *beside):
        cells.setdefault(cell.task.key, cell)
    missing = [cell for cell in cells.values() if not _is_there(store, cell, listener)]
    reused = len(cells) - len(missing)
    listener.began(len(cells), reused)
    outcomes: dict[str, Outcome] = {}
    try:
        whole = [cell for cell in missing if cell.task.cuts is None]
        _collect(run(whole, store.folder), listener, outcomes)
        cut = [cell for cell in missing if cell.task.cuts is not None]
        _collect(run_in_shards(cut, store.folder, run), listener, outcomes)
    finally:  # also where it is interrupted or fails, so that finished cells can be shown
        failures = _write_index(grid, store, cells.keys(), missing, outcomes)
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
    keys_now = ((cell, cell.task.key) for cell in grid.cells)
    complete = [cell for cell, key in keys_now if key not in gone and (key in keys or store.has(key))]
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


def _run_locally(
    missing: Sequence[GridCell], folder: Path, workers: int, listener: Listener, limits: Limits, *, in_process: bool
) -> Outcomes:
    if in_process or not missing:
        return _run_here(missing, folder, listener, limits)
    if current_process().daemon:
        message = "the cells run in this process, which may not start others: a policy that crashes it ends the run"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        return _run_here(missing, folder, listener, limits)
    return run_in_pool(missing, folder, min(workers, len(missing)), listener, limits)


def _collect(done: Outcomes, listener: Listener, outcomes: dict[str, Outcome]) -> None:
    with closing(done):
        for cell, outcome in done:
            outcomes[cell.task.key] = outcome
            if outcome.error:
                listener.failed(cell, outcome.error)
            else:
                listener.finished(cell, outcome.wall_s)


def _run_here(missing: Sequence[GridCell], folder: Path, listener: Listener, limits: Limits) -> Outcomes:
    for cell in missing:

        def report(now_s: float, finished_jobs: int, cell: GridCell = cell) -> None:
            listener.advanced([(cell, int(now_s), finished_jobs)])

        with contextlib.chdir("."):  # a policy may change it
            outcome = run_to_outcome(cell.task, folder.resolve(), report, limits)
        yield cell, outcome
