"""Independent copies of a simulation.

A copy has its own state: all that simulation, policy, agents, recorder and processes refer to. It shares what is
frozen, and what belongs to the program: modules, classes with their attributes, functions with their defaults and
attributes, and NumPy's global generator.
"""

from __future__ import annotations

import gc
import pickle
from ast import literal_eval
from collections.abc import Iterable
from io import BytesIO
from itertools import count
from types import FunctionType, GeneratorType, MappingProxyType, ModuleType
from typing import Any, TypeVar

from simsched.engine.errors import EngineError
from simsched.engine.options import EngineOptions, FailureOptions
from simsched.engine.records import AllocationRecord, DecisionRecord, JobRecord, OutageRecord, ReasonRecord
from simsched.model import ApplicationFacts, Cluster, JobRequest, JobSpec, Site
from simsched.model.job import JobTruth
from simsched.model.outages import Outage
from simsched.policy.signals import FileSignal, JobSignal, ViewSignal

T = TypeVar("T")

#: Immutable types, which copies share.
_SHARED: frozenset[type] = frozenset(
    {
        ApplicationFacts, Cluster, EngineOptions, FailureOptions, JobRequest, JobSpec, JobTruth, Outage, Site,
        AllocationRecord, DecisionRecord, JobRecord, OutageRecord, ReasonRecord,
        FileSignal, JobSignal, ViewSignal, ModuleType,
    }
)  # fmt: skip
_REFUSED = "this simulation cannot be forked"


def copy_of(original: T, shared: Iterable[object]) -> T:
    """Copy an object graph except what is frozen, `shared` or the program's.

    Raises `EngineError` for what cannot be copied: generators, functions within functions that keep values, open files.
    """
    buffer = BytesIO()
    copier = _Copier(buffer, shared)
    try:
        copier.dump(original)
    except (TypeError, AttributeError, pickle.PicklingError, RecursionError) as error:
        raise EngineError(f"{_REFUSED}, since it holds what cannot be copied: {error}") from error
    buffer.seek(0)
    reader = pickle.Unpickler(buffer)
    reader.persistent_load = copier.kept.__getitem__  # type: ignore[method-assign]  # of shared objects, by index
    copied: T = reader.load()
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
        if kind is FunctionType:
            _refuse_state(obj)
        elif kind not in _SHARED and id(obj) not in self._shared and not isinstance(obj, type):
            return None
        self.kept.append(obj)
        return len(self.kept) - 1

    def reducer_override(self, obj: Any) -> Any:
        """Reduce what pickle cannot."""
        if type(obj) is GeneratorType:
            remedy = "write it as a class with `send` and `throw`, whose state is in its attributes"
            raise EngineError(f"{_REFUSED}: process '{obj.__name__}' is a generator; {remedy}")
        if type(obj) is MappingProxyType:
            return MappingProxyType, (gc.get_referents(obj)[0],)
        if type(obj) is count:  # not copyable from Python 3.14 on
            start = literal_eval(repr(obj).removeprefix("count"))
            return count, start if isinstance(start, tuple) else (start,)
        return NotImplemented


def _refuse_state(function: FunctionType) -> None:
    """Refuse a function within another that keeps values between calls; those of modules and classes are shared."""
    code, defaults = function.__code__, function.__defaults__ or ()
    with_default = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
    keeps = [*code.co_freevars, *with_default, *(function.__kwdefaults__ or ()), *vars(function)]
    if keeps and "<locals>" in function.__qualname__:
        remedy = "write it as a class with `__call__`, whose state is in its attributes"
        raise EngineError(f"{_REFUSED}: the function '{function.__qualname__}' keeps {', '.join(keeps)}; {remedy}")
