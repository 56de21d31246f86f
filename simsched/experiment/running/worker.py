"""A process that runs cells in sequence, confining third-party code.

A cell's end is known only from an `Outcome` over the pipe; a process that exits without one has lost its cell.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing import connection, forkserver, get_all_start_methods, get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess, SpawnProcess
from multiprocessing.util import get_temp_dir
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from simsched.errors import safe_text, said
from simsched.experiment.running.cell import Outcome, describe_environment, run_to_outcome
from simsched.experiment.running.limits import Limits
from simsched.experiment.task import Task
from simsched.outlets import SafeStream
from simsched.stops import remove_at_end, scratch_path, stops_deferred, unblock_stops

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


@dataclass(frozen=True)
class Surroundings:
    """What all cells of a run share; both paths are absolute.

    `scratch` is for temporary files, also of policies; a file in it holds the simulated second and the finished
    jobs of each cell.
    """

    folder: Path
    scratch: Path
    limits: Limits
    cells: int

    def progress(self, mode: Literal["r+", "w+"]) -> npt.NDArray[np.int64]:
        """Open the progress of the cells, which outlives killed processes and needs no locks for single numbers."""
        return np.memmap(self.scratch / "progress", np.int64, mode, shape=(self.cells, 2))


def _method() -> str:
    """Return the start method: a fork server that has loaded simsched but no third-party code, where possible.

    Its socket lies in the temporary folder, whose path may be too long.
    """
    short = len(os.fsencode(tempfile.gettempdir())) + _SOCKET_NAME <= _SOCKET_PATH
    return "forkserver" if short and "forkserver" in get_all_start_methods() else "spawn"


def begin_loading() -> None:
    """Start preloading the fork server in the background."""
    with stops_deferred():
        remove_at_end(Path(get_temp_dir()))
        if os.name == "posix":
            resource_tracker.ensure_running()  # unblocks, when it starts, the signals that are blocked below
    if _method() != "forkserver":
        return
    with stops_deferred(), _stranger_free():
        forkserver.set_forkserver_preload(list(_LOADED))
        forkserver.ensure_running()


def start(serve: Callable[..., None], *arguments: object) -> tuple[SpawnProcess | ForkServerProcess, Connection]:
    """Start a process that calls `serve` with its end of a pipe and `arguments`; returns it and the other end.

    It inherits environment and current folder, prints only on stderr, and runs no other user code.
    Raises what starting a process raises.
    """
    context = cast("Any", get_context(_method()))
    ours, theirs = context.Pipe()
    scratch = scratch_path()  # of the process; what it leaves there goes when this one ends
    remove_at_end(scratch)
    scratch.mkdir(mode=0o700)
    variables = {**os.environ, "TMPDIR": str(scratch)}
    process = context.Process(target=_live, args=(serve, theirs, variables, *arguments), daemon=True)
    for left in reversed(range(_TRIES)):
        begin_loading()
        try:
            with stops_deferred(), _stranger_free():
                process.start()
            break
        except (ConnectionError, EOFError):  # a policy has just killed the fork server
            if not left:
                raise
            time.sleep(_AGAIN_S)
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
    unblock_stops()
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
    tempfile.tempdir = variables["TMPDIR"]
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
    tempfile.tempdir = os.environ["TMPDIR"] = str(surroundings.scratch)
    progress = surroundings.progress("r+")
    describe_environment()  # before any code of others runs here
    pipe.send_bytes(READY)
    while True:
        number, task = pipe.recv()
        os.chdir(home)
        outcome = _run(number, task, surroundings, progress)
        if os.getpid() != owner:  # a policy forked the process; only the original answers
            return
        pipe.send_bytes(outcome.packed())


def _run(number: int, task: Task, surroundings: Surroundings, progress: npt.NDArray[np.int64]) -> Outcome:
    def report(now_s: float, finished_jobs: int) -> None:
        progress[number] = now_s, finished_jobs

    return run_to_outcome(task, surroundings.folder, report, surroundings.limits)


def _die_with(sentinel: int) -> None:
    """Exit with the parent, even if it is killed."""
    connection.wait([sentinel])
    time.sleep(_LAST_S)
    with contextlib.suppress(AttributeError, OSError):
        os.killpg(os.getpid(), signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)
