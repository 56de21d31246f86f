"""A process that runs cells in sequence, confining third-party code.

A cell's end is known only from an `Outcome` over the pipe; a process that exits without one has lost its cell.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing import connection, forkserver, get_all_start_methods, get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess, SpawnProcess
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from simsched.errors import safe_text, said
from simsched.experiment.running.cell import Cancelled
from simsched.experiment.running.limits import Limits
from simsched.experiment.running.outcome import Outcome, failed, run_to_outcome
from simsched.experiment.task import Task
from simsched.outlets import SafeStream

#: A worker's first message: it has loaded, and its cells' time starts counting.
READY = b"ready"
#: The longest valid message, in bytes.
LONGEST_MESSAGE = 1 << 20

#: Longest socket path, and the characters Python appends to the temporary folder.
_SOCKET_PATH, _SOCKET_NAME = 100, len("/pymp-12345678/listener-12345678")
#: Modules preloaded by forked workers.
_LOADED = (__name__, "numpy.random", "threadpoolctl")
#: Attempts to start a worker, and the seconds between them.
_TRIES, _AGAIN_S = 50, 0.1
_SAFE_PATH = "PYTHONSAFEPATH"
#: Seconds a worker outlives the scheduler, to receive a pending stop.
_LAST_S = 0.1


_WORD = struct.Struct("=q")


class ProgressFile:
    """A memory-mapped file in which cells report progress and read whether to stop.

    It works across all process boundaries, needs no locks for single words, and survives killed processes. It holds the
    simulated second and finished jobs of each cell, and one stop flag for all.
    """

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)

    @staticmethod
    def make(path: Path, cells: int) -> ProgressFile:
        """Create a file for `cells` cells, all at 0."""
        path.write_bytes(bytes(_WORD.size * (1 + 2 * cells)))
        return ProgressFile(path)

    def write(self, cell: int, now_s: int, finished_jobs: int) -> None:
        """Write a cell's progress."""
        self._put(1 + 2 * cell, now_s)
        self._put(2 + 2 * cell, finished_jobs)

    def read(self, cell: int) -> tuple[int, int]:
        """Return the simulated second and finished jobs of a cell."""
        return self._get(1 + 2 * cell), self._get(2 + 2 * cell)

    def cancel(self) -> None:
        """Ask all cells to stop."""
        self._put(0, 1)

    @property
    def cancelled(self) -> bool:
        """Whether cells should stop."""
        return bool(self._get(0))

    def close(self) -> None:
        """Close the file."""
        self._map.close()

    def _put(self, word: int, value: int) -> None:
        _WORD.pack_into(self._map, word * _WORD.size, value)

    def _get(self, word: int) -> int:
        value: int = _WORD.unpack_from(self._map, word * _WORD.size)[0]
        return value


@dataclass(frozen=True)
class Surroundings:
    """What all cells of a run share; both paths are absolute."""

    folder: Path
    environment: Mapping[str, Any]
    progress_file: Path
    limits: Limits


def _method() -> str:
    """Return the start method: a fork server that has loaded simsched but no third-party code, where possible.

    Its socket lies in the temporary folder, whose path may be too long.
    """
    short = len(os.fsencode(tempfile.gettempdir())) + _SOCKET_NAME <= _SOCKET_PATH
    return "forkserver" if short and "forkserver" in get_all_start_methods() else "spawn"


def begin_loading() -> None:
    """Start preloading the fork server in the background."""
    if os.name == "posix":
        resource_tracker.ensure_running()  # unblocks the interrupts that are deferred below, when it starts
    if _method() != "forkserver":
        return
    with sigint_deferred(), _stranger_free():
        forkserver.set_forkserver_preload(list(_LOADED))
        forkserver.ensure_running()


def start(serve: Callable[..., None], *arguments: object) -> tuple[SpawnProcess | ForkServerProcess, Connection]:
    """Start a process that calls `serve` with its end of a pipe and `arguments`; returns it and the other end.

    It inherits environment and current folder, prints only on stderr, and runs no other user code.
    Raises what starting a process raises.
    """
    context = cast("Any", get_context(_method()))
    ours, theirs = context.Pipe()
    process = context.Process(target=_live, args=(serve, theirs, dict(os.environ), *arguments), daemon=True)
    for left in reversed(range(_TRIES)):
        begin_loading()
        try:
            with sigint_deferred(), _stranger_free():  # the process inherits the ignored interrupts
                process.start()
            break
        except (ConnectionError, EOFError):  # a policy has just killed the fork server
            if not left:
                raise
            time.sleep(_AGAIN_S)
        except KeyboardInterrupt:  # during the start, before the process is registered
            if process.pid is not None:
                process.kill()
            raise
    theirs.close()
    return process, ours


