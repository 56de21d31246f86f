"""Independent copies of a simulation."""

from __future__ import annotations

import gc
import pickle
from ast import literal_eval
from collections.abc import Iterable
from io import BytesIO
from itertools import count
from types import CellType, FunctionType, MappingProxyType, ModuleType
from typing import Any, TypeVar

from simsched.engine.errors import EngineError
from simsched.engine.options import EngineOptions, FailureOptions
from simsched.engine.records import AllocationRecord, DecisionRecord, JobRecord, OutageRecord, ReasonRecord
from simsched.model import ApplicationFacts, Cluster, JobRequest, JobSpec, JobTruth, Outage, Site
from simsched.policy import FileSignal, JobSignal, ViewSignal

T = TypeVar("T")


class _Kept:
    """Marks a function to copy."""

    def __init__(self, function: FunctionType) -> None:
        self.function = function


#: Immutable types, which copies share.
_SHARED: frozenset[type] = frozenset(
    {
        ApplicationFacts, Cluster, EngineOptions, FailureOptions, JobRequest, JobSpec, JobTruth, Outage, Site,
        AllocationRecord, DecisionRecord, JobRecord, OutageRecord, ReasonRecord,
        FileSignal, JobSignal, ViewSignal, ModuleType, _Kept,
    }
)  # fmt: skip


def copy_of(original: T, shared: Iterable[object]) -> T:
    """Copy an object graph except what is frozen or `shared`, and closures with their captured variables.

    Raises `EngineError` for what cannot be copied, such as an open file.
    """
    buffer = BytesIO()
    copier = _Copier(buffer, shared)
    try:
        copier.dump(original)
    except (TypeError, AttributeError, pickle.PicklingError, RecursionError) as error:
        raise EngineError(f"this simulation cannot be forked, since it holds what cannot be copied: {error}") from error
    buffer.seek(0)
    copied: T = _Reader(buffer, copier.kept).load()
    return copied


class _Copier(pickle.Pickler):
    """Pickles an object, keeping shared objects aside."""

    def __init__(self, file: BytesIO, shared: Iterable[object]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.kept: list[object] = []
        self._shared = {id(one) for one in shared}

    def persistent_id(self, obj: Any) -> int | None:
        """Return the index of a shared object, None for others."""
        kind = type(obj)
        if kind in _SHARED or id(obj) in self._shared or isinstance(obj, type) or (kind is FunctionType and _bare(obj)):
            self.kept.append(obj)
            return len(self.kept) - 1
        return None

    def reducer_override(self, obj: Any) -> Any:
        """Reduce what pickle cannot."""
        if type(obj) is FunctionType:
            return _function, (_Kept(obj), obj.__defaults__, obj.__closure__)
        if type(obj) is CellType:
            return CellType, (), _contents(obj), None, None, _fill
        if type(obj) is MappingProxyType:
            return MappingProxyType, (gc.get_referents(obj)[0],)
        if type(obj) is count:  # not copyable from Python 3.14 on
            start = literal_eval(repr(obj).removeprefix("count"))
            return count, start if isinstance(start, tuple) else (start,)
        return NotImplemented


class _Reader(pickle.Unpickler):
    """Unpickles what a `_Copier` wrote."""

    def __init__(self, file: BytesIO, kept: list[object]) -> None:
        super().__init__(file)
        self._kept = kept

    def persistent_load(self, pid: int) -> object:
        """Return the shared object at an index."""
        return self._kept[pid]


def _bare(function: FunctionType) -> bool:
    """Return whether a function has no state: no closure and no defaults."""
    return function.__closure__ is None and not (function.__defaults__ and "<locals>" in function.__qualname__)


def _function(kept: _Kept, defaults: tuple[Any, ...] | None, closure: tuple[CellType, ...] | None) -> FunctionType:
    original = kept.function
    twin = FunctionType(original.__code__, original.__globals__, original.__name__, defaults, closure)
    twin.__kwdefaults__, twin.__qualname__ = original.__kwdefaults__, original.__qualname__
    return twin


def _contents(cell: CellType) -> tuple[object] | None:
    try:
        return (cell.cell_contents,)
    except ValueError:  # an empty cell
        return None


def _fill(cell: CellType, contents: tuple[object]) -> None:
    (cell.cell_contents,) = contents
