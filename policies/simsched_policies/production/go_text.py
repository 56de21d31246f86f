"""The tokens of a Go file, with a cursor that skips brackets and reads types."""

from __future__ import annotations

import re
from collections.abc import Iterator

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r]+|//[^\n]*|/\*.*?\*/)|(?P<line>\n)|(?P<name>[^\W\d]\w*)
    |(?P<number>0[xX][0-9a-fA-F_]+|(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d+)?)
    |(?P<string>"(?:\\.|[^"\\\n])*"|`[^`]*`|'(?:\\.|[^'\\\n])+')
    |(?P<sign>\.\.\.|:=|<-|&\^=?|<<=?|>>=?|&&|\|\||[-+*/%&|^=!<>]=|\+\+|--|.)""",
    re.VERBOSE | re.DOTALL,
)
_ENDS_LINE = frozenset(["break", "continue", "return", "fallthrough", ")", "]", "}", "++", "--"])
BRANCHES = frozenset(["if", "for", "switch", "select"])
KEYWORDS = BRANCHES | {"func", "map", "struct", "interface", "chan", "var", "const", "type", "go", "defer"}
OPEN, CLOSE = {"(", "[", "{"}, {")", "]", "}"}


class NotReadError(Exception):
    """The text at this position is not a supported value."""


class Cursor:
    """A position among the tokens of Go source."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._at = 0

    def _peek(self) -> str:
        return self._tokens[self._at][1]

    def _next(self) -> str:
        kind, word = self._tokens[self._at]
        if kind == "end":
            raise NotReadError
        self._at += 1
        return word

    def _name(self) -> str:
        if self._tokens[self._at][0] != "name":
            raise NotReadError
        return self._next()

    def _take(self, word: str) -> bool:
        found = self._tokens[self._at] in (("sign", word), ("name", word))
        self._at += found
        return found

    def _expect(self, word: str) -> None:
        if not self._take(word):
            raise NotReadError

    def _skip(self) -> None:
        """Skip a token, or a bracket with its contents."""
        if self._next() in OPEN:
            while self._peek() not in CLOSE:
                self._skip()
            self._next()

    def _names(self) -> list[str]:
        names = [self._name()]
        while self._take(","):
            names.append(self._name())
        return names

    def _skip_statement(self, end: str) -> None:
        while self._peek() not in (";", end, ""):
            self._skip()

    def _parameters(self) -> tuple[str, ...]:
        """Read the names of parameters; the name of a variadic one begins with `...`."""
        self._expect("(")
        names = []
        while not self._take(")"):
            name = self._name() if self._peek() != "..." else ""
            names.append(f"...{name}" if self._peek() == "..." else name)
            while self._peek() not in (",", ")"):
                self._skip()
            self._take(",")
        return tuple(names)

    def _key_follows(self) -> bool:
        at = self._at
        while self._peek() not in (",", ":", "}", ";", ""):
            self._skip()
        found, self._at = self._peek() == ":", at
        return found

    def _type(self) -> str:
        """Read a type as text: `[]` and the item type, `map[keys]` and the value type, or a name."""
        word = self._next()
        if word == "*":
            return self._type()
        if word == "[":
            while not self._take("]"):
                self._skip()
            return f"[]{self._type()}"
        if word == "map":
            self._expect("[")
            key = self._type()
            self._expect("]")
            return f"map[{key}]{self._type()}"
        if word in ("struct", "interface"):
            self._skip()
        elif word == "func":
            while self._peek() in ("(", "["):
                self._skip()
            return word if self._peek() in (";", "}") else self._type()
        elif self._tokens[self._at - 1][0] != "name":
            raise NotReadError
        while self._take("."):
            word += f".{self._name()}"
        if self._peek() == "[":
            self._skip()
        return word


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Yield kinds and texts; a line that may end a statement ends in a `;`, as in Go."""
    ends = False
    for found in _TOKEN.finditer(text):
        kind, word = str(found.lastgroup), found[0]
        if kind == "line" or (kind == "space" and word.startswith("/*") and "\n" in word):
            if ends:
                yield "sign", ";"
            ends = False
        elif kind != "space":
            yield kind, word
            ends = word in _ENDS_LINE or (kind != "sign" and word not in KEYWORDS)
    yield "end", ""


def unquoted(word: str) -> str:
    """Return the value of a quoted string."""
    escapes = {"n": "\n", "t": "\t", "r": "\r"}
    return re.sub(r"\\(.)", lambda found: escapes.get(found[1], found[1]), word[1:-1])


def parts_of_type(of: str) -> tuple[str, str]:
    """Return the key type and the value type of a literal's type, empty if it has none."""
    if of.startswith("[]"):
        return "", of[2:]
    if not of.startswith("map["):
        return "", ""
    end = 4
    while of[4:end].count("[") >= of[4:end].count("]"):
        end += 1
    return of[4 : end - 1], of[end:]
