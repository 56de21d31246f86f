"""Reads YAML with line numbers, so that every later message can name the line.

The scalars are those of YAML 1.2's core schema: `on` and `1:30` stay text, `1e-3` is a number, and a date is text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from simsched.errors import InputError, Problem, input_error
from simsched.reading import HALF_CHARACTER, read_text

#: The limits of a document: its size, how deep it nests, how many values it has when every alias is written out, and
#: how large a whole number may be (all smaller ones are exact as floats).
MOST_BYTES = 4 << 20
MOST_DEPTH = 50
MOST_VALUES = 500_000
MOST_NUMBER = 2**53

#: The deepest nesting of blanks, dashes and brackets for which a user's file goes to libyaml.
_MOST_SHALLOW = 400

#: The path from the top of a document to a value: keys of mappings and indices of lists.
KeyPath = tuple[str | int, ...]


@dataclass(frozen=True)
class Document:
    """A parsed YAML file: plain dicts, lists and scalars, and the line of each key and list item."""

    file: str
    data: dict[str, Any]
    lines: Mapping[KeyPath, int] = field(default_factory=dict)

    def line(self, path: KeyPath) -> int:
        """Return the line of a key, or of the nearest part of the file around it; 0 if there is none."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return 0


def load(path: Path) -> Document:
    """Read a YAML file whose top is a mapping.

    Raises `InputError` with file and line if the file cannot be read, is not YAML, repeats keys (all of them at once),
    has a key that is not text, or is not a mapping.
    """
    return parse(read_text(path, MOST_BYTES), str(path))


def parse(text: str, file: str) -> Document:
    """Read YAML from a text; `file` is the name used in messages. Raises as `load` does."""
    ((document, line),) = _documents(text, file)
    if document.data is None:
        raise input_error(file, "is empty", "a mapping of keys to values is expected, as in 'name: quickstart'")
    return _mapping(document, line)


def parse_stream(text: str, file: str) -> list[Document]:
    """Read the YAML documents of a text, separated by `---`; empty ones hold nothing, lines count from the top.

    Raises as `load` does.
    """
    return [_mapping(*one) for one in _documents(text, file, several=True)]


def parse_value(text: str, where: str) -> Any:
    """Read one YAML value, such as the right-hand side of `-o key=value`; raises `InputError` without a line."""
    try:
        return _documents(text, where)[0][0].data
    except InputError as error:
        raise InputError(*(replace(problem, line=0) for problem in error.problems)) from error


def _mapping(document: Document, line: int) -> Document:
    data: Any = document.data
    if data is not None and not isinstance(data, dict):
        kind = "a list" if isinstance(data, list) else f"the single value '{data}'"
        raise input_error(document.file, f"holds {kind}, not a mapping of keys to values", line=line)
    return replace(document, data=data or {})


def _documents(text: str, file: str, *, several: bool = False) -> list[tuple[Document, int]]:
    """Read the documents of a text, whose data may be anything, each with its first line."""
    if _is_shallow(text):
        with suppress(InputError):  # the messages are those of the other parser, below
            return _Reader(file, _fast_loader()).documents(text, several=several)
    return _Reader(file, _Loader).documents(text, several=several)


def _is_shallow(text: str) -> bool:
    """Return whether a text's nesting is safe for libyaml, whose recursion Python does not bound."""
    indented = max(len(line) - len(line.lstrip()) + line.count("- ") + line.count("? ") for line in text.split("\n"))
    level = most = 0
    for sign in re.findall(r"[\[\]{}]", text):
        level = max(0, level + (1 if sign in "[{" else -1))
        most = max(most, level)
    return indented + most <= _MOST_SHALLOW


def yaml_text(data: Mapping[str, Any]) -> str:
    """Return plain data as YAML, with keys in order."""
    return yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True, width=100)


