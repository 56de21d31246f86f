"""Runs cells on dask workers, which need the same version of simsched and path to the results."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from simsched.errors import input_error
from simsched.experiment.grid import GridCell
from simsched.experiment.running.cell import Outcome, run_to_outcome, say_nothing
from simsched.experiment.running.limits import Limits
from simsched.experiment.running.manifest import describe_environment
from simsched.experiment.task import Task
from simsched.sources import code

#: Cells sent ahead per worker thread; the rest wait here to relieve the scheduler.
_AHEAD = 3
_LEAST_AHEAD = 64
_LOOK_EVERY_S = 1.0
_LOOK_AGAIN_S = 0.1


class Watcher(Protocol):
    """Receives the number of workers."""

    def workers(self, number: int) -> None:
        """Receive the number of workers."""


def run_on_dask(
    address: str, missing: Sequence[GridCell], folder: Path, watcher: Watcher, limits: Limits
) -> Generator[tuple[GridCell, Outcome], None, None]:
    """Run cells on the scheduler at `address` and yield them as they finish.

    A lost worker's cells go to others; a cell that costs several workers fails. After a lost connection cells are sent
    again if a scheduler returns, else fail. Raises `InputError` if dask or the scheduler is missing.
    """
    try:
        from distributed import Client, as_completed
    except ImportError:
        remedy = "install it with pip install 'simsched[dask]'"
        raise input_error("--dask", "the package 'distributed' is not installed", remedy) from None
    try:
        client = Client(address, timeout="10s")
    except (OSError, ValueError, TimeoutError) as error:
        raise input_error("--dask", f"no dask scheduler answers at '{address}': {error}", "start one first") from None
    environment = describe_environment()
    waiting = list(reversed(missing))
    sent: dict[str, GridCell] = {}

    def send() -> Any:
        cell = waiting.pop()
        sent[cell.task.key] = cell
        return client.submit(
            _run, cell.task, folder.resolve(), environment, limits, code().digest, key=cell.task.key, pure=False
        )

    with client:
        threads = _threads(client)
        ahead = min(max(_AHEAD * sum(threads.values()), _LEAST_AHEAD), len(waiting))
        watcher.workers(len(threads))
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
                    if (now := len(_threads(client))) != known:
                        known = now
                        watcher.workers(now)
            yield cell, outcome
    for cell in (*sent.values(), *waiting):  # none, unless the scheduler is gone
        yield cell, Outcome(error=f"dask: the connection to the scheduler at '{address}' was lost")


def _connected_again(client: Any) -> bool:
    """Wait while the client looks for a lost scheduler; return whether it reconnected."""
    while client.status == "connecting":
        time.sleep(_LOOK_AGAIN_S)
    return bool(client.status == "running")


def _threads(client: Any) -> Mapping[str, int]:
    threads: Mapping[str, int] = client.nthreads()
    return threads


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


def _run(task: Task, folder: Path, environment: Mapping[str, Any], limits: Limits, same: str) -> Outcome:
    """Run a cell on a worker, which must have the sender's code."""
    if code().digest != same:
        return Outcome(error="this dask worker has another version of simsched; install the same one everywhere")
    report: Callable[[float, int], None] = say_nothing
    return run_to_outcome(task, folder, environment, report, limits)
