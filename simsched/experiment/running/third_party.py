"""Tells which code of a cell is third-party, and restores what such code changes in other modules."""

from __future__ import annotations

import sys
import warnings
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np

from simsched.agent import AGENTS
from simsched.experiment.task import Task
from simsched.plugins import Kind
from simsched.policy import POLICIES

#: A cell's third-party code: its policy and agents, each with the folder it is loaded from.
Code = tuple[tuple[str, str], ...]


def code_of(task: Task) -> Code:
    """Return a cell's third-party code, empty if all ships with simsched."""
    named = [(POLICIES, task.policy.name, task.policy.folder)]
    if task.agent is not None:
        named.append((AGENTS, task.agent.name, task.agent.folder))
    return tuple((name, str(folder)) for kind, name, folder in named if not _is_shipped(kind, name, tuple(sys.path)))


@lru_cache(maxsize=64)
def _is_shipped(kind: Kind, name: str, path: tuple[str, ...]) -> bool:
    """Return whether a name is simsched's, cached by search path."""
    return kind.is_shipped(name)


class Restored:
    """Restores what third-party code replaced when the block ends, so that its cell can be reported and written.

    This covers every function and class of the modules that were loaded at the first block of this process, the methods
    of simsched's classes, a lowered recursion limit, numpy's error handling, the warning filters and the tracer.
    """

    #: Whether anything was replaced in this process; code that replaces it on import does so only once.
    any_in_process = False

    def __init__(self) -> None:
        self._replaced: list[str] = []

    @property
    def said(self) -> str:
        """The end of a message that names what was replaced, empty if nothing was."""
        names = sorted(self._replaced)
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        return f"; its code had replaced {', '.join(names[:_MOST_NAMES])}{more}" if names else ""

    def __enter__(self) -> None:
        self._functions, self._recursion, self._tracer = _functions(), sys.getrecursionlimit(), sys.gettrace()
        self._errors, self._filters = np.geterr(), [*warnings.filters]

    def __exit__(self, *_: object) -> None:
        """Restore everything without calling anything that may have been replaced."""
        replaced = self._replaced
        for owner, kept in self._functions:
            now = owner.__dict__
            for name, value in kept.items():
                if now.get(name) is not value:
                    owner.__class__.__setattr__(owner, name, value)
                    replaced += [f"{owner.__name__}.{name}"]
        sys.settrace(self._tracer)
        if sys.getrecursionlimit() < self._recursion:
            sys.setrecursionlimit(self._recursion)
            replaced += ["the recursion limit"]
        np.seterr(**self._errors)
        warnings.filters[:] = self._filters  # type: ignore[index]
        if replaced:
            Restored.any_in_process = True


_MOST_NAMES = 8
_OWN = "simsched"


@lru_cache(maxsize=1)
def _functions() -> list[tuple[ModuleType | type, dict[str, Any]]]:
    """Return the functions and classes of all modules loaded so far, and the methods of simsched's classes."""
    owners: dict[ModuleType | type, None] = {}
    for module in list(sys.modules.values()):
        if type(module) is ModuleType:  # others create attributes on access
            owners[module] = None
            if module.__name__.partition(".")[0] == _OWN:
                owners |= dict.fromkeys(one for one in vars(module).values() if _is_own(one))
    return [(owner, {name: one for name, one in vars(owner).items() if _is_code(one)}) for owner in owners]


def _is_own(value: object) -> bool:
    return isinstance(value, type) and value.__module__.partition(".")[0] == _OWN


def _is_code(value: object) -> bool:
    return callable(value) or isinstance(value, property | classmethod | staticmethod)
