"""Processes that run cells, one at a time each: a process that dies takes one known cell with it and no other.

Parent and worker talk over a pipe of their own, without locks or semaphores that a killed process could leave behind.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import connection, get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, Protocol

from simsched.execution.cell import Cancelled
from simsched.execution.limits import Limits, memory_of
from simsched.execution.manifest import describe_environment
from simsched.execution.outcome import Outcome, run_to_outcome
from simsched.execution.progress import ProgressFile
from simsched.execution.store import Store
from simsched.experiment.grid import GridCell
from simsched.experiment.task import Task

_POLL_S = 0.2
#: Seconds that cells have to notice that the run is stopped before their processes are killed.
_GRACE_S = 10.0


class Watcher(Protocol):
    """Is told how far running cells are."""

    def advanced(self, running: Sequence[tuple[GridCell, int, int]]) -> None:
        """Take note of running cells: each with its simulated second and its finished jobs."""


@dataclass
class _Worker:
    """A process, the parent's end of its pipe, the cell that it runs, and the most memory that it was seen to hold."""

    process: SpawnProcess
    pipe: Connection
    number: int | None = None
    memory_mib: int = 0


def run_in_pool(
    missing: Sequence[GridCell], folder: Path, workers: int, watcher: Watcher, limits: Limits
) -> Generator[tuple[GridCell, Outcome], None, None]:
    """Run cells over `workers` processes and yield them as they end.

    A cell whose process dies is run once more, alone, when the others are through; if that process dies too, the cell
    has failed. Closing the iterator or interrupting it stops the cells: what is under way is given some seconds to
    notice, and a second interrupt kills it. Neither leaves processes or temporary files behind.
    """
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="simsched-")))
        progress = ProgressFile.make(scratch / "progress", len(missing))
        stack.callback(progress.close)
        pool = _Pool(missing, folder, scratch / "progress", progress, watcher, limits)
        stack.callback(Store(folder).sweep)
        stack.callback(pool.close)
        suspects: list[int] = []
        for number, outcome in pool.run(range(len(missing)), workers):
            if outcome.died:
                suspects.append(number)
            else:
                yield missing[number], outcome
        for number, outcome in pool.run(sorted(suspects), 1):
            yield missing[number], outcome


class _Pool:
    def __init__(
        self,
        missing: Sequence[GridCell],
        folder: Path,
        progress_path: Path,
        progress: ProgressFile,
        watcher: Watcher,
        limits: Limits,
    ) -> None:
        self._missing = missing
        self._arguments = (folder, describe_environment(), progress_path, limits)
        self._progress = progress
        self._watcher = watcher
        self._workers: list[_Worker] = []

    def run(self, numbers: Sequence[int], workers: int) -> Iterator[tuple[int, Outcome]]:
        """Run cells by number, at most `workers` at a time, and yield them as they end."""
        waiting = list(reversed(numbers))
        self._shrink(workers)
        while waiting or any(worker.number is not None for worker in self._workers):
            self._feed(waiting, workers)
            busy = [worker for worker in self._workers if worker.number is not None]
            ends: list[Any] = [worker.pipe for worker in busy]
            ready = connection.wait([*ends, *(worker.process.sentinel for worker in busy)], timeout=_POLL_S)
            for worker in busy:
                if worker.pipe in ready or worker.process.sentinel in ready:
                    yield self._result_of(worker)
            self._tell()

    def _feed(self, waiting: list[int], workers: int) -> None:
        """Give every idle process a cell, and start processes for the rest as far as allowed."""
        idle = [worker for worker in self._workers if worker.number is None]
        while waiting and (idle or len(self._workers) < workers):
            worker = idle.pop() if idle else self._start()
            worker.number = waiting.pop()
            with contextlib.suppress(OSError):  # it has just died, as will be seen
                worker.pipe.send((worker.number, self._missing[worker.number].task))

    def _start(self) -> _Worker:
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, *self._arguments), daemon=True)
        with _sigint_ignored():  # the process inherits it
            process.start()
        theirs.close()
        worker = _Worker(process, ours)
        self._workers.append(worker)
        return worker

    def _result_of(self, worker: _Worker) -> tuple[int, Outcome]:
        number = worker.number
        assert number is not None
        worker.number = None
        try:
            return number, worker.pipe.recv()
        except (EOFError, OSError):
            self._workers.remove(worker)
            worker.process.join()
            worker.pipe.close()
            return number, Outcome(error=_cause_of_death(worker), died=True)

    def _tell(self) -> None:
        running = []
        for worker in self._workers:
            if worker.number is None:
                continue
            worker.memory_mib = max(worker.memory_mib, memory_of(worker.process.pid or 0))
            running.append((self._missing[worker.number], *self._progress.read(worker.number)))
        self._watcher.advanced([entry for entry in running if entry[1]])

    def _shrink(self, workers: int) -> None:
        """Dismiss idle processes beyond a number."""
        while len(self._workers) > workers:
            worker = self._workers.pop()
            worker.pipe.close()
            worker.process.join(_GRACE_S)
            worker.process.kill()

    def close(self) -> None:
        """End all processes, those that run a cell when they notice; an interrupt meanwhile kills them."""
        self._progress.cancel()
        for worker in self._workers:
            worker.pipe.close()
        try:
            end = time.monotonic() + _GRACE_S
            for worker in self._workers:
                worker.process.join(max(end - time.monotonic(), 0))
        finally:
            with _sigint_ignored():
                for worker in self._workers:
                    worker.process.kill()
                    worker.process.join()
                self._workers.clear()


def _cause_of_death(worker: _Worker) -> str:
    code = worker.process.exitcode or 0
    how = f"was killed ({signal.Signals(-code).name})" if code < 0 else f"ended with exit code {code}"
    perhaps = ", perhaps for want of memory" if code == -9 else ""
    held = f"; it held up to {worker.memory_mib} MiB" if worker.memory_mib else ""
    return f"its process {how}{perhaps}{held}"


def _serve(pipe: Connection, folder: Path, environment: Mapping[str, Any], progress_file: Path, limits: Limits) -> None:
    """Run cells until the pipe is closed; what a worker does all its life."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdout.flush()
    with contextlib.suppress(OSError):
        os.dup2(2, 1)  # stdout is for results
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_die_with, args=(parent.sentinel,), daemon=True).start()
    while True:
        try:
            number, task = pipe.recv()
            pipe.send(_run(task, folder, environment, progress_file, number, limits))
        except (EOFError, OSError):
            return


def _run(
    task: Task, folder: Path, environment: Mapping[str, Any], progress_file: Path, number: int, limits: Limits
) -> Outcome:
    progress = ProgressFile(progress_file)

    def report(now_s: float, finished_jobs: int) -> None:
        progress.write(number, int(now_s), finished_jobs)
        if progress.cancelled:
            raise Cancelled

    try:
        return run_to_outcome(task, folder, environment, report, limits)
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


def _die_with(sentinel: int) -> None:
    """Do not outlive the parent, even if it is killed."""
    connection.wait([sentinel])
    time.sleep(0.1)  # a parent that ends in order has told the worker to stop by now
    signal.raise_signal(signal.SIGTERM)
