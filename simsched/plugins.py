"""Finding classes of strangers by name, and asking what they are made of: policies and agents.

A name is one of an entry-point group, or `package.module:Class`, or `path/to/file.py:Class`. What ships comes through
the same entry points as a stranger's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib
import importlib.util
import inspect
import sys
import typing
from collections.abc import Callable, Hashable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from traceback import extract_tb
from types import ModuleType, SimpleNamespace
from typing import Any, cast

from simsched.errors import input_error, nearest
from simsched.files import absolute

#: Stands for the default of a parameter that has none.
REQUIRED = inspect.Parameter.empty


@dataclass(frozen=True)
class Parameter:
    """A parameter of a plugin's constructor; `default` is `REQUIRED` where the user must give one."""

    name: str
    annotation: Any
    default: Any

    @property
    def required(self) -> bool:
        """Return whether an experiment must name the parameter."""
        return self.default is REQUIRED


@lru_cache(maxsize=8)
def _points(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Read the entry points of a group once for each search path: that takes milliseconds, and every cell asks."""
    return tuple(entry_points(group=group))


@dataclass(frozen=True)
class Kind:
    """A kind of plugin: what messages call it, its entry-point group, and what its classes must have.

    `essential` is the method without which a class is none at all, `members` are the others.
    """

    noun: str
    group: str
    essential: str
    members: tuple[str, ...]
    remedy: str

    def names(self) -> tuple[str, ...]:
        """List the names of all that are registered, sorted."""
        return tuple(sorted({point.name for point in entry_points(group=self.group)}))

    def load(self, name: str, *, folder: Path | None = None) -> type[Any]:
        """Find the class of a name.

        A relative `path/to/file.py:Class` is looked up in `folder` (the current one unless given). Raises `InputError`
        where nothing of that name exists, where it cannot be imported, and where it is not of this kind.
        """
        where = f"{self.noun} '{name}'"
        place, colon, attribute = name.rpartition(":")
        if not colon:
            return self._checked(where, self._registered(where, name))
        module = _module_of_file(where, Path(folder or ".", place)) if place.endswith(".py") else _module(where, place)
        if not hasattr(module, attribute):
            classes = (key for key, value in vars(module).items() if inspect.isclass(value))
            raise input_error(where, f"'{place}' has no class '{attribute}'", nearest(attribute, classes))
        return self._checked(where, getattr(module, attribute))

    def is_shipped(self, name: str) -> bool:
        """Return whether simsched itself registers a name, and nobody else does."""
        points = [point for point in _points(self.group, tuple(sys.path)) if point.name == name]
        return bool(points) and all(point.dist is not None and point.dist.name == "simsched" for point in points)

    def is_foreign(self, name: str) -> bool:
        """Return whether a name stands for somebody's code that does not ship with simsched; nothing is loaded."""
        known = any(point.name == name for point in _points(self.group, tuple(sys.path)))
        return ":" in name or (known and not self.is_shipped(name))

    def _registered(self, where: str, name: str) -> object:
        points = (point for point in _points(self.group, tuple(sys.path)) if point.name == name)
        found = sorted({point.value: point for point in points}.items())
        if not found:
            known = self.names()
            hint = (
                nearest(name, known)
                if known
                else f"no {self.noun} is registered; is simsched installed (pip install -e .)?"
            )
            raise input_error(where, f"there is no such {self.noun}", hint)
        if len(found) > 1:
            message = f"several packages register it: {', '.join(value for value, _ in found)}"
            raise input_error(where, message, "name the one you mean as package.module:Class")
        return _imported(where, found[0][1])

    def _checked(self, where: str, found: object) -> type[Any]:
        if not inspect.isclass(found) or not callable(getattr(found, self.essential, None)):
            raise input_error(where, f"this is no {self.noun}", self.remedy)
        missing = [member for member in self.members if not hasattr(found, member)]
        if missing:
            raise input_error(where, f"the class lacks {', '.join(missing)}", self.remedy)
        return found


def parameters(plugin: type[Any]) -> tuple[Parameter, ...]:
    """List the parameters of a constructor, which are the `params` of an experiment."""
    return _parameters(cast("Hashable", plugin))


@lru_cache(maxsize=64)
def _parameters(plugin: Any) -> tuple[Parameter, ...]:
    constructor = plugin.__init__
    if constructor.__name__ == "_no_init_or_replace_init":  # what Protocol puts where none is written
        return ()
    named = [
        parameter
        for parameter in inspect.signature(plugin).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    return tuple(Parameter(one.name, _type_of(plugin, one), _default_of(plugin, one)) for one in named)


def _type_of(plugin: type[Any], parameter: inspect.Parameter) -> Any:
    """Resolve an annotation; `Any` where there is none, or it names something that is not there at run time.

    The fields of a dataclass may come from a base class in another module, so the names of all of them count.
    """
    if parameter.annotation is inspect.Parameter.empty:
        return Any
    names: dict[str, Any] = {}
    for kind in reversed(plugin.__mro__):
        names |= vars(sys.modules[kind.__module__])
    holder = SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    try:
        return typing.get_type_hints(holder, names, include_extras=True)[parameter.name]
    except NameError:
        return Any


def _default_of(plugin: type[Any], parameter: inspect.Parameter) -> Any:
    """Return the default of a parameter, made anew where a dataclass makes it for each instance."""
    if dataclasses.is_dataclass(plugin):
        for field in dataclasses.fields(plugin):
            if field.name == parameter.name and field.default_factory is not dataclasses.MISSING:
                return field.default_factory()
    return parameter.default


def place_of(error: BaseException, plugin: type[Any]) -> str:
    """Return file and line of the last line of a class's own file that ran before an error; empty where none did."""
    try:
        own = inspect.getsourcefile(plugin)
    except (TypeError, OSError):
        own = None
    lines = [frame.lineno for frame in extract_tb(error.__traceback__) if own and frame.filename == own]
    return f"{own}:{lines[-1]}" if lines else ""


#: Who is told when a stranger's code is entered and left, if anybody.
_WATCHER: ContextVar[Callable[[bool], None] | None] = ContextVar("simsched watcher", default=None)


@contextlib.contextmanager
def watched(watcher: Callable[[bool], None]) -> Iterator[None]:
    """Tell a watcher whenever a stranger's code is entered (True) and left, for as long as the block lasts."""
    token = _WATCHER.set(watcher)
    try:
        yield
    finally:
        _WATCHER.reset(token)


@contextlib.contextmanager
def quiet_stdout() -> Iterator[None]:
    """Send to stderr what a stranger's code prints on stdout, which belongs to results; come back to this folder."""
    watcher = _WATCHER.get()
    with contextlib.redirect_stdout(sys.stderr), contextlib.chdir("."):
        if watcher is not None:
            watcher(True)
        try:
            yield
        finally:
            if watcher is not None:
                watcher(False)


def _imported(where: str, point: EntryPoint) -> object:
    try:
        with quiet_stdout():
            return point.load()
    except (ImportError, AttributeError) as error:
        raise input_error(where, f"'{point.value}' cannot be imported: {error}") from error


def _module(where: str, dotted: str) -> ModuleType:
    try:
        with quiet_stdout():
            return importlib.import_module(dotted)
    except (
        Exception,
        SystemExit,
        GeneratorExit,
    ) as error:  # a stranger's module may raise anything while it is imported
        raise input_error(where, f"'{dotted}' cannot be imported: {_said(error)}") from error


def _module_of_file(where: str, path: Path) -> ModuleType:
    path = absolute(path)
    if not path.is_file():
        raise input_error(where, f"there is no file '{path}'")
    alias = f"simsched_file_{hashlib.sha256(str(path).encode()).hexdigest()[:16]}"
    if alias in sys.modules:
        return sys.modules[alias]
    spec = importlib.util.spec_from_file_location(alias, path)
    if spec is None or spec.loader is None:
        raise input_error(where, f"'{path}' is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[alias] = module  # dataclasses and annotations look their module up there
    try:
        with quiet_stdout():
            spec.loader.exec_module(module)
    except (Exception, SystemExit, GeneratorExit) as error:  # a stranger's file may raise anything while it is imported
        del sys.modules[alias]
        raise input_error(where, f"'{path}' cannot be loaded: {_said(error)}") from error
    return module


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
