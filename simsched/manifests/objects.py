"""Kubernetes objects of a file or folder: YAML documents or JSON lists, each with its location."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simsched.documents import KeyPath, yaml_lines
from simsched.errors import InputError, Problem, input_error
from simsched.manifests.printed import Lines, printed_items
from simsched.reading import first_lines, parse_json, read_text

_SUFFIXES = (".yaml", ".yml", ".json")
_MOST_JSON_BYTES = 1 << 30
#: The most problems in one report.
_MOST_TOLD = 20
#: Parsing YAML with its lines takes about a second per 100 KB.
MOST_YAML_BYTES = 32 << 20
#: Where an object came from, kept in the copy that a run reads.
SOURCE = "simsched/source"
_COPY = {"annotations": {"simsched/copy": "true"}}


@dataclass(frozen=True, eq=False)
class Object:
    """One object; `where` is its file, `number` counts the documents of a file, or the items of its list, from 1.

    `lines` are those of its fields, below `prefix` (none for JSON). `group` is the API group, without the version.
    """

    kind: str
    group: str
    name: str
    namespace: str
    data: Mapping[str, Any]
    where: str
    number: int
    lines: Mapping[KeyPath, int] = field(default_factory=dict)
    prefix: KeyPath = ()

    @property
    def id(self) -> str:
        """Return its kind and name, with the namespace if it has one."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Return its identity in a cluster."""
        return (self.group, self.kind, self.namespace, self.name)

    def marks(self, where: str = "annotations") -> Mapping[str, Any]:
        """Return its annotations or labels."""
        return self.part("metadata", where)

    def metadata(self) -> Iterator[tuple[KeyPath, Mapping[str, Any]]]:
        """Yield the metadata of the object and of everything in it, such as templates of pods, outermost first."""
        yield from _metadata(self.data, ())

    @property
    def first_line(self) -> int:
        """Return the line on which it starts, 0 if unknown."""
        if isinstance(self.lines, Lines):
            return self.lines.begins
        own = (line for known, line in self.lines.items() if known[:-1] == self.prefix)
        return min(own, default=self.lines.get((), 0))

    def part(self, *names: str) -> Mapping[str, Any]:
        """Return a mapping in it, such as the spec, or an empty one if there is none."""
        found: Any = self.data
        for name in names:
            found = found.get(name) if isinstance(found, dict) else None
        return found if isinstance(found, dict) else {}

    def problem(self, path: KeyPath, message: str, remedy: str = "") -> Problem:
        """Return a problem at a field: file, line, document, object and the field's path."""
        full = (*self.prefix, *path)
        known = (self.lines[full[:n]] for n in range(len(full), len(self.prefix), -1) if full[:n] in self.lines)
        line = next(known, self.first_line)
        place = f", {path_text(path)}" if path else ""
        return Problem(self.where, f"document {self.number}, {self.id}{place}: {message}", remedy, line)


def marks_of(metadata: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """Return the annotations or labels in metadata; those that are no mapping are reported where they are read."""
    marks = metadata.get(where)
    return marks if isinstance(marks, Mapping) else {}


#: Fields without the metadata of anything.
_WITHOUT = frozenset({"metadata", "containers", "initContainers", "status"})


def _metadata(data: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Mapping[str, Any]]]:
    if isinstance(data, Mapping):
        if isinstance(own := data.get("metadata"), Mapping):
            yield (*path, "metadata"), own
        for key, value in data.items():
            if key not in _WITHOUT and isinstance(value, dict | list):
                yield from _metadata(value, (*path, key))
    elif isinstance(data, list):
        for place, item in enumerate(data):
            if isinstance(item, dict | list):
                yield from _metadata(item, (*path, place))


