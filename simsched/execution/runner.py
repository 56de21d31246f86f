"""Runs the cells of an experiment that are not there yet, in this process or over several."""

from __future__ import annotations

import contextlib
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import connection, get_context, parent_process
from pathlib import Path
from typing import Any, Protocol

from simsched.errors import InputError
from simsched.execution.cell import Cancelled
from simsched.execution.dask_runner import run_on_dask
from simsched.execution.manifest import describe_environment, run_index
from simsched.execution.outcome import Outcome, WorkerDiedError, run_to_outcome
from simsched.execution.progress import ProgressFile
from simsched.execution.store import Store
from simsched.experiment.grid import Grid, GridCell, Task
from simsched.results.reader import RUN_FILE
from simsched.results.writer import write_json

_POLL_S = 0.2


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
) -> RunResult:
    """Run an experiment into `out`/NAME: complete cells are reused, the others run over `workers` processes.

    Cells in `beside` are run too, but the index of the run does not name them. With `dask`, the address of a scheduler,
    all run there instead. A cell that fails does not keep the others from running. The results do not depend on
    `workers`. Raises `InputError` where results cannot be written, and `WorkerDiedError` where a process was killed;
    what was finished stays either way.
    """
    heard = listener or Silence()
    store = Store(out / grid.folder_name)
    store.open()
    first_named = {cell.task.key: cell for cell in reversed([*grid.wanted, *beside])}
    keys = list(dict.fromkeys([*(task.key for task in grid.tasks), *(cell.task.key for cell in beside)]))
    missing = [first_named[key] for key in keys if not store.has(key) and not store.adopt(key)]
    reused = len(keys) - len(missing)
    heard.began(len(keys), reused)
    outcomes = _run_missing(missing, store.folder, workers, heard, dask)
    problems = [problem for outcome in outcomes.values() for problem in outcome.problems]
    if problems:
        raise InputError(*dict.fromkeys(problems))
    complete = [cell for cell in grid.cells if store.has(cell.task.key)]
    if complete:
        write_json(store.folder / RUN_FILE, run_index(grid, complete))
    failures = [
        Failure(cell.name, outcomes[cell.task.key].error, outcomes[cell.task.key].traceback) for cell in missing
    ]
    failures = [failure for failure in failures if failure.message]
    return RunResult(store.folder, len(missing) - len(failures), reused, tuple(failures))


def _run_missing(
    missing: Sequence[GridCell], folder: Path, workers: int, listener: Listener, dask: str | None
) -> dict[str, Outcome]:
    outcomes: dict[str, Outcome] = {}
    if not missing:
        return outcomes
    if dask is not None:
        done = run_on_dask(dask, missing, folder)
    elif workers == 1:
        done = _run_here(missing, folder, listener)
    else:
        done = _run_in_pool(missing, folder, workers, listener)
    for cell, outcome in done:
        outcomes[cell.task.key] = outcome
        if outcome.error:
            listener.failed(cell, outcome.error)
        else:
            listener.finished(cell, outcome.wall_s)
    return outcomes


def _run_here(missing: Sequence[GridCell], folder: Path, listener: Listener) -> Iterator[tuple[GridCell, Outcome]]:
    environment = describe_environment()
    for cell in missing:

        def report(now_s: float, finished_jobs: int, cell: GridCell = cell) -> None:
            listener.advanced([(cell, int(now_s), finished_jobs)])

        yield cell, run_to_outcome(cell.task, folder, environment, report)


def _run_in_pool(
    missing: Sequence[GridCell], folder: Path, workers: int, listener: Listener
) -> Iterator[tuple[GridCell, Outcome]]:
    environment = describe_environment()
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="simsched-")))
        progress = ProgressFile.make(scratch / "progress", len(missing))
        stack.callback(progress.close)
        pool = ProcessPoolExecutor(min(workers, len(missing)), get_context("spawn"), _prepare_worker)
        try:
            with _sigint_ignored():  # as the processes are started here, they inherit it
                futures = {
                    pool.submit(_run_in_worker, cell.task, folder, environment, scratch / "progress", number): number
                    for number, cell in enumerate(missing)
                }
            yield from _collect(futures, missing, progress, listener)
        except BrokenProcessPool as error:
            message = "a worker process was killed, perhaps for want of memory"
            raise WorkerDiedError(message) from error
        finally:
            progress.cancel()
            pool.shutdown(wait=True, cancel_futures=True)


def _collect(
    futures: Mapping[Future[Outcome], int], missing: Sequence[GridCell], progress: ProgressFile, listener: Listener
) -> Iterator[tuple[GridCell, Outcome]]:
    pending = set(futures)
    while pending:
        done, pending = wait(pending, timeout=_POLL_S, return_when=FIRST_COMPLETED)
        for future in sorted(done, key=futures.__getitem__):
            yield missing[futures[future]], future.result()
        running = [(missing[futures[f]], *progress.read(futures[f])) for f in sorted(pending, key=futures.__getitem__)]
        listener.advanced([entry for entry in running if entry[1]])


def _run_in_worker(
    task: Task, folder: Path, environment: Mapping[str, Any], progress_file: Path, number: int
) -> Outcome:
    """Run a cell in a worker process."""
    progress = ProgressFile(progress_file)

    def report(now_s: float, finished_jobs: int) -> None:
        progress.write(number, int(now_s), finished_jobs)
        if progress.cancelled:
            raise Cancelled

    try:
        return run_to_outcome(task, folder, environment, report)
    except Cancelled:
        return Outcome(error="cancelled")
    finally:
        progress.close()


@contextlib.contextmanager
def _sigint_ignored() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _prepare_worker() -> None:
    """Leave Ctrl-C to the parent, and do not outlive it, even if it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_die_with, args=(parent.sentinel,), daemon=True).start()


def _die_with(sentinel: int) -> None:
    connection.wait([sentinel])
    time.sleep(0.1)  # a parent that ends in order has told the worker to stop by now
    signal.raise_signal(signal.SIGTERM)