class _Loader(yaml.SafeLoader):
    """The safe loader with the scalars of YAML 1.2's core schema."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 (as in the base class)


_SCALARS = (
    ("tag:yaml.org,2002:bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("tag:yaml.org,2002:int", r"[-+]?[0-9][0-9_]*", "-+0123456789"),
    ("tag:yaml.org,2002:float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("tag:yaml.org,2002:float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", "-+."),
    ("tag:yaml.org,2002:null", r"~|null|Null|NULL|", "~nN\0"),
    ("tag:yaml.org,2002:merge", r"<<", "<"),
)
for _tag, _pattern, _first in _SCALARS:
    _Loader.add_implicit_resolver(_tag, re.compile(f"^(?:{_pattern})$"), ["" if c == "\0" else c for c in _first])
_Loader.add_constructor("tag:yaml.org,2002:int", lambda _, node: int(node.value.replace("_", "")))  # 010 is ten


@cache
def _fast_loader() -> type[Any]:
    """Return the same loader with the parser of libyaml, if PyYAML has it.

    It is several times faster, but its messages differ and Python does not bound its recursion.
    """
    if not yaml.__with_libyaml__:
        return _Loader
    own = {name: getattr(_Loader, name) for name in ("yaml_implicit_resolvers", "yaml_constructors")}
    return type("_FastLoader", (yaml.CSafeLoader,), own)


class _Reader:
    """Converts the nodes of one document to data and keeps their lines."""

    def __init__(self, file: str, loader: type[Any]) -> None:
        self.file = file
        self._kind = loader
        self.lines: dict[KeyPath, int] = {}
        self.problems: list[Problem] = []
        self._flattened: set[int] = set()
        self._open: list[int] = []

    def documents(self, text: str, *, several: bool) -> list[tuple[Document, int]]:
        """Read one document or several, each with its first line; raises `InputError` with all problems."""
        documents: list[tuple[Document, int]] = []
        with self._explained():
            self._loader = self._kind(text)
            while self._loader.check_node() if several else not documents:
                self.lines = {}
                node = self._loader.get_node() if several else self._loader.get_single_node()
                document = Document(self.file, self._root(node), self.lines)
                documents.append((document, 0 if node is None else _line(node)))
        if self.problems:
            raise InputError(*self.problems)
        return documents

    def _root(self, node: yaml.Node | None) -> Any:
        if node is None:
            return None
        self._measure(node, {})
        return self._value(node, ())

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Convert the parser's exceptions to errors with a line and a remedy."""
        try:
            yield
        except RecursionError:
            raise input_error(self.file, f"is nested deeper than {MOST_DEPTH} levels") from None
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 0
            message, remedy = what_breaks(error, line)
            raise input_error(self.file, f"is not valid YAML: {message}", remedy, line=line) from error
        except yaml.reader.ReaderError as error:
            message = f"is not valid YAML: character {error.position} is not allowed in a text file"
            raise input_error(self.file, message) from error

    def _value(self, node: yaml.Node, path: KeyPath) -> Any:
        if id(node) in self._open:
            raise input_error(self.file, "an alias is inside the node that it names", line=_line(node))
        self._open.append(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return {key: self._value(value, (*path, key)) for key, value in self._items(node, path)}
            if isinstance(node, yaml.SequenceNode):
                return [self._item(child, (*path, i)) for i, child in enumerate(node.value)]
            return self._scalar(node, path)
        except ValueError as error:
            raise input_error(self.file, f"is not a value: {error}", line=_line(node)) from error
        finally:
            self._open.pop()

    def _measure(self, node: yaml.Node, known: dict[int, tuple[int, int]], depth: int = 1) -> tuple[int, int]:
        """Count the values and levels that a node stands for once its aliases are written out, each node once.

        Raises `InputError` if that is more than a document may have.
        """
        if id(node) not in known:
            known[id(node)] = (1, 1)  # for an alias inside its own node, which is reported when it is read
            if depth > MOST_DEPTH:
                raise self._too_deep(node)
            parts = [self._measure(part, known, depth + 1) for part in _parts(node)]
            known[id(node)] = (1 + sum(part[0] for part in parts), 1 + max((part[1] for part in parts), default=0))
        values, levels = known[id(node)]
        if values > MOST_VALUES:
            message = f"holds more than {MOST_VALUES} values when its aliases are written out"
            raise input_error(self.file, message, line=_line(node))
        if depth + levels - 1 > MOST_DEPTH:
            raise self._too_deep(node)
        return known[id(node)]

    def _too_deep(self, node: yaml.Node) -> InputError:
        return input_error(self.file, f"is nested deeper than {MOST_DEPTH} levels", line=_line(node))

    def _scalar(self, node: yaml.Node, path: KeyPath) -> Any:
        value = self._loader.construct_object(node)
        place = "the value" + (f" at '{'.'.join(map(str, path))}'" if path else "")
        if isinstance(value, str) and "\0" in value:  # no file name may, and systems raise different errors
            self._refuse(node, f"{place} holds the character NUL", "take it out")
        if isinstance(value, str) and HALF_CHARACTER.search(value):
            self._refuse(node, f"{place} holds half a character (a lone surrogate)", "write the whole character")
        if not isinstance(value, str | int | float | None):
            self._refuse(node, f"{place} has a tag such as !!binary", "leave the tag out")
        if isinstance(value, int) and abs(value) > MOST_NUMBER:
            self._refuse(node, f"{place} is too large", f"numbers go to {MOST_NUMBER}")
        return value

    def _refuse(self, node: yaml.Node, message: str, remedy: str) -> None:
        self.problems.append(Problem(self.file, message, remedy, _line(node)))

    def _item(self, node: yaml.Node, path: KeyPath) -> Any:
        self.lines[path] = _line(node)
        return self._value(node, path)

    def _items(self, node: yaml.MappingNode, path: KeyPath) -> Iterator[tuple[str, yaml.Node]]:
        if id(node) not in self._flattened:
            self._flattened.add(id(node))
            self._report_twice(node, path)
            self._loader.flatten_mapping(node)
        for key_node, value in node.value:
            key = self._key(key_node)
            if key is not None:
                self.lines[*path, key] = _line(key_node)
                yield key, value

    def _key(self, node: yaml.Node) -> str | None:
        if isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:str":
            if not HALF_CHARACTER.search(node.value):
                return str(node.value)
            self._refuse(node, "a key holds half a character", "write the whole one")
            return None
        text = f"'{node.value}'" if isinstance(node, yaml.ScalarNode) else "a list or a mapping"
        self._refuse(node, f"{text} is a key but not text", "put it in quotes")
        return None

    def _report_twice(self, node: yaml.MappingNode, path: KeyPath) -> None:
        first: dict[str, int] = {}
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                continue
            key, line = key_node.value, _line(key_node)
            if key in first:
                name = ".".join(str(part) for part in (*path, key))
                message = f"the key '{name}' is given twice, first in line {first[key]}"
                self.problems.append(Problem(self.file, message, "keep one of them", line))
            first.setdefault(key, line)


def _parts(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


_INDENT = "align keys of the same mapping, and indent the value of a key by more blanks than the key"
_GENERAL = ("it cannot be read from here on", "look for quotes, brackets and indentation here and in the line before")

#: Parts of the parser's texts (context and problem) with a message, in which {began} is the line where the construct
#: begins, and a remedy. The first match counts.
_MEANINGS = (
    ("flow mapping", "", "the '{{' of line {began} is not closed, or a comma is missing", "close it with '}}'"),
    ("flow sequence", "", "the '[' of line {began} is not closed, or a comma is missing", "close it with ']'"),
    ("flow node", "", "a bracket or brace is not closed, or a comma follows nothing", "close it, or drop the comma"),
    ("", "unknown escape", "in double quotes a backslash begins a sign such as \\n", "use single quotes, or \\\\"),
    ("quoted scalar", "", "the quote of line {began} is not closed", "close it, or double a quote inside the text"),
    ("", "'\\t'", "a tab is used for indentation", "indent with blanks"),
    ("", "values are not allowed", "a value contains ':', or the line is indented too far", "quote it, or align it"),
    ("simple key", "':'", "line {began} has no ':' after its key", "write key: value, with a blank after the colon"),
    ("block mapping", "", "the indentation differs from that of the block that begins in line {began}", _INDENT),
    ("block collection", "", "the indentation differs from that of the block that begins in line {began}", _INDENT),
    ("", "start any token", "a value begins with a special character of YAML", "put the value in quotes"),
    ("", "undefined alias", "a text that begins with * refers to an anchor, but there is none", "put it in quotes"),
    ("", "a constructor", "a value has a tag such as !name", "leave the tag out"),
    ("single document", "", "a second document begins with ---", "keep one document in a file"),
)


def what_breaks(error: yaml.MarkedYAMLError, line: int) -> tuple[str, str]:
    """Return a message and a remedy for a syntax error; `line` is where it was noticed."""
    began = error.context_mark.line + 1 if error.context_mark else line
    context, problem = error.context or "", error.problem or ""
    for where, what, message, remedy in _MEANINGS:
        if where in context and what in problem:
            return message.format(began=began), remedy.format()
    return _GENERAL