def end(process: SpawnProcess | ForkServerProcess) -> None:
    """Kill a process with all that it started and that stayed in its group, and wait for it."""
    process.kill()
    if process.pid is not None and hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):  # it had no group yet, or nothing is left of it
            os.killpg(process.pid, signal.SIGKILL)
    process.join()


def how_it_ended(code: int | None) -> str:
    """Describe how a silent process ended by its exit code, None if it still runs."""
    if code is None:
        return "closed the connection to the run"
    if code < 0:
        names = {int(one): one.name for one in signal.Signals}
        return f"was killed ({names.get(-code, f'signal {-code}')})"
    return f"ended with exit code {code}"


@contextlib.contextmanager
def _stranger_free() -> Iterator[None]:
    """Start processes without running the user's main script or importing from the current folder."""
    main, safe = sys.modules["__main__"], os.environ.get(_SAFE_PATH)
    sys.modules["__main__"] = ModuleType("__main__")  # a module without a file is not run again
    os.environ[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        if safe is None:
            del os.environ[_SAFE_PATH]
        else:
            os.environ[_SAFE_PATH] = safe


def _live(serve: Callable[..., None], pipe: Connection, variables: Mapping[str, str], *arguments: object) -> None:
    """Run the process's function, then exit at once, whatever else runs in it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    sys.stdout.flush()
    with contextlib.suppress(OSError):
        os.dup2(2, 1)  # stdout is for results
    with contextlib.suppress(AttributeError, OSError):
        os.setpgid(0, 0)  # what it starts ends with it
    sys.stderr = cast("Any", SafeStream(sys.stderr))
    threading.excepthook = _say_stray
    sys.unraisablehook = _say_stray
    os.environ.clear()
    os.environ.update(variables)
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_die_with, args=(parent.sentinel,), daemon=True).start()
    try:
        serve(pipe, *arguments)
    except (EOFError, OSError):  # the other end is gone, or a policy closed the pipe
        pass
    finally:
        os._exit(0)  # skips third-party threads and exit handlers


def _say_stray(raised: Any) -> None:
    """Report in one line an exception of a thread or finaliser, which ends neither the process nor its cell."""
    with contextlib.suppress(BaseException):  # such as lack of memory
        text = safe_text(said(raised.exc_value)).split("\n", 1)[0]
        sys.stderr.write(f"simsched: code outside of the simulation raises {raised.exc_type.__name__}: {text}\n")


def serve_cells(pipe: Connection, surroundings: Surroundings) -> None:
    """Run cells until the pipe closes."""
    home, owner = Path.cwd(), os.getpid()
    pipe.send_bytes(READY)
    while True:
        number, task = pipe.recv()
        os.chdir(home)
        outcome = _run(number, task, surroundings)
        if os.getpid() != owner:  # a policy forked the process; only the original answers
            return
        pipe.send_bytes(outcome.packed())


def _run(number: int, task: Task, surroundings: Surroundings) -> Outcome:
    progress = ProgressFile(surroundings.progress_file)

    def report(now_s: float, finished_jobs: int) -> None:
        progress.write(number, int(now_s), finished_jobs)
        if progress.cancelled:
            raise Cancelled

    try:
        return run_to_outcome(task, surroundings.folder, surroundings.environment, report, surroundings.limits)
    except Cancelled:
        return failed("cancelled")
    finally:
        progress.close()


@contextlib.contextmanager
def sigint_deferred() -> Iterator[None]:
    """Defer the user's interrupts, also from processes started in the block, until it ends."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "pthread_sigmask"):
        with sigint_ignored():
            yield
        return
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: heard.append(number))  # from another thread, too
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, before)
        if heard:
            signal.raise_signal(signal.SIGINT)


@contextlib.contextmanager
def sigint_ignored() -> Iterator[None]:
    """Ignore the user's interrupts during the block, if this thread may."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _die_with(sentinel: int) -> None:
    """Exit with the parent, even if it is killed."""
    connection.wait([sentinel])
    time.sleep(_LAST_S)
    with contextlib.suppress(AttributeError, OSError):
        os.killpg(os.getpid(), signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)
