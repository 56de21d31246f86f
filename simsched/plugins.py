"""Loads and inspects plugins by name: policies, agents and processes, shipped and third-party alike.

A name is an entry point's, `package.module:Class` or `path/to/file.py:Class`.
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
from functools import lru_cache, partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from traceback import extract_tb
from types import ModuleType, SimpleNamespace
from typing import Any, TypeVar, cast

from simsched.errors import InputError, input_error, nearest
from simsched.files import absolute

#: Marks a parameter without default.
REQUIRED = inspect.Parameter.empty

_Loaded = TypeVar("_Loaded")


@dataclass(frozen=True)
class Parameter:
    """A parameter of a plugin's constructor; `default` is `REQUIRED` if the user must give one."""

    name: str
    annotation: Any
    default: Any

    @property
    def required(self) -> bool:
        """Return whether an experiment must set the parameter."""
        return self.default is REQUIRED


@lru_cache(maxsize=8)
def _points(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Read a group's entry points once per search path: it takes milliseconds for every cell."""
    return tuple(entry_points(group=group))


@dataclass(frozen=True)
class Kind:
    """A kind of plugin: its name in messages, its entry-point group, and its classes' members.

    A class needs the method `essential` to count as one at all, and the other `members`. With `functions`, a function
    with `yield` is one too.
    """

    noun: str
    group: str
    essential: str
    members: tuple[str, ...]
    remedy: str
    functions: bool = False

    def names(self) -> tuple[str, ...]:
        """List the registered names, sorted."""
        return tuple(sorted({point.name for point in entry_points(group=self.group)}))

    def load(self, name: str, *, folder: Path | None = None) -> type[Any]:
        """Load a class, or a function that acts as one, by name.

        A relative `path/to/file.py:Class` counts from `folder` (default: the current one). Raises
        `InputError` for an unknown name, a failing import, or a class of another kind.
        """
        where = f"{self.noun} '{name}'"
        place, colon, attribute = name.rpartition(":")
        if not colon:
            return self._checked(where, self._registered(where, name))
        if place.endswith(".py"):
            module = _module_of_file(where, Path(folder or ".", place))
        else:
            module = _loaded(where, place, partial(importlib.import_module, place))
        if not hasattr(module, attribute):
            fitting = (key for key, value in vars(module).items() if self._fits(value))
            raise input_error(where, f"'{place}' has no {self.noun} '{attribute}'", nearest(attribute, fitting))
        return self._checked(where, getattr(module, attribute))

    def is_shipped(self, name: str) -> bool:
        """Return whether only simsched registers a name."""
        points = [point for point in _points(self.group, tuple(sys.path)) if point.name == name]
        return bool(points) and all(point.dist is not None and point.dist.name == "simsched" for point in points)

    def is_foreign(self, name: str) -> bool:
        """Return whether a name refers to third-party code, without loading it."""
        known = any(point.name == name for point in _points(self.group, tuple(sys.path)))
        return ":" in name or (known and not self.is_shipped(name))

    def module_of(self, name: str) -> str:
        """Return the module that registers a name, "" for an unknown one."""
        return next((point.module for point in _points(self.group, tuple(sys.path)) if point.name == name), "")

    def _registered(self, where: str, name: str) -> object:
        points = (point for point in _points(self.group, tuple(sys.path)) if point.name == name)
        found = sorted({point.value: point for point in points}.items())
        if not found:
            known = self.names()
            hint = nearest(name, known) or "name it as path/to/file.py:NAME or package.module:NAME"
            raise input_error(where, f"there is no such {self.noun}", hint)
        if len(found) > 1:
            message = f"several packages register it: {', '.join(value for value, _ in found)}"
            raise input_error(where, message, "name the one you mean as package.module:Class")
        value, point = found[0]
        return _loaded(where, value, point.load)

    def _fits(self, found: object) -> bool:
        is_class = inspect.isclass(found) and callable(getattr(found, self.essential, None))
        return is_class or (self.functions and inspect.isgeneratorfunction(found))

    def _checked(self, where: str, found: Any) -> type[Any]:
        if not self._fits(found):
            raise input_error(where, f"this is no {self.noun}", self.remedy)
        missing = [member for member in self.members if inspect.isclass(found) and not hasattr(found, member)]
        if missing:
            raise input_error(where, f"the class lacks {', '.join(missing)}", self.remedy)
        return cast("type[Any]", found)


def is_process(plugin: object) -> bool:
    """Return whether a plugin is a process, whose first argument, its site, is no parameter of an experiment."""
    return inspect.isgeneratorfunction(plugin) or (inspect.isclass(plugin) and hasattr(plugin, "throw"))


def bases_of(plugin: type[Any]) -> tuple[type[Any], ...]:
    """Return a class and its bases, in Python's order; a function alone."""
    return getattr(plugin, "__mro__", (plugin,))


def parameters(plugin: type[Any]) -> tuple[Parameter, ...]:
    """List a constructor's parameters, the `params` of an experiment."""
    return _parameters(cast("Hashable", plugin))


@lru_cache(maxsize=64)
def _parameters(plugin: Any) -> tuple[Parameter, ...]:
    constructor = plugin.__init__
    if constructor.__name__ == "_no_init_or_replace_init":  # Protocol's placeholder
        return ()
    named = [
        parameter
        for parameter in list(inspect.signature(plugin).parameters.values())[is_process(plugin) :]
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    return tuple(Parameter(one.name, _type_of(plugin, one), _default_of(plugin, one)) for one in named)


def _type_of(plugin: type[Any], parameter: inspect.Parameter) -> Any:
    """Resolve an annotation, `Any` if it is missing or unavailable at run time.

    Considers the modules of all base classes, which may declare fields of a dataclass.
    """
    if parameter.annotation is inspect.Parameter.empty:
        return Any
    names: dict[str, Any] = {}
    for kind in reversed(bases_of(plugin)):
        names |= vars(sys.modules[kind.__module__])
    holder = SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    try:
        return typing.get_type_hints(holder, names, include_extras=True)[parameter.name]
    except NameError:
        return Any


def _default_of(plugin: type[Any], parameter: inspect.Parameter) -> Any:
    """Return a parameter's default, a new one where a dataclass has a factory."""
    if dataclasses.is_dataclass(plugin):
        for field in dataclasses.fields(plugin):
            if field.name == parameter.name and field.default_factory is not dataclasses.MISSING:
                return field.default_factory()
    return parameter.default


def place_of(error: BaseException, plugin: type[Any]) -> str:
    """Return file and line of the last line in a class's own file that ran before an error, empty for none."""
    try:
        own = inspect.getsourcefile(plugin)
    except (TypeError, OSError):
        own = None
    lines = [frame.lineno for frame in extract_tb(error.__traceback__) if own and frame.filename == own]
    return f"{own}:{lines[-1]}" if lines else ""


#: Notified on entering and leaving third-party code.
_WATCHER: ContextVar[Callable[[bool], None] | None] = ContextVar("simsched watcher", default=None)


@contextlib.contextmanager
def watched(watcher: Callable[[bool], None]) -> Iterator[None]:
    """Notify a watcher on entering (True) and leaving third-party code during the block."""
    token = _WATCHER.set(watcher)
    try:
        yield
    finally:
        _WATCHER.reset(token)


@contextlib.contextmanager
def quiet_stdout() -> Iterator[None]:
    """Redirect third-party prints on stdout, which belongs to results, to stderr; restore the current folder."""
    watcher = _WATCHER.get()
    with contextlib.redirect_stdout(sys.stderr), contextlib.chdir("."):
        if watcher is not None:
            watcher(True)
        try:
            yield
        finally:
            if watcher is not None:
                watcher(False)


def _loaded(where: str, name: object, load: Callable[[], _Loaded]) -> _Loaded:
    """Load third-party code, which may raise anything."""
    try:
        with quiet_stdout():
            return load()
    except (Exception, SystemExit, GeneratorExit) as error:
        message = f"'{name}' cannot be loaded: {type(error).__name__}: {error}"
        raise input_error(where, message) from error


def _module_of_file(where: str, path: Path) -> ModuleType:
    path = absolute(path)
    if not path.is_file():
        remedy = (
            "a relative path counts from the file that names it; replays (tests/validation) run from a checkout only"
        )
        raise input_error(where, f"there is no file '{path}'", remedy)
    alias = f"simsched_file_{hashlib.sha256(str(path).encode()).hexdigest()[:16]}"
    if alias in sys.modules:
        return sys.modules[alias]
    spec = importlib.util.spec_from_file_location(alias, path)
    if spec is None or spec.loader is None:
        raise input_error(where, f"'{path}' is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[alias] = module  # dataclasses and annotations look up their module here
    try:
        _loaded(where, path, partial(spec.loader.exec_module, module))
    except InputError:
        del sys.modules[alias]
        raise
    return module
