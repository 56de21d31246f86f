"""Errors that a user can mend, each naming the place and the remedy."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

#: A part of a name that is shorter could be of anything.
_LEAST_PART = 3
#: Characters of a stranger's text that are kept.
_LONGEST = 20_000


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with the input: where it stands, what it is, how to mend it.

    `where` is a file, a key or a table's name; `line` is 1-based and 0 where there is none.
    """

    where: str
    message: str
    remedy: str = ""
    line: int = 0

    def __str__(self) -> str:
        """Render as `where:line: message; remedy`."""
        place = f"{self.where}:{self.line}" if self.line else self.where
        text = f"{place}: {self.message}" if place else self.message
        return f"{text}; {self.remedy}" if self.remedy else text


class InputError(Exception):
    """The user's input is wrong; carries every problem found, not only the first."""

    def __init__(self, *problems: Problem) -> None:
        """Hold `problems` in the order in which they should be read."""
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


def input_error(where: object, message: str, remedy: str = "", *, line: int = 0) -> InputError:
    """Make an `InputError` of one problem."""
    return InputError(Problem(str(where), message, remedy, line))


class InputWarning(UserWarning):
    """Something in the user's input is not used, though nothing is wrong with it."""


#: Who is told instead of the user what of the input is not used, if anybody.
_LISTENER: ContextVar[Callable[[Problem], None] | None] = ContextVar("simsched listener", default=None)


@contextmanager
def listening(listener: Callable[[Problem], None]) -> Iterator[None]:
    """Have `tell` call a listener for as long as the block lasts, also in a process that another started."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def tell(where: object, message: str, remedy: str = "", *, line: int = 0) -> None:
    """Say, once in a process, what of the input is not used; a process that was started by another leaves it to that.

    The command prints it on stderr; in Python it is a warning of the class `InputWarning`.
    """
    from multiprocessing import parent_process  # slow to load, and seldom needed

    listener, problem = _LISTENER.get(), Problem(str(where), message, remedy, line)
    if listener is not None:
        listener(problem)
    elif parent_process() is None:
        warnings.warn(str(problem), InputWarning, stacklevel=1)


def said(error: BaseException) -> str:
    """Return what an error says, also where its own class cannot say it."""
    try:
        return str(error)
    except BaseException as another:  # noqa: BLE001  # the class may be a stranger's, and raise what it likes
        return f"(its text cannot be made: __str__ raises {type(another).__name__})"


def safe_text(text: str) -> str:
    """Return a stranger's text as it can be written to any file and terminal (`visible`), cut where it is very long."""
    from simsched.outlets import visible  # seldom needed

    return visible(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text)} characters)")


def first_line(error: BaseException) -> str:
    """Return what an error says in its first line."""
    return str(error).split("\n", 1)[0]


def nearest(name: str, known: Iterable[str]) -> str:
    """Say which known name was probably meant, or list the known ones.

    One that begins or ends with what was written is near, too. Returns a remedy such as `did you mean 'tiresias'?`, fit
    for `Problem.remedy`.
    """
    names = sorted(known)
    parts = [one for one in names if len(name) >= _LEAST_PART and (one.startswith(name) or one.endswith(name))]
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6) or (parts if len(parts) == 1 else [])
    if close:
        return f"did you mean '{close[0]}'?"
    return f"known: {', '.join(names)}" if names else ""
