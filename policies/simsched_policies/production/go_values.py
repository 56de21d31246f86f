"""The values in tables of Go tests: literals, calls of builders and simple variables, as plain Python values.

Schedulers of Kubernetes come with tests whose tables hold the input and the expected outcome as Go literals.
`read_go` reads such a file without running it: `GoFile.values("TestX")` gives the variables of a function. A slice is a
tuple, a map a dict, a struct a `Composite`, a call a `Call`; `nil` is None, pointers are what they point to, names
with a known value are that value. A helper function that declares, assigns and returns is expanded; one that branches
stays a `Call`. Loops and conditions in the function itself are passed over.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simsched.errors import input_error
from simsched_policies.production.go_text import BRANCHES, KEYWORDS, OPEN, Cursor, NotReadError, parts_of_type, unquoted

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
_BOUND: Mapping[str, Value] = {"true": True, "false": False, "nil": None}
_CONVERSIONS = {f"{kind}{bits}" for kind in ("int", "uint", "float") for bits in ("", 8, 16, 32, 64)} | {
    "string",
    "new",
}
#: Helpers that make a pointer of a value, by package.
_POINTERS = {"ptr", "pointer"}
#: Calls within calls that are followed.
_DEEPEST = 20


@dataclass(frozen=True)
class Name:
    """A name that the reader has no value for, with its package: `corev1.ResourceCPU`."""

    text: str


@dataclass(frozen=True)
class Composite:
    """A struct, or a literal of a named type: fields by name (or key), and items without one."""

    type: str
    fields: dict[Any, Value]
    items: tuple[Value, ...] = ()

    def __hash__(self) -> int:
        """Hash the type and the keys, so that a struct can be the key of a map."""
        return hash((self.type, tuple(self.fields)))

    def get(self, name: str, default: Value = None) -> Value:
        """Return a field, the default where it is not given."""
        return self.fields.get(name, default)


@dataclass(frozen=True)
class Call:
    """A call: of a function of a package (the receiver is a `Name`), of a method, or of a plain function.

    A later assignment to a field of the result is a call of `field.path=` on it.
    """

    name: str
    receiver: Value = None
    args: tuple[Value, ...] = ()

    def chain(self) -> list[Call]:
        """Return the calls of a builder from its first: `MakeX("a").Y(1).Obj()` is MakeX, Y, Obj."""
        before = self.receiver.chain() if isinstance(self.receiver, Call) else []
        return [*before, self]


@dataclass(frozen=True)
class Function:
    """A function of the file: its parameters and where its body lies."""

    name: str
    parameters: tuple[str, ...]
    body: int
    scope: dict[str, Value] = field(compare=False, repr=False)


class GoFile(Cursor):
    """A file of Go, of which values are read; see `read_go`."""

    def __init__(self, text: str, known: Mapping[str, Value]) -> None:
        super().__init__(text)
        self._scope: dict[str, Value] = {**_BOUND, **known}
        self._depth = 0
        self._branched = False
        self.globals = self._scope
        self._statements(end="")

    @property
    def functions(self) -> list[str]:
        """Return the names of the functions of the file, in its order."""
        return [name for name, value in self.globals.items() if isinstance(value, Function)]

    def values(self, function: str) -> dict[str, Value]:
        """Return the variables of a function by name, what it returns as `return`, a loop's table by its variable."""
        found = self.globals.get(function)
        if not isinstance(found, Function):
            raise input_error(f"function {function}", "is not in the file", f"one of {', '.join(self.functions)}")
        return self._run(found, ())

    # Statements

    def _run(self, function: Function, args: tuple[Value, ...]) -> dict[str, Value]:
        at, scope = self._at, self._scope
        known = {name: value for name, value in zip(function.parameters, args, strict=False) if name}
        self._at, self._scope, self._depth = function.body, {**function.scope, **known}, self._depth + 1
        before = dict(self._scope)
        try:
            if self._depth > _DEEPEST:
                raise input_error(f"function {function.name}", "calls itself without end", "leave it out")
            self._statements(end="}")
            return {k: v for k, v in self._scope.items() if k in known or k not in before or before[k] is not v}
        finally:
            self._at, self._scope, self._depth = at, scope, self._depth - 1

    def _statements(self, end: str) -> None:
        while self._peek() not in (end, ""):
            start = self._at
            try:
                self._statement()
            except NotReadError:
                self._at = start
            if self._peek() not in (";", end):
                self._at = start
                self._branched |= self._peek() in BRANCHES
                self._skip_statement(end)
            self._take(";")

    def _statement(self) -> None:
        word = self._peek()
        if word in ("const", "var"):
            self._at += 1
            self._group(self._declaration)
        elif word == "func" and self._tokens[self._at + 1][0] == "name":
            self._at += 1
            name = self._next()
            self._scope[name] = self._function(name)
        elif word == "return":
            self._at += 1
            self._scope.setdefault("return", self._expression() if self._peek() not in (";", "}") else None)
        elif word == "for":
            self._loop()
        elif self._tokens[self._at][0] == "name" and word not in KEYWORDS:
            self._assignment()
        else:
            raise NotReadError

    def _group(self, one: Callable[[], None]) -> None:
        if not self._take("("):
            return one()
        while not self._take(")"):
            one()
            self._take(";")
        return None

    def _declaration(self) -> None:
        names = self._names()
        if self._peek() not in ("=", ";", ")"):
            self._type()
        if self._take("="):
            self._bind(names)

    def _assignment(self) -> None:
        start = self._at
        names = self._names()
        if self._take(":=") or self._take("="):
            return self._bind(names)
        self._at = start
        path = [self._next()]
        while self._take("."):
            path.append(self._next())
        self._expect("=")
        owner = self._scope.get(path[0], Name(path[0]))
        self._scope[path[0]] = Call(f"{'.'.join(path[1:])}=", owner, (self._expression(),))
        return None

    def _bind(self, names: list[str]) -> None:
        values = [self._expression()]
        while self._take(","):
            values.append(self._expression())
        for number, name in enumerate(names):
            several = len(values) == len(names)
            self._scope[name] = values[number] if several else Call("result", values[0], (number,))

    def _loop(self) -> None:
        """Name the table that a loop runs over by the loop's variable; the loop itself is passed over."""
        self._at += 1
        names = self._names()
        self._expect(":=")
        self._expect("range")
        if self._peek() not in ("[", "map"):
            raise NotReadError
        table = self._expression()
        self._scope.setdefault(names[-1], table)
        raise NotReadError

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
            key = self._expression()
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
        return keyed if of.startswith("map[") else Composite(of, keyed, tuple(items))

    def _element(self, of: str) -> Value:
        return self._literal(of) if self._peek() == "{" else self._expression()

    def _key(self, of: str, key_type: str) -> Value:
        """Read a key: a field where a bare name stands in a struct, else a value.

        A type of another package has fields with capitals only: in its literal a small name is a variable.
        """
        (kind, word), (_, after) = self._tokens[self._at : self._at + 2]
        if kind == "name" and after == ":" and not of.startswith("map[") and ("." not in of or word[0].isupper()):
            return self._next()
        return self._element(key_type)


def read_go(path: Path, known: Mapping[str, Value] | None = None) -> GoFile:
    """Read a file of Go; `known` has values of names and constants of other packages (`corev1.ResourceCPU`)."""
    try:
        return GoFile(path.read_text(encoding="utf-8"), known or {})
    except (NotReadError, OSError, UnicodeDecodeError) as error:
        raise input_error(str(path), f"cannot be read as Go ({error!r})", "give a whole file of Go source") from error
