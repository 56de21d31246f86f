"""The canonical form of a value: equal values give equal text, whatever their objects.

A dataclass, named tuple or section is represented by its class and all compared fields, a path or field marked
`INPUT_FILE` by its content, and a plugin's class or function by its sources. A method `canonical` returns a substitute.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Set
from enum import Enum
from functools import lru_cache
from itertools import repeat
from operator import attrgetter
from pathlib import Path
from types import FunctionType
from typing import Any, cast, get_args, get_type_hints

import numpy as np
from pydantic import BaseModel

from simsched.keys import INPUT_FILE
from simsched.sources import content_of, plugin_code

#: Types whose `repr` is canonical; a float's has all digits.
_PLAIN = frozenset({type(None), bool, int, float, str, bytes})


def digest_of(value: Any) -> str:
    """Hash the canonical form of a value, in 64 hexadecimal digits.

    Raises `TypeError` for a value without one, and `InputError` for an unreadable input file.
    """
    found = hashlib.sha256()
    for piece in _listed(value) if type(value) in (tuple, list) else (canonical(value),):
        found.update(piece.encode())
    return found.hexdigest()


def canonical(value: Any) -> str:
    """Return a value's canonical form; raises as `digest_of` does."""
    kind = type(value)
    if kind in _PLAIN:
        return repr(value)
    if isinstance(value, type | FunctionType):
        return f"class {value.__qualname__} {plugin_code(cast('type[Any]', value)).digest}"
    if hasattr(value, "canonical"):
        return f"{kind.__qualname__}:{canonical(value.canonical())}"
    if isinstance(value, Path):
        return f"content {content_of(value)}"
    if isinstance(value, Enum):
        return f"{kind.__qualname__}.{value.name}"
    form = _form_of(cast("Hashable", kind))
    if form is not None:
        return _fields(form, value)
    if isinstance(value, tuple | list):
        return "".join(_listed(value))
    if isinstance(value, Mapping):
        return f"{{{','.join(sorted(f'{canonical(key)}:{canonical(one)}' for key, one in value.items()))}}}"
    if isinstance(value, Set):
        return f"<{','.join(sorted(map(canonical, value)))}>"
    if isinstance(value, np.generic):
        return canonical(value.item())
    if isinstance(value, np.ndarray):
        return f"array {canonical(value.tolist())}"
    raise TypeError(f"a value of {kind.__module__}.{kind.__qualname__} has no canonical form; make it a dataclass")


def canonical_rows(kind: type[Any], columns: Mapping[str, Iterable[Any]], rest: Mapping[str, Any]) -> Iterator[str]:
    """Yield the forms of values of a class that names no files, from columns of fields; other fields hold `rest`.

    Takes a quarter of the time of calling `canonical` for each.
    """
    form = _form_of(cast("Hashable", kind))
    assert form is not None
    told = [map(_told, columns[name]) if name in columns else repeat(_told(rest[name])) for name in form.names]
    for values in zip(*told, strict=False):
        yield f"{form.head}({', '.join(values)})"


def _listed(values: Iterable[Any]) -> Iterator[str]:
    """Yield the form of a list in pieces, since a million jobs would take a gigabyte."""
    before = "["
    for one in values:
        yield before + canonical(one)
        before = ","
    yield "[]" if before == "[" else "]"


@dataclasses.dataclass(frozen=True)
class _Form:
    """How to write the values of a class: its name, its fields, a getter of all, and those that name files."""

    head: str
    names: tuple[str, ...]
    read: Callable[[Any], tuple[Any, ...]]
    files: frozenset[int]


def _fields(form: _Form, value: Any) -> str:
    values = form.read(value)
    if form.files:
        values = tuple(
            Path(one) if place in form.files and one is not None else one for place, one in enumerate(values)
        )
    # One call per field would dominate the time for a million jobs.
    told = [repr(one) if type(one) in _PLAIN else canonical(one) for one in values]
    return f"{form.head}({', '.join(told)}{',' * (len(values) == 1)})"


def _told(value: Any) -> str:
    return repr(value) if type(value) in _PLAIN else canonical(value)


@lru_cache(maxsize=256)
def _form_of(kind: Any) -> _Form | None:
    if dataclasses.is_dataclass(kind):
        names: Iterable[str] = (one.name for one in dataclasses.fields(kind) if one.compare)
    elif issubclass(kind, BaseModel):
        names = kind.model_fields
    elif issubclass(kind, tuple) and hasattr(kind, "_fields"):
        names = kind._fields
    else:
        return None
    names = tuple(names)
    hints = get_type_hints(kind, include_extras=True)
    files = frozenset(place for place, name in enumerate(names) if INPUT_FILE in get_args(hints[name]))
    return _Form(f"{kind.__qualname__}({','.join(names)})", names, _reader(names), files)


def _reader(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)
