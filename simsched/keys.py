"""Declarations of experiment keys on dataclass fields: default, range and meaning.

The file's reader derives its checks and JSON Schema from them; `problems_with` checks options made in Python.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, get_args, get_type_hints

from simsched.errors import Problem, nearest

#: Marks a parameter that names an input file, as in `pool_path: Annotated[str | None, INPUT_FILE] = None`. Experiments
#: resolve it against their own folder, and its content counts towards the cell's key.
INPUT_FILE: Final = "simsched: input file"

#: Marks a parameter that may be infinite, as in `patience_s: Annotated[float, INFINITE] = math.inf`.
INFINITE: Final = "simsched: may be infinite"

#: The longest time of any kind, in seconds: about 300 years.
MOST_SECONDS = 10_000_000_000

_BOUNDS = MappingProxyType(
    {
        "ge": (operator.ge, "at least"),
        "gt": (operator.gt, "more than"),
        "le": (operator.le, "at most"),
        "lt": (operator.lt, "less than"),
    }
)


def key(default: Any, description: str, **bounds: float) -> Any:
    """Declare a field with default, meaning, and numeric range (`ge`, `gt`, `le` or `lt`)."""
    return dataclasses.field(default=default, metadata={"description": description, **bounds})


def problems_with(options: Any, section: str) -> Iterator[Problem]:
    """Yield fields of a dataclass of keys out of range or not among the known names; `section` is for messages."""
    hints = get_type_hints(type(options))
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        where = f"{section}.{field.name}"
        if value is None:
            if type(None) not in get_args(hints[field.name]):
                yield Problem(where, "None is no value", "give one, or leave it out")
            continue
        names = _names(hints[field.name])
        if names and isinstance(value, str) and value not in names:
            yield Problem(where, f"'{value}' is unknown", nearest(str(value), names))
        expected = _expected(field.metadata)
        if expected and not all(test(value, field.metadata[bound]) for bound, (test, _) in _found(field.metadata)):
            yield Problem(where, f"{value!r} is out of range", f"give {expected}")


def _names(hint: Any) -> tuple[str, ...]:
    """List the strings that a type allows: those of a `Literal`, or of a union with one."""
    found = [name for part in get_args(hint) for name in (_names(part) or (part,)) if isinstance(name, str)]
    return tuple(found)


def _found(metadata: Mapping[Any, Any]) -> list[tuple[str, tuple[Any, str]]]:
    return [(bound, meaning) for bound, meaning in _BOUNDS.items() if bound in metadata]


def _expected(metadata: Mapping[Any, Any]) -> str:
    said = [f"{words} {metadata[bound]:g}" for bound, (_, words) in _found(metadata)]
    return " and ".join(said)
