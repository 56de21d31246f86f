"""The fields of an object, read by name and type; records faults with their paths, and the fields that are not read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from typing import Any, TypeVar

from simsched.documents import KeyPath
from simsched.errors import Problem, nearest, tell
from simsched.manifests.objects import Object, path_text
from simsched.manifests.quantities import amount, quantity
from simsched.reading import moment, number
from simsched.words import counted

#: The largest number of a label or annotation: the latest second of a submission, counted from 1970.
_LATEST_S = 10_000_000_000
_Value = TypeVar("_Value")


@dataclass
class Account:
    """The problems found in objects, and their unread fields."""

    problems: list[Problem] = field(default_factory=list)
    unread: dict[tuple[str, str], list[Object]] = field(default_factory=dict)
    #: What was read of mappings without a problem, by reader and content, with their unread fields.
    known: dict[tuple[object, str], tuple[Any, list[KeyPath]]] = field(default_factory=dict)

    _places: dict[tuple[str, str], KeyPath] = field(default_factory=dict)

    def close(self, fields: Fields) -> None:
        """Record the unread fields of an object."""
        for path in fields.left():
            self.note(fields.owner, path)

    def note(self, owner: Object, path: KeyPath) -> None:
        """Record an unread field."""
        named = path_text(tuple(-1 if isinstance(part, int) else part for part in path))
        objects = self.unread.setdefault((owner.kind, named), [])
        if not objects or objects[-1] is not owner:
            objects.append(owner)
        self._places.setdefault((owner.kind, named), path)

    def judge(self, decides: Callable[[str, str], str], allowed: Collection[str] = ()) -> set[str]:
        """Report once which fields are not modelled; record a problem for those that would change the outcome.

        `decides` describes, for a kind and a path, what the field would change, empty for nothing. `allowed` are paths,
        with or without their kind (`Job.spec.managedBy`), that the user allows. Returns those that were used.
        """
        used: set[str] = set()
        idle: dict[str, list[str]] = {}
        for (kind, path), objects in sorted(self.unread.items()):
            said = decides(kind, path)
            names = {path, f"{kind}.{path}"} & set(allowed)
            used |= names
            if said and not names:
                remedy = f"take it out, or let it pass with --allow {kind}.{path}"
                more = f" (and in {len(objects) - 1} more)" if len(objects) > 1 else ""
                self.problems.append(objects[0].problem(self._places[kind, path], f"{said}{more}", remedy))
            else:
                idle.setdefault(f"{counted(len(objects), kind)}", []).append(path)
        for objects_of, paths in idle.items():
            tell(objects_of, f"fields that are not modelled: {', '.join(paths)}")
        return used

    def names(self) -> set[str]:
        """Return the unread fields, with and without the kind of their object."""
        return {name for kind, path in self.unread for name in (path, f"{kind}.{path}")}


def refuse_idle(allowed: Collection[str], accounts: Sequence[Account]) -> None:
    """Record in the first account a problem for each allowed name whose field is absent or read."""
    known = sorted(set().union(*(one.names() for one in accounts)))
    for name in allowed:
        if name not in known:
            message = "names no field of these objects that is not modelled"
            accounts[0].problems.append(Problem(f"--allow {name}", message, nearest(name, known) or "leave it out"))


class Fields:
    """One mapping of an object; reading a field records it, and an invalid one is a problem and returns its default."""

    def __init__(
        self, owner: Object, account: Account, data: Any = None, path: KeyPath = (), *, there: bool = True
    ) -> None:
        """Start at the top of an object, or at a mapping in it."""
        self.owner, self.account, self.path, self.there = owner, account, path, there
        self._data: Mapping[str, Any] = owner.data if not path else data
        self._read: set[str] = set()
        self._parts: dict[KeyPath, Fields] = {}
        #: The unread fields of a mapping whose equal was read before.
        self._left: list[KeyPath] | None = None

    def __contains__(self, name: str) -> bool:
        """Return whether a field is given (null is not)."""
        return self._data.get(name) is not None

    def __iter__(self) -> Iterator[str]:
        """Yield the names of the fields."""
        return iter(self._data)

    def fail(self, name: str, message: str, remedy: str = "") -> None:
        """Record a problem at a field, or at the mapping itself if `name` is empty."""
        path = (*self.path, name) if name else self.path
        self.account.problems.append(self.owner.problem(path, message, remedy))

    def _take(self, name: str, kind: type[_Value], said: str) -> _Value | None:
        self._read.add(name)
        value = self._data.get(name)
        if value is None:
            return None
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            self.fail(name, f"must be {said}, not {value!r:.40}")
            return None
        return value

    def text(self, name: str, default: str = "", *, of: Collection[str] = (), needed: bool = False) -> str:
        """Return a text, which must be one `of` these if given."""
        value = self._take(name, str, "text (put it in quotes)" if not of else f"one of {', '.join(of)}")
        if value is None:
            if needed and self._data.get(name) is None:
                self.fail(name, "is missing", f"give one of {', '.join(of)}" if of else "")
            return default
        if of and value not in of:
            self.fail(name, f"must be one of {', '.join(of)}, not '{value}'", nearest(value, of))
            return default
        return value

    def whole(self, name: str, default: int, *, least: int | None = None) -> int:
        """Return a whole number."""
        value = self._take(name, int, "a whole number")
        if value is not None and least is not None and value < least:
            self.fail(name, f"must be at least {least}, not {value}")
            return default
        return default if value is None else value

    def maybe_whole(self, name: str, *, least: int | None = None) -> int | None:
        """Return a whole number, None if it is not given."""
        self._read.add(name)
        return self.whole(name, 0, least=least) if name in self else None

    def flag(self, name: str, default: bool = False) -> bool:
        """Return true or false."""
        value = self._take(name, bool, "true or false")
        return default if value is None else value

    def amount(self, name: str, resource: str, *, whole: bool = False) -> int | None:
        """Return a quantity of a resource in its units, None if it is not given or invalid.

        With `whole`, a part of a device is invalid.
        """
        self._read.add(name)
        value = self._data.get(name)
        if value is None:
            return None
        try:
            return amount(resource, value, whole=whole)
        except ValueError as error:
            self.fail(name, str(error), "write a quantity of 0 or more, as in 4, 1500m or 64Gi")
            return None

    def number(self, name: str, default: float) -> float:
        """Return a quantity as a number, such as a weight."""
        self._read.add(name)
        value = self._data.get(name)
        if value is None:
            return default
        try:
            return float(quantity(value))
        except ValueError as error:
            self.fail(name, str(error), "write a number such as 1.5 or 500m")
            return default

    def seconds(self, name: str, default: float) -> float:
        """Return a duration as Go writes it, `1h30m`, in seconds."""
        value = self._take(name, str, "a duration such as 5m or 1h30m")
        if value is None:
            return default
        found = go_seconds(value)
        if found is None:
            self.fail(name, f"'{value}' is no duration", "write it as in 30s, 5m or 1h30m")
        return default if found is None else found

    def moment(self, name: str) -> float | None:
        """Return a timestamp in seconds since 1970, None if it is not given or invalid."""
        value = self._take(name, str, "a timestamp")
        if value is None:
            return None
        try:
            found = moment(value, "it")
        except ValueError:
            self.fail(name, f"'{value:.40}' is no timestamp", "write it as in 2026-01-31T12:00:00Z")
            return None
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()

    def stated(self, name: str, *, where: str = "annotations", least: float = 1) -> float | None:
        """Return the number in a label or annotation of the object, None if it is not given or invalid."""
        value = self.owner.marks(where).get(name)
        if value is None:
            return None
        try:
            return number(value, "it", least=least, most=_LATEST_S)
        except ValueError:
            message = f"'{value!s:.40}' is not a number of at least {least:g}"
            self.account.problems.append(self.owner.problem(("metadata", where, name), message, "write a number"))
            return None

    def part(self, name: str, *, needed: bool = False) -> Fields:
        """Return a mapping below this one, an empty one if it is not given; always the same object."""
        if (name,) in self._parts:
            return self._parts[name,]
        value = self._take(name, dict, "a mapping of keys to values")
        if value is None and needed and self._data.get(name) is None:
            self.fail(name, "is missing")
        return self._part((name,), value or {}, there=value is not None)

    def parts(self, name: str) -> list[Fields]:
        """Return the mappings of a list."""
        found = []
        for place, item in enumerate(self._take(name, list, "a list") or ()):
            if isinstance(item, dict):
                found.append(self._part((name, place), item))
            else:
                self._fail_item(name, place, f"must be a mapping of keys to values, not {item!r:.40}")
        return found

    def _part(self, way: KeyPath, data: Mapping[str, Any], *, there: bool = True) -> Fields:
        if way not in self._parts:
            self._parts[way] = Fields(self.owner, self.account, data, (*self.path, *way), there=there)
        return self._parts[way]

    def _fail_item(self, name: str, place: int | str, message: str) -> None:
        self.account.problems.append(self.owner.problem((*self.path, name, place), message))

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of texts."""
        found = self._take(name, list, "a list") or []
        for place, item in enumerate(found):
            if not isinstance(item, str):
                self._fail_item(name, place, f"must be text (put it in quotes), not {item!r:.40}")
        return tuple(str(item) for item in found)

    def labels(self, name: str) -> dict[str, str]:
        """Return a mapping of texts to texts, such as labels."""
        found = self._take(name, dict, "a mapping of keys to values") or {}
        for key, value in found.items():
            if not isinstance(value, str):
                self._fail_item(name, key, f"must be text (put it in quotes), not {value!r:.40}")
        return {key: str(value) for key, value in found.items()}

    def wholes(self, name: str) -> tuple[int, ...]:
        """Return a list of whole numbers."""
        found = self._take(name, list, "a list") or []
        for place, item in enumerate(found):
            if not isinstance(item, int) or isinstance(item, bool):
                self._fail_item(name, place, f"must be a whole number, not {item!r:.40}")
        return tuple(item if isinstance(item, int) else 0 for item in found)

    def peek(self, name: str) -> Any:
        """Return a field as it is, "" if it is not given, without reading it."""
        return self._data.get(name) or ""

    def skip(self, *names: str) -> None:
        """Mark fields as read that do not affect the scheduling of workloads."""
        self._read.update(names)

    def once(self, read: Callable[[Fields], _Value]) -> _Value:
        """Return what `read` makes of this mapping; of equal mappings without a problem only the first is read."""
        key, before = (read, json.dumps(self._data)), len(self.account.problems)
        if key in self.account.known:
            value, left = self.account.known[key]
            self._left = [(*self.path, *way) for way in left]
            return value  # type: ignore[no-any-return]
        value = read(self)
        if len(self.account.problems) == before:
            self.account.known[key] = value, [path[len(self.path) :] for path in self.left()]
        return value

    def left(self) -> Iterator[KeyPath]:
        """Yield the paths of the unread fields."""
        if self._left is not None:
            yield from self._left
            return
        for name in self._data:
            if name not in self._read:
                yield (*self.path, name)
        for inner in self._parts.values():
            yield from inner.left()


_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


def go_seconds(text: str) -> float | None:
    """Return the seconds of a duration such as `1h30m`, None for anything else."""
    parts = re.findall(r"([0-9]{1,15}(?:\.[0-9]+)?)(h|ms|us|µs|ns|m|s)", text)
    if text == "0":
        return 0.0
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def chosen(objects: Sequence[Object], *kinds: str) -> list[Object]:
    """Return the objects of some kinds, in order."""
    return [one for one in objects if one.kind in kinds]