def path_text(path: KeyPath) -> str:
    """Format the path to a field as kubectl does, `spec.resourceGroups[0].flavors[1]`; -1 stands for every item."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += "[]" if part < 0 else f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def is_manifest(path: Path) -> bool:
    """Return whether a file, or any file of a folder, starts like a Kubernetes object; `InputError` if unreadable."""
    if path.is_dir():
        return any(_begins(file) for file in _files(path))
    return path.name.endswith(_SUFFIXES) and path.is_file() and _begins(path)


def _begins(file: Path) -> bool:
    lines = first_lines(file, 2000)
    if file.name.endswith(".json"):
        return any('"apiVersion"' in line for line in lines) and any('"kind"' in line for line in lines)
    says = {line.partition(":")[0] for line in lines}
    return "apiVersion" in says and bool(says & {"kind", "items"})  # kubectl ends a list with its kind


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file() and file.name.endswith(_SUFFIXES))


def read_objects(path: Path) -> list[Object]:
    """Read all objects of a file, or of the YAML and JSON files in a folder and its subfolders, in order.

    An object with only `generateName` gets a number. Raises `InputError` for a file without objects, an object without
    kind or name, and an object that is given twice with different content.
    """
    files = [file for file in _files(path) if _begins(file)] if path.is_dir() else [path]
    counts: dict[tuple[str, str], int] = {}
    found = [one for file in files for one in _objects_of(file, counts, copies=not path.is_dir())]
    if not found:
        raise input_error(path, "holds no Kubernetes object", "give YAML or JSON files with apiVersion and kind")
    kept = {one.key: one for one in reversed(found)}
    raise_any(
        one.problem((), f"is there already, in {first.where}, document {first.number}", "keep one of them")
        for one in found
        if (first := kept[one.key]) is not one and first.data != one.data
    )
    return [one for one in found if kept[one.key] is one]


def raise_any(problems: Iterable[Problem]) -> None:
    """Raise one `InputError` of the first problems and a count of the rest; do nothing if there are none."""
    found = list(dict.fromkeys(problems))
    if found:
        rest = [Problem("", f"and {len(found) - _MOST_TOLD} more problems")] if len(found) > _MOST_TOLD else []
        raise InputError(*found[:_MOST_TOLD], *rest)


def _objects_of(file: Path, counts: dict[tuple[str, str], int], *, copies: bool) -> Iterator[Object]:
    if file.name.endswith(".json"):
        whole = parse_json(read_text(file, _MOST_JSON_BYTES), file, "write it with kubectl get ... -o json")
        if not copies and isinstance(whole, dict) and whole.get("metadata") == _COPY:
            return  # of a run whose results are in the folder of its manifests
        documents: Iterable[tuple[Any, Mapping[KeyPath, int]]] = [(whole, {})]
    else:
        text = read_text(file, MOST_YAML_BYTES)
        printed = printed_items(text, str(file))
        documents = printed or [(one.data, one.lines) for one in yaml_lines.parse_stream(text, str(file))]
    for number, (data, lines) in enumerate(documents, 1):
        if data:
            yield from _unpacked(data, str(file), number, lines, (), counts)


def _unpacked(
    data: Any,
    where: str,
    number: int,
    lines: Mapping[KeyPath, int],
    prefix: KeyPath,
    counts: dict[tuple[str, str], int],
) -> Iterator[Object]:
    if isinstance(data, dict) and str(data.get("kind", "")).endswith("List") and isinstance(data.get("items"), list):
        for place, item in enumerate(data["items"]):
            yield from _unpacked(item, where, place + 1, lines, (*prefix, "items", place), counts)
        return
    yield _object(data, where, number, lines, prefix, counts)


def _object(
    data: Any,
    where: str,
    number: int,
    lines: Mapping[KeyPath, int],
    prefix: KeyPath,
    counts: dict[tuple[str, str], int],
) -> Object:
    nameless = Object("object", "", "(unnamed)", "", {}, where, number, lines, prefix)
    if not isinstance(data, dict):
        raise InputError(
            nameless.problem((), "is no object", "a mapping with apiVersion, kind and metadata is expected")
        )
    metadata = data.get("metadata", {})
    for path, value, kind in (
        (("apiVersion",), data.get("apiVersion"), str),
        (("kind",), data.get("kind"), str),
        (("metadata",), metadata, dict),
    ):
        if not value and path != ("metadata",):
            raise InputError(nameless.problem(path, "is missing", "every object says its apiVersion and kind"))
        if not isinstance(value, kind):
            raise InputError(nameless.problem(path, f"must be {_SAID[kind]}, not {value!r:.40}"))
    version, _, tail = str(data["apiVersion"]).rpartition("/")
    group = version if tail else ""
    name = metadata.get("name")
    told = Object(data["kind"], group, str(name or "(unnamed)"), "", data, where, number, lines, prefix)
    namespace = metadata.get("namespace", "")
    if not name and metadata.get("generateName"):
        stem = (data["kind"], str(metadata["generateName"]))
        counts[stem] = counts.get(stem, 0) + 1
        name = f"{stem[1]}{counts[stem]}"
    if data["kind"] == "Configuration" and group.startswith("config.kueue"):
        name = name or "configuration"
    if not isinstance(name, str) or not name:
        raise InputError(told.problem(("metadata", "name"), "is missing", "give the object a name"))
    if not isinstance(namespace, str):
        raise InputError(told.problem(("metadata", "namespace"), f"must be text, not {namespace!r:.40}"))
    if data["kind"] not in _CLUSTER_WIDE:
        namespace = namespace or "default"
    where, number, lines = _origin(metadata, where, number, lines)
    return Object(data["kind"], group, name, namespace, data, where, number, lines, prefix)


_WHOLE = re.compile("[0-9]{1,30}")
_SAID = {str: "text", dict: "a mapping of keys to values"}
#: The kinds without a namespace.
_CLUSTER_WIDE = {
    *("ResourceFlavor", "Topology", "ClusterQueue", "Cohort", "WorkloadPriorityClass", "AdmissionCheck", "Node"),
    *("Queue", "Configuration", "Namespace", "PriorityClass", "ProvisioningRequestConfig", "MultiKueueConfig"),
}


def _origin(
    metadata: Mapping[str, Any], where: str, number: int, lines: Mapping[KeyPath, int]
) -> tuple[str, int, Mapping[KeyPath, int]]:
    """Return the origin of a copy, or the location of the object itself if it is not a copy."""
    notes = metadata.get("annotations")
    source = notes.get(SOURCE) if isinstance(notes, dict) else None
    file, document, line = source.rsplit("#", 2) if isinstance(source, str) and source.count("#") > 1 else ("", "", "")
    if not _WHOLE.fullmatch(f"{document}{line}") or not document or not line:
        return where, number, lines
    return file, int(document), {(): int(line)}


def merged(objects: Sequence[Object], others: Sequence[Object]) -> list[Object]:
    """Return objects with others applied: those of the same kind and name replaced, new ones added."""
    new = {one.key: one for one in others}
    return [new.pop(one.key, one) for one in objects] + list(new.values())


def objects_text(objects: Sequence[Object], *, copy: bool = True) -> str:
    """Format objects as one JSON list, one on a line, each with its origin if it is a `copy` for a run."""
    items = []
    for one in objects:
        metadata = dict(one.data.get("metadata") or {})
        source = {SOURCE: f"{one.where}#{one.number}#{one.first_line}"} if copy else {}
        notes = {**(metadata.get("annotations") or {}), **source}
        named = {**metadata, "name": one.name, "annotations": notes}
        items.append({**one.data, "metadata": {**named, **({"namespace": one.namespace} if one.namespace else {})}})
    head = json.dumps({"apiVersion": "v1", "kind": "List", "metadata": _COPY if copy else {}})[:-1]
    lines = (json.dumps(item, ensure_ascii=False) for item in items)
    return f'{head}, "items": [\n' + ",\n".join(lines) + "\n]}\n"
