"""Finding policies by name, and asking what they are made of.

A name is one of the entry-point group `simsched.policies`, or `package.module:Class`, or `path/to/file.py:Class`. The
shipped policies come through the same entry points as a stranger's.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import importlib.util
import inspect
import sys
import typing
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

from simsched.errors import input_error, nearest
from simsched.policy.contract import Policy

GROUP = "simsched.policies"

#: Stands for the default of a parameter that has none.
REQUIRED = inspect.Parameter.empty


@dataclass(frozen=True)
class PolicyParameter:
    """A parameter of a policy's constructor; `default` is `REQUIRED` where the user must give one."""

    name: str
    annotation: Any
    default: Any

    @property
    def required(self) -> bool:
        """Tell whether an experiment must name the parameter."""
        return self.default is REQUIRED


def names() -> tuple[str, ...]:
    """List the names of all registered policies, sorted."""
    return tuple(sorted({point.name for point in entry_points(group=GROUP)}))


def load(name: str, *, folder: Path | None = None) -> type[Policy]:
    """Find the policy class of a name.

    A relative `path/to/file.py:Class` is looked up in `folder` (the current one unless given). Raises `InputError`
    where nothing of that name exists, where it cannot be imported, and where it is no policy.
    """
    place, colon, attribute = name.rpartition(":")
    if not colon:
        return _checked(name, _registered(name))
    module = _module_of_file(name, Path(folder or ".", place)) if place.endswith(".py") else _module(name, place)
    if not hasattr(module, attribute):
        classes = (key for key, value in vars(module).items() if inspect.isclass(value))
        raise input_error(f"policy '{name}'", f"'{place}' has no class '{attribute}'", nearest(attribute, classes))
    return _checked(name, getattr(module, attribute))


def parameters(policy: type[Policy]) -> tuple[PolicyParameter, ...]:
    """List the parameters of a policy's constructor, which are the `params` of an experiment."""
    constructor = policy.__init__
    if constructor.__name__ == "_no_init_or_replace_init":  # what Protocol puts where none is written
        return ()
    named = [
        parameter
        for parameter in inspect.signature(policy).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    return tuple(PolicyParameter(one.name, _type_of(policy, one), _default_of(policy, one)) for one in named)


def _type_of(policy: type[Policy], parameter: inspect.Parameter) -> Any:
    """Resolve an annotation; `Any` where there is none, or it names something that is not there at run time.

    The fields of a dataclass may come from a base class in another module, so the names of all of them count.
    """
    if parameter.annotation is inspect.Parameter.empty:
        return Any
    names: dict[str, Any] = {}
    for kind in reversed(policy.__mro__):
        names |= vars(sys.modules[kind.__module__])
    holder = SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    try:
        return typing.get_type_hints(holder, names, include_extras=True)[parameter.name]
    except NameError:
        return Any


def _default_of(policy: type[Policy], parameter: inspect.Parameter) -> Any:
    """Give the default of a parameter, made anew where a dataclass makes it for each instance."""
    if dataclasses.is_dataclass(policy):
        for field in dataclasses.fields(policy):
            if field.name == parameter.name and field.default_factory is not dataclasses.MISSING:
                return field.default_factory()
    return parameter.default


def source_hash(policy: type[Policy]) -> str:
    """Hash the source of a policy: its file or, for a policy that is a folder, all Python files in it.

    Returns 64 hexadecimal digits; helper modules outside the policy's own folder are not part of it.
    """
    digest = hashlib.sha256()
    for path in _source_files(policy):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _registered(name: str) -> object:
    found = sorted({point.value: point for point in entry_points(group=GROUP, name=name)}.items())
    if not found:
        known = names()
        hint = nearest(name, known) if known else "no policy is registered; is simsched installed (pip install -e .)?"
        raise input_error(f"policy '{name}'", "there is no such policy", hint)
    if len(found) > 1:
        message = f"several packages register it: {', '.join(value for value, _ in found)}"
        raise input_error(f"policy '{name}'", message, "name the one you mean as package.module:Class")
    return _imported(name, found[0][1])


def _imported(name: str, point: EntryPoint) -> object:
    try:
        return point.load()
    except (ImportError, AttributeError) as error:
        raise input_error(f"policy '{name}'", f"'{point.value}' cannot be imported: {error}") from error


def _module(name: str, dotted: str) -> ModuleType:
    try:
        return importlib.import_module(dotted)
    except Exception as error:  # a stranger's module may raise anything while it is imported
        raise input_error(f"policy '{name}'", f"'{dotted}' cannot be imported: {_said(error)}") from error


def _module_of_file(name: str, path: Path) -> ModuleType:
    path = path.resolve()
    if not path.is_file():
        raise input_error(f"policy '{name}'", f"there is no file '{path}'")
    alias = f"simsched_policy_file_{hashlib.sha256(str(path).encode()).hexdigest()[:16]}"
    if alias in sys.modules:
        return sys.modules[alias]
    spec = importlib.util.spec_from_file_location(alias, path)
    if spec is None or spec.loader is None:
        raise input_error(f"policy '{name}'", f"'{path}' is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[alias] = module  # dataclasses and annotations look their module up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # a stranger's file may raise anything while it is imported
        del sys.modules[alias]
        raise input_error(f"policy '{name}'", f"'{path}' cannot be loaded: {_said(error)}") from error
    return module


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _checked(name: str, found: object) -> type[Policy]:
    if not inspect.isclass(found) or not callable(getattr(found, "decide", None)):
        raise input_error(
            f"policy '{name}'", "this is no policy", "a policy is a class with a method 'decide(view, rng)'"
        )
    missing = [member for member in ("name", "needs", "agent", "triggers") if not hasattr(found, member)]
    if missing:
        remedy = "subclass simsched.policy.Policy, and give the class a 'name'"
        raise input_error(f"policy '{name}'", f"the class lacks {', '.join(missing)}", remedy)
    return cast("type[Policy]", found)


def _source_files(policy: type[Policy]) -> list[Path]:
    home = _home(policy)
    path = Path(inspect.getsourcefile(home) or "")
    if path.name != "__init__.py":
        return [path]
    return sorted(path.parent.rglob("*.py"))


def _home(policy: type[Policy]) -> ModuleType:
    """Find the outermost package that shows the class under its name; a policy that is a folder lives there."""
    home = sys.modules[policy.__module__]
    dotted = policy.__module__
    while "." in dotted:
        dotted = dotted.rpartition(".")[0]
        package = sys.modules.get(dotted)
        if package is not None and getattr(package, policy.__name__, None) is policy:
            home = package
    return home
