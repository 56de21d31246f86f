"""Expressions of Go as plain Python values."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from simsched_policies.production.go_text import KEYWORDS, OPEN, Cursor, NotReadError, parts_of_type, unquoted

#: str, int, float, bool, None, tuple, dict, `Name`, `Call`, `Composite` or `Function`.
Value = Any

_RANKS = {
    sign: rank
    for rank, signs in enumerate(("||", "&&", "== != < <= > >=", "+ - | ^", "* / % & << >>"), start=1)
    for sign in signs.split()
}
_ARITHMETIC: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "<<": operator.lshift,
}
BOUND: Mapping[str, Value] = {"true": True, "false": False, "nil": None}
_CONVERSIONS = {f"{kind}{bits}" for kind in ("int", "uint", "float") for bits in ("", 8, 16, 32, 64)} | {
    "string",
    "new",
}
#: Helpers that take the address of a value, by package.
_POINTERS = {"ptr", "pointer"}


@dataclass(frozen=True)
class Name:
    """A name without a known value, with its package: `corev1.ResourceCPU`."""

    text: str


@dataclass(frozen=True)
class Composite:
    """A struct, or a literal of a named type: fields by name (or key), and unnamed items."""

    type: str
    fields: dict[Any, Value]
    items: tuple[Value, ...] = ()

    def __hash__(self) -> int:
        """Hash the type and the keys, since a struct may be the key of a map."""
        return hash((self.type, tuple(self.fields)))

    def get(self, name: str, default: Value = None) -> Value:
        """Return a field, or the default if it is missing."""
        return self.fields.get(name, default)


@dataclass(frozen=True)
class Call:
    """A call of a function of a package (the receiver is a `Name`), of a method, or of a plain function.

    A later assignment to a field of the result is a call of `field.path=` on it.
    """

    name: str
    receiver: Value = None
    args: tuple[Value, ...] = ()

    def chain(self) -> list[Call]:
        """Return the calls of a builder in order: `MakeX("a").Y(1).Obj()` is MakeX, Y, Obj."""
        before = self.receiver.chain() if isinstance(self.receiver, Call) else []
        return [*before, self]


@dataclass(frozen=True)
class Function:
    """A function of the file: its parameters and the position of its body."""

    name: str
    parameters: tuple[str, ...]
    body: int
    scope: dict[str, Value] = field(compare=False, repr=False)


class Expressions(Cursor):
    """A position in Go source from which expressions are read, with the values of names."""

    _scope: dict[str, Value]
    _branched: bool
    globals: dict[str, Value]

    def _run(self, function: Function, args: tuple[Value, ...]) -> dict[str, Value]:
        raise NotImplementedError

    def _function(self, name: str) -> Function:
        """Read a function from the bracket of its parameters to the end of its body."""
        if self._peek() != "(":
            raise NotReadError
        parameters = self._parameters()
        while self._peek() not in ("{", ";", ")", ",", ""):
            if self._next() in ("interface", "struct", *OPEN):
                self._at -= self._tokens[self._at - 1][1] in OPEN
                self._skip()
        if self._peek() != "{":
            raise NotReadError
        function = Function(name, parameters, self._at + 1, self._scope)
        self._skip()
        return function

    # Expressions

    def _expression(self, level: int = 0) -> Value:
        left = self._unary()
        while (rank := _RANKS.get(self._peek(), 0)) > level:
            sign = self._next()
            right = self._expression(rank)
            try:
                left = _ARITHMETIC[sign](left, right)
            except (KeyError, TypeError):
                left = Call(sign, None, (left, right))
        return left

    def _unary(self) -> Value:
        if self._take("&") or self._take("*") or self._take("+"):
            return self._unary()
        if self._take("-"):
            value = self._unary()
            return -value if isinstance(value, int | float) else Call("-", None, (value,))
        if self._take("!"):
            value = self._unary()
            return not value if isinstance(value, bool) else Call("!", None, (value,))
        return self._postfix(self._primary())

    def _primary(self) -> Value:
        kind, word = self._tokens[self._at]
        if kind == "string":
            self._at += 1
            return word[1:-1] if word[0] == "`" else unquoted(word)
        if kind == "number":
            self._at += 1
            digits = word.replace("_", "")
            return float(digits) if re.search(r"[.]|^\d+[eE]", digits) else int(digits, 0)
        if word == "(":
            self._at += 1
            value = self._expression()
            self._expect(")")
            return value
        if word == "func":
            return self._function(self._next())
        if word in ("[", "map", "struct", "interface"):
            of = self._type()
            return self._literal(of) if self._peek() == "{" else Name(of)
        if kind != "name" or word in KEYWORDS:
            raise NotReadError
        start, of = self._at, self._type()
        if self._peek() == "{":
            return self._literal(of)
        self._at = start + 1
        return self._scope.get(word, Name(word))

    def _postfix(self, value: Value) -> Value:
        while True:
            if self._take("."):
                if self._peek() == "(":
                    self._skip()
                    continue
                name, after = self._name(), self._at
                if self._peek() == "[":
                    self._skip()
                if self._peek() == "(":
                    value = self._called(name, value, self._arguments())
                else:
                    self._at, value = after, self._selected(value, name)
            elif self._peek() == "(":
                value = self._applied(value, self._arguments())
            elif self._peek() == "[":
                value = self._indexed(value)
            else:
                return value

    def _selected(self, value: Value, name: str) -> Value:
        if isinstance(value, Composite) and name in value.fields:
            return value.fields[name]
        if isinstance(value, Name):
            return self.globals.get(f"{value.text}.{name}", Name(f"{value.text}.{name}"))
        return Call(f".{name}", value)

    def _indexed(self, value: Value) -> Value:
        start = self._at
        self._expect("[")
        try:
            key: Value = None if self._peek() == ":" else self._expression()
            if self._take(":"):
                key = slice(key, None if self._peek() == "]" else self._expression())
            self._expect("]")
        except NotReadError:
            self._at = start
            self._skip()
            return value
        if self._peek() == "(" and isinstance(value, Name | Function):
            return value
        try:
            return value[key]
        except (TypeError, KeyError, IndexError):
            return Call("[]", value, (key,))

    def _arguments(self) -> tuple[Value, ...]:
        self._expect("(")
        args: list[Value] = []
        while not self._take(")"):
            value = self._expression()
            if self._take("..."):
                args.extend(value if isinstance(value, tuple) else (Call("...", None, (value,)),))
            else:
                args.append(value)
            self._take(",")
        return tuple(args)

    def _called(self, name: str, receiver: Value, args: tuple[Value, ...]) -> Value:
        if isinstance(receiver, Name) and receiver.text in _POINTERS and len(args) == 1:
            return args[0]
        if receiver == Name("slices") and name == "Concat" and all(isinstance(arg, tuple | None) for arg in args):
            return tuple(item for arg in args for item in arg or ())
        if receiver == Name("slices") and name == "Clone":
            return args[0]
        if receiver == Name("fmt") and name == "Sprintf" and all(isinstance(arg, str | int) for arg in args):
            return args[0].replace("%v", "%s") % args[1:]
        return Call(name, receiver, args)

    def _applied(self, value: Value, args: tuple[Value, ...]) -> Value:
        if isinstance(value, Function):
            before, self._branched = self._branched, False
            found = self._run(value, args).get("return")
            branched, self._branched = self._branched, before
            return Call(value.name, None, args) if branched else found
        name = value.text if isinstance(value, Name) else "()"
        if name in _CONVERSIONS and len(args) == 1:
            return args[0]
        if name == "append" and isinstance(args[0], tuple | None):
            return (*(args[0] or ()), *args[1:])
        return Call(name, None if isinstance(value, Name) else value, args)

    def _literal(self, of: str) -> Value:
        self._expect("{")
        key_type, value_type = parts_of_type(of)
        keyed: dict[Value, Value] = {}
        items: list[Value] = []
        while not self._take("}"):
            if self._key_follows():
                key = self._key(of, key_type)
                self._expect(":")
                keyed[key] = self._element(value_type)
            else:
                items.append(self._element(value_type))
            self._take(",")
            self._take(";")
        if of.startswith("[]"):
            return tuple(items)
        names = self._scope.get(f"type {of}", ())
        if items and len(names) == len(items):
            keyed, items = dict(zip(names, items, strict=True)), []
        return keyed if of.startswith("map[") else Composite(of, keyed, tuple(items))

    def _element(self, of: str) -> Value:
        return self._literal(of) if self._peek() == "{" else self._expression()

    def _key(self, of: str, key_type: str) -> Value:
        """Read a key: a field if it is a bare name in a struct, otherwise a value.

        Fields of a type of another package start with a capital: a lower-case name in its literal is a variable.
        """
        (kind, word), (_, after) = self._tokens[self._at : self._at + 2]
        if kind == "name" and after == ":" and not of.startswith("map[") and ("." not in of or word[0].isupper()):
            return self._next()
        return self._element(key_type)
