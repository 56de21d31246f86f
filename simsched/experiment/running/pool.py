"""A process pool in which a dying process loses one known cell and no other.

Each worker has a separate pipe, without locks that a killed process could leave behind. A worker serves only one
third-party policy; shipped policies share workers.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess, SpawnProcess
from pathlib import Path
from typing import Any, Protocol

from simsched.experiment.grid import GridCell
from simsched.experiment.running.cell import Outcome
from simsched.experiment.running.limits import Limits, memory_of
from simsched.experiment.running.store import Store
from simsched.experiment.running.worker import (
    LONGEST_MESSAGE,
    READY,
    Surroundings,
    end,
    how_it_ended,
    serve_cells,
    start,
)
from simsched.experiment.task import Task
from simsched.stops import scratch_folder, stops_deferred

_POLL_S = 0.2
#: Seconds that a process has to end after closing its pipe.
_END_S = 1.0


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


#: A cell's third-party code: its policy, agents and processes, each with the folder it is loaded from.
Code = tuple[tuple[str, str], ...]


def code_of(task: Task) -> Code:
    """Return a cell's third-party code, empty if all ships with simsched."""
    return tuple((one.name, str(one.folder)) for one in task.plugins if not one.kind.is_shipped(one.name))


@dataclass
class _Worker:
    """A process, its pipe, the code it serves, its cell and that cell's start; `memory_mib` is its observed peak."""

    process: SpawnProcess | ForkServerProcess
    pipe: Connection
    code: Code
    number: int | None = None
    since: float = 0.0
    memory_mib: int = 0


def run_in_pool(
    missing: Sequence[GridCell], folder: Path, workers: int, listener: Listener, limits: Limits
) -> Generator[tuple[GridCell, Outcome], None, None]:
    """Run cells over `workers` processes and yield them as they end.

    A cell whose process dies runs once more, alone, after the others. Closing the iterator or a stop ends the
    cells that run, and leaves no processes or temporary files.
    """
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(scratch_folder())
        common = Surroundings(folder.resolve(), scratch, limits, len(missing))
        pool = _Pool(missing, common, listener)
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
    def __init__(self, missing: Sequence[GridCell], common: Surroundings, listener: Listener) -> None:
        self._missing = missing
        self._codes = [code_of(cell.task) for cell in missing]
        self._common = common
        self._progress = common.progress("w+")
        self._listener = listener
        self._workers: list[_Worker] = []
        self._shown_at = 0.0

    def run(self, numbers: Sequence[int], workers: int) -> Iterator[tuple[int, Outcome]]:
        """Run cells by number, at most `workers` at a time, and yield them as they end."""
        waiting = list(numbers)
        while len(self._workers) > workers:
            self._dismiss(self._workers[-1])
        while waiting or self._busy:
            self._feed(waiting, workers)
            busy = self._busy
            ends: list[Any] = [worker.pipe for worker in busy]
            ready = connection.wait([*ends, *(worker.process.sentinel for worker in busy)], timeout=_POLL_S)
            for worker in busy:
                heard = worker.pipe in ready or worker.process.sentinel in ready
                outcome = self._outcome_of(worker) if heard else self._too_late(worker)
                if outcome is not None:
                    assert worker.number is not None
                    number, worker.number = worker.number, None
                    yield number, outcome
            self._tell()

    @property
    def _busy(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.number is not None]

    def _feed(self, waiting: list[int], workers: int) -> None:
        """Give cells to idle processes that serve their code, and start more processes as allowed."""
        while waiting:
            idle = [worker for worker in self._workers if worker.number is None]
            fitting = ((one, number) for one in idle for number in waiting if self._codes[number] == one.code)
            worker, number = next(fitting, (None, waiting[0]))
            if worker is None:
                if len(self._workers) >= workers and not idle:
                    return
                if len(self._workers) >= workers:
                    self._dismiss(idle[0])
                with stops_deferred():
                    worker = _Worker(*start(serve_cells, self._common), self._codes[number])
                    self._workers.append(worker)
            waiting.remove(number)
            worker.number, worker.since = number, time.monotonic()
            with contextlib.suppress(OSError):  # it has just died; noticed later
                worker.pipe.send((number, self._missing[number].task))

    def _outcome_of(self, worker: _Worker) -> Outcome | None:
        """Read a worker's message; None unless its cell ended."""
        content = b""
        with contextlib.suppress(EOFError, OSError):
            if worker.pipe.poll():  # a process forked by a policy may hold a dead one's pipe
                content = worker.pipe.recv_bytes(LONGEST_MESSAGE)
        if content == READY:
            worker.since = time.monotonic()
            return None
        outcome = Outcome.unpacked(content)
        if outcome is None:
            worker.process.join(_END_S)
            outcome = Outcome(error=_cause_of_death(worker), died=True)
        if outcome.died:
            self._dismiss(worker)
        return outcome

    def _too_late(self, worker: _Worker) -> Outcome | None:
        """Kill a worker whose cell exceeds its time."""
        most_s = self._common.limits.cell_s
        if most_s is None or time.monotonic() - worker.since <= most_s:
            return None
        self._dismiss(worker)
        return Outcome(error=f"it ran for longer than the {most_s:g} s that --timeout-per-cell allows, and was killed")

    def _tell(self) -> None:
        if time.monotonic() < self._shown_at + _POLL_S:
            return
        self._shown_at = time.monotonic()
        running = []
        for worker in self._busy:
            assert worker.number is not None
            worker.memory_mib = max(worker.memory_mib, memory_of(worker.process.pid or 0))
            running.append((self._missing[worker.number], *self._progress[worker.number].tolist()))
        self._listener.advanced([entry for entry in running if entry[1]])

    def _dismiss(self, worker: _Worker) -> None:
        """Kill a process: its finished cells are on disk, and third-party threads may still run in it."""
        self._workers.remove(worker)
        end(worker.process)
        worker.pipe.close()

    def close(self) -> None:
        """Kill all processes, and remove what their cells leave."""
        with stops_deferred():
            for worker in [*self._workers]:
                self._dismiss(worker)
            Store(self._common.folder).sweep()


def _cause_of_death(worker: _Worker) -> str:
    code = worker.process.exitcode
    perhaps = ", perhaps for lack of memory" if code == -signal.SIGKILL else ""
    held = f"; it held up to {worker.memory_mib} MiB" if worker.memory_mib else ""
    return f"its process {how_it_ended(code)}{perhaps}{held}"
