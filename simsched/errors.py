"""Errors that users can fix, each with place and remedy."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

#: Shorter fragments of a name match too much.
_LEAST_PART = 3
#: The most characters kept of foreign text.
_LONGEST = 20_000
#: The most lines listed of those with the same problem.
_MOST_LINES = 3


@dataclass(frozen=True)
class Problem:
    """One problem with the input: its place, message and remedy.

    `where` is a file, a key or a table's name; `line` is 1-based, 0 for none.
    """

    where: str
    message: str
    remedy: str = ""
    line: int = 0

    def __str__(self) -> str:
        place = f"{self.where}:{self.line}" if self.line else self.where
        text = f"{place}: {self.message}" if place else self.message
        return f"{text}; {self.remedy}" if self.remedy else text


class InputError(Exception):
    """Bad input; carries every problem found, not only the first."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


def input_error(where: object, message: str, remedy: str = "", *, line: int = 0) -> InputError:
    """Return an `InputError` with one problem."""
    return InputError(Problem(str(where), message, remedy, line))


class InputWarning(UserWarning):
    """Valid input that is not used."""


#: Receives notes on unused input instead of the user.
_LISTENER: ContextVar[Callable[[Problem], None] | None] = ContextVar("simsched listener", default=None)


@contextmanager
def listening(listener: Callable[[Problem], None]) -> Iterator[None]:
    """Send what is told during the block to a listener, also in a child process."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def tell(where: object, message: str, remedy: str = "", *, line: int = 0) -> None:
    """Report unused input once per process; child processes leave it to their parent.

    The command prints it on stderr; in Python it is an `InputWarning`.
    """
    from multiprocessing import parent_process  # slow to load, rarely needed

    listener, problem = _LISTENER.get(), Problem(str(where), message, remedy, line)
    if listener is not None:
        listener(problem)
    elif parent_process() is None:
        warnings.warn(str(problem), InputWarning, stacklevel=1)


def said(error: BaseException) -> str:
    """Return an error's text even if its own `__str__` fails."""
    try:
        return str(error)
    except BaseException as another:  # noqa: BLE001  # third-party code may raise anything
        return f"(its text cannot be made: __str__ raises {type(another).__name__})"


def safe_text(text: str) -> str:
    """Return foreign text made safe for files and terminals (`visible`) and cut if very long."""
    from simsched.outlets import visible  # rarely needed

    return visible(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text)} characters)")


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text."""
    return str(error).split("\n", 1)[0]


def nearest(name: str, known: Iterable[str]) -> str:
    """Suggest the known name meant, also by its first or last part, or list the known ones.

    Returns a remedy such as `did you mean 'tiresias'?`, for `Problem.remedy`.
    """
    names = sorted(known)
    parts = [one for one in names if len(name) >= _LEAST_PART and (one.startswith(name) or one.endswith(name))]
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6) or (parts if len(parts) == 1 else [])
    if close:
        return f"did you mean '{close[0]}'?"
    return f"known: {', '.join(names)}" if names else ""


def nearest_to_last(name: str, dotted: Iterable[str]) -> str:
    """Suggest the dotted key whose last part is meant, as in `did you mean 'workload.load'?`; "" if none is near."""
    keys = sorted(dotted, key=lambda key: (key.count("."), key))
    last = {key.rpartition(".")[2]: key for key in reversed(keys)}
    close = difflib.get_close_matches(name, last, n=1, cutoff=0.6)
    return f"did you mean '{last[close[0]]}'?" if close else "write a key with its section, as in 'workload.load'"


def and_alike(lines: Sequence[int], word: str = "line") -> str:
    """Say that a problem of the first line also stands in the others: `, and so in 39 more lines (3, 4, 5, ...)`."""
    rest = [str(line) for line in lines[1:]]
    if not rest:
        return ""
    shown = ", ".join(rest[:_MOST_LINES]) + (", ..." if len(rest) > _MOST_LINES else "")
    return f", and so in {len(rest):,} more {word}{'s' * (len(rest) > 1)} ({shown})"


def extra(name: str) -> str:
    """Return how to install the libraries of an extra: simsched is on no package index."""
    return f"pip install -e '.[{name}]' in a checkout, or pip install 'FILE.whl[{name}]' with the wheel"
