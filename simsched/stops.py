"""Signals that end a command, and the temporary files that it then leaves behind to nobody.

A signal raises `Stopped` at any place of the main thread, as Ctrl-C does, except in blocks that must be whole.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from _thread import interrupt_main
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

#: The signals that end a command, as far as the system has them.
STOPS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
#: Added to the number of a signal in the exit code.
_CODE = 128
#: Seconds from a stop to the end of a command, whatever else it does.
_LONGEST_S = 2.5
_SOON_S = 0.01

_heard: list[int] = []
_ending: list[int] = []
_deferring = False
_temporary: set[Path] = set()


class Stopped(KeyboardInterrupt):
    """A signal tells the command to end; its number is the argument."""


def exit_code_of(error: BaseException) -> int:
    """Return the exit code after the first stop, which a second or a library's own error may replace; 0 without one."""
    if _ending:
        return _CODE + _ending[0]
    if isinstance(error, KeyboardInterrupt):
        return _CODE + (error.args[0] if isinstance(error, Stopped) else signal.SIGINT)
    return 0


def end_at_stops() -> None:
    """Let stops raise `Stopped`, unless the command was started to ignore them, and end the process soon after one.

    A shell ignores SIGINT for what it starts in the background, and nohup SIGHUP.
    """
    with suppress(ValueError):  # not the main thread
        for number in STOPS:
            if number == signal.SIGTERM or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, _end)
        sys.unraisablehook = partial(_stop_again, sys.unraisablehook)
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        threading.Thread(target=_end_after, args=(reading,), daemon=True).start()


def ignore_stops() -> None:
    """Ignore further stops, as the command is ending."""
    for number in STOPS:
        signal.signal(number, signal.SIG_IGN)


def _end(number: int, frame: object) -> None:
    _ending.append(number)
    _stop(number, frame)


def _stop_again(usual: Callable[[Any], object], lost: Any) -> None:
    """Deliver once more, soon, a stop that came during a finaliser, where no error can be raised."""
    if isinstance(lost.exc_value, Stopped):
        threading.Timer(_SOON_S, interrupt_main, lost.exc_value.args).start()
    else:
        usual(lost)


def _stop(number: int, _: object) -> None:
    if not _deferring:
        raise Stopped(number)
    _heard.append(number)


def _end_after(reading: int) -> None:
    """End the process some time after a stop, which code of libraries, policies and finalisers may lose or hold up."""
    while (number := os.read(reading, 1)[0]) not in STOPS:
        pass
    time.sleep(_LONGEST_S)
    with suppress(BaseException):
        _remove_all()
        sys.stderr.write("simsched: interrupted; finished work is kept\n")
    os._exit(_CODE + number)


@contextmanager
def stops_deferred() -> Iterator[None]:
    """Defer stops, also of processes started in the block, until it ends; other threads than the main one get none."""
    global _deferring
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    outer, mask, handler = _deferring, _block([]), signal.getsignal(signal.SIGINT)
    ours = handler is signal.default_int_handler  # in a program that calls simsched
    try:
        _deferring = True
        if ours:
            signal.signal(signal.SIGINT, _stop)
        _block(STOPS)
        yield
    finally:
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        _deferring = outer
        if ours:
            signal.signal(signal.SIGINT, handler)
        if _heard and not outer:
            number = _heard[0]
            _heard.clear()
            raise Stopped(number)


def _block(signals: Any) -> set[Any]:
    """Block signals where the system can; returns what was blocked."""
    return signal.pthread_sigmask(signal.SIG_BLOCK, signals) if hasattr(signal, "pthread_sigmask") else set()


def unblock_stops() -> None:
    """Unblock the stops that a process inherits from a block that defers them."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)


def remove_at_end(path: Path) -> None:
    """Remove a temporary file or folder when this process ends, if it still exists."""
    _temporary.add(path)


@contextmanager
def removed_after(path: Path) -> Iterator[Path]:
    """Yield the path of a temporary file or folder, which is removed after the block, whenever a stop comes."""
    _temporary.add(path)
    try:
        yield path
    finally:
        with stops_deferred():
            _remove(path)
            _temporary.discard(path)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield an empty temporary folder, which is removed after the block."""
    with removed_after(scratch_path()) as path:
        path.mkdir(mode=0o700)
        yield path


def scratch_path() -> Path:
    """Return a path in the temporary folder that nothing has."""
    import tempfile  # takes a moment

    return Path(tempfile.gettempdir()).resolve() / f"simsched-{os.urandom(8).hex()}"


def _remove(path: Path) -> None:
    import shutil  # takes a moment

    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _remove_all() -> None:
    for path in tuple(_temporary):
        _remove(path)


atexit.register(_remove_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_temporary.clear)  # they are the parent's
