"""Runs work that calls third-party code in a separate process, which confines crashes and hangs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from pickle import UnpicklingError
from types import MappingProxyType
from typing import Any, TypeVar

from simsched.errors import InputError, input_error, listening, safe_text, said, tell
from simsched.experiment.running.worker import end, how_it_ended, start
from simsched.plugins import watched

#: The time limit in seconds for one step of third-party code: importing a module, creating or starting a policy.
LONGEST_S = 60.0
_POLL_S = 1.0
#: The kinds of messages from the process, each followed by a value.
_ENTERS, _LEAVES, _PROGRESS, _TOLD, _REFUSED, _RAISED, _DONE = range(7)

Result = TypeVar("Result")


def done_apart(
    work: Callable[..., Result],
    *arguments: object,
    whose: str,
    progress: Callable[[int, int], None] | None = None,
    limit_s: float | None = None,
) -> Result:
    """Return `work(*arguments, progress)`, a module-level function, called in a separate process.

    Raises `InputError` as the work does, or blaming `whose` code crashes, raises or exceeds `limit_s` or `LONGEST_S`.
    """
    process, pipe = start(_serve, work, arguments, str(Path.cwd()))
    most_s, since = limit_s or LONGEST_S, 0.0
    try:
        while True:
            if not pipe.poll(_POLL_S):
                if since and time.monotonic() - since > most_s:
                    message = f"its code did not return within {most_s:g} s while the experiment was checked"
                    raise input_error(whose, message, "make sure that importing it and creating the policy terminate")
                continue
            kind, value = pipe.recv()
            since = time.monotonic() if kind == _ENTERS else 0.0
            if kind == _PROGRESS and progress is not None:
                progress(*value)
            elif kind == _TOLD:
                tell(value.where, value.message, value.remedy, line=value.line)
            elif kind == _REFUSED:
                raise InputError(*value)
            elif kind == _RAISED:
                raise input_error(whose, f"its code raises {value} while the experiment is checked")
            elif kind == _DONE:
                return value  # type: ignore[no-any-return]
    except (EOFError, OSError, UnpicklingError) as error:
        process.join(_POLL_S)
        how = how_it_ended(process.exitcode)
        raise input_error(whose, f"the process that checks it {how}", "its code ends or breaks the process") from error
    finally:
        end(process)
        pipe.close()


def _serve(pipe: Connection, work: Callable[..., Any], arguments: tuple[object, ...], folder: str) -> None:
    """Do the work in the parent's current folder and report on it."""

    def say(kind: int, value: object = None) -> None:
        pipe.send((kind, value))

    os.chdir(folder)
    owner = os.getpid()
    try:
        with (
            listening(lambda problem: say(_TOLD, problem)),
            watched(lambda enters: say(_ENTERS if enters else _LEAVES)),
        ):
            found = work(*arguments, lambda *numbers: say(_PROGRESS, numbers))
        if os.getpid() == owner:  # third-party code may have forked
            say(_DONE, found)
    except InputError as error:
        say(_REFUSED, error.problems)
    except BaseException as error:  # noqa: BLE001 (third-party code may raise anything)
        say(_RAISED, safe_text(f"{type(error).__name__}: {said(error)}"))


def _read_only(values: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(values)  # the class cannot be pickled by name


ForkingPickler.register(MappingProxyType, lambda value: (_read_only, (dict(value),)))
