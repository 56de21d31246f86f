"""Reads lists of objects as `kubectl get -o yaml` prints them, ten times faster than a parser of all YAML.

What is printed is a small part of YAML: blocks of keys and items, and scalars on one line. An item with anything else
goes to the parser, as does every list that does not begin like a printed one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from simsched.documents import KeyPath, yaml_lines

_HEAD = re.compile(r"apiVersion: \S+\nitems:\n(?=- )")
_TAIL = re.compile(r"^(kind: \w*List\n(metadata:\n(  [^\n]*\n)*)?)\Z", re.MULTILINE)
#: Where a field of an item begins.
_FIELD = re.compile(r"\n  (?=[A-Za-z])")
#: A line: blanks, dashes of items, and a key with or without a value, or a value alone.
_LINE = re.compile(r"( *)((?:- )*)(?:([A-Za-z0-9_./-]+|\"[^\"\\]*\"):(?: (.+))?|(.+))")
#: Scalars whose value is their text; others are quoted, a number, a truth value, null, or {} and [].
_PLAIN = re.compile(r"(?:[A-Za-z0-9/.$_(=<+]|-(?=\S))(?:(?!: | #)[^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff])*(?<![: ])")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,14})")
_QUOTED = re.compile(r"\"(?:[^\"\\\x00-\x1f]|\\[\"\\/nt])*\"")
_SINGLE = re.compile(r"'((?:[^']|'')*)'")
#: A text in quotes that goes on in further lines, none of them empty.
_FOLDED = re.compile(
    r"(?<=[:-] )('(?:[^'\n]|'')*(?:\n +(?:[^'\n]|'')+)+'"
    r"|\"(?:[^\"\\\n]|\\[^\n])*(?:\n +(?:[^\"\\\n]|\\[^\n])+)+\")(?=\n)"
)
_WORDS: Mapping[str, Any] = {"true": True, "false": False, "null": None, "{}": dict, "[]": list, '""': ""}
#: Plain texts that YAML 1.2 reads as something else.
_OTHER = re.compile(r"(?i:true|false|null|[-+]?\.inf|\.nan)|[-+]?(\.[0-9]+|[0-9_]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|.* ")


#: Column, dashes, key and value of a line.
_Parts = tuple[int, int, str | None, Any]


class _UnusualError(Exception):
    """A line that only the parser reads."""


@dataclass(frozen=True)
class Lines(Mapping[KeyPath, int]):
    """The lines of an item's fields, found by the parser when one is asked for; `begins` is the item's own."""

    text: str
    file: str
    begins: int

    @cached_property
    def _found(self) -> Mapping[KeyPath, int]:
        (document,) = yaml_lines.parse_stream(self.text, self.file)
        return {path: line + self.begins - 1 for path, line in document.lines.items()}

    def __getitem__(self, path: KeyPath) -> int:
        """Return the line of a field."""
        return self._found[path]

    def __iter__(self) -> Iterator[KeyPath]:
        """Yield the fields."""
        return iter(self._found)

    def __len__(self) -> int:
        """Count the fields."""
        return len(self._found)


def printed_items(text: str, file: str) -> Iterator[tuple[Any, Lines]] | None:
    """Return the items of a printed list, each with its lines; None if the text is no such list.

    Raises `InputError` for an item that is not YAML.
    """
    head, tail = _HEAD.match(text), _TAIL.search(text[-4096:])
    if head is None or tail is None:
        return None
    return _items(text[head.end() : len(text) - len(tail[0])].removesuffix("\n"), file)


def _items(body: str, file: str) -> Iterator[tuple[Any, Lines]]:
    line, known, blocks = 3, dict[str, _Parts](), dict[str, Mapping[str, Any]]()
    for item in re.split(r"\n(?=- )", f"\n{body}")[1:]:
        lines = Lines(f" {item[1:]}\n", file, line)
        line += item.count("\n") + 1
        try:
            yield _joined(item, known, blocks), lines
        except _UnusualError:
            (document,) = yaml_lines.parse_stream(lines.text, file)
            yield document.data, lines


def _joined(item: str, known: dict[str, _Parts], blocks: dict[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the value of an item; `blocks` holds the values of its fields' texts, which are often those of others."""
    found: dict[str, Any] = {}
    for text in _FIELD.split(item[2:]):
        if text not in blocks:
            try:
                blocks[text] = _parsed(f"- {text}", known)
            except _UnusualError:
                folded = _FOLDED.sub(lambda part: re.sub(r" *\n +", " ", part[0]), f"- {text}\n")
                blocks[text] = _parsed(folded[:-1], known)
        if not isinstance(blocks[text], dict) or not found.keys().isdisjoint(blocks[text]):
            raise _UnusualError
        found |= blocks[text]
    return found


def _parsed(item: str, known: dict[str, _Parts]) -> Any:
    """Return the value of an item; `known` holds the parts of lines read before."""
    top: list[Any] = []
    #: The open blocks: the column of their keys or dashes, and what they fill; and the key that waits for its block.
    stack: list[tuple[int, Any]] = [(0, top)]
    waiting: str | None = None
    at, block, owner = 0, top, top  # type: int, Any, Any
    for line in item.split("\n"):
        try:
            column, dashes, key, value = known[line]
        except KeyError:
            column, dashes, key, value = known[line] = _parts(line)
        if waiting is not None or column != at or dashes or block.__class__ is list:
            if waiting is not None:  # its block begins here, or it has none
                inside = column > at or (dashes and column == at)
                begun: Any = ([] if dashes else {}) if inside else None
                owner[waiting], waiting = begun, None
                if inside:
                    stack.append((column, begun))
            while stack[-1][0] > column or (stack[-1][0] == column and isinstance(stack[-1][1], list) and not dashes):
                stack.pop()
            at, block = stack[-1]
            if at != column or isinstance(block, list) != bool(dashes):
                raise _UnusualError
            for left in range(dashes, 0, -1):
                column += 2
                inner: Any = [] if left > 1 else {} if key is not None else value
                block.append(inner() if isinstance(inner, type) else inner)
                block = block[-1]
                if left > 1 or key is not None:
                    stack.append((column, block))
            at = stack[-1][0]
        if key is None:
            if not dashes:
                raise _UnusualError
            block = stack[-1][1]
        elif key in block:
            raise _UnusualError
        elif value is _UnusualError:
            owner, waiting = block, key
            block[key] = None
        else:
            block[key] = value() if value.__class__ is type else value
    return top[0]


def _parts(line: str) -> _Parts:
    """Return column, dashes, key and value of a line; `_UnusualError` stands for the value of a key with a block."""
    match = _LINE.fullmatch(line)
    if match is None:
        raise _UnusualError
    blanks, dashes, key, value, alone = match.groups()
    key = key[1:-1] if key is not None and key[0] == '"' else key
    if key is not None and _OTHER.fullmatch(key):
        raise _UnusualError
    text = alone if key is None else value
    return len(blanks), len(dashes) // 2, key, _UnusualError if text is None else _scalar(text)


def _scalar(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if _NUMBER.fullmatch(text):
        return int(text)
    if text[0] == '"' and _QUOTED.fullmatch(text):
        return json.loads(text)
    if single := _SINGLE.fullmatch(text):
        return single[1].replace("''", "'")
    if _PLAIN.fullmatch(text) and not _OTHER.fullmatch(text):
        return text
    raise _UnusualError
