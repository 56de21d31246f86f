"""The values in tables of Go tests: literals, calls of builders and simple variables, as plain Python values.

Schedulers of Kubernetes come with tests whose tables hold the input and the expected outcome as Go literals.
`read_go` reads such a file without running it: `GoFile.values("TestX")` returns the variables of a function. A slice
becomes a tuple, a map a dict, a struct a `Composite`, a call a `Call`; `nil` becomes None, a pointer its target, and a
name with a known value that value. A helper function that declares, assigns and returns is expanded; one that branches
stays a `Call`. Loops and conditions in the function itself are skipped.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from simsched.errors import input_error
from simsched_policies.production.go_expressions import BOUND, Call, Composite, Expressions, Function, Name, Value
from simsched_policies.production.go_text import BRANCHES, KEYWORDS, NotReadError

__all__ = ["Call", "Composite", "Function", "GoFile", "Name", "Value", "read_go"]

#: Largest depth of nested calls.
_DEEPEST = 20


class GoFile(Expressions):
    """A Go file from which values are read; see `read_go`."""

    def __init__(self, text: str, known: Mapping[str, Value]) -> None:
        super().__init__(text)
        self._scope: dict[str, Value] = {**BOUND, **known}
        self._depth = 0
        self._branched = False
        self.globals = self._scope
        self._statements(end="")

    @property
    def functions(self) -> list[str]:
        """Return the names of the functions in file order."""
        return [name for name, value in self.globals.items() if isinstance(value, Function)]

    def values(self, function: str) -> dict[str, Value]:
        """Return the variables of a function by name, its result as `return`, and a loop's table by its variable."""
        found = self.globals.get(function)
        if not isinstance(found, Function):
            raise input_error(f"function {function}", "is not in the file", f"one of {', '.join(self.functions)}")
        return self._run(found, ())

    def built(self, function: str, builders: tuple[str, ...]) -> tuple[Value, ...]:
        """Return the objects that builders, given by name prefixes, make in a function, including loops and cases."""
        of = self.globals[function]
        self._at = of.body - 1
        self._skip()
        end, found = self._at, []
        for at in range(of.body, end):
            if self._tokens[at][1].startswith(builders) and self._tokens[at - 1][1] == ".":
                self._at = at - 2
                with contextlib.suppress(NotReadError):
                    found.append(self._expression())
        return tuple(found)

    def _run(self, function: Function, args: tuple[Value, ...]) -> dict[str, Value]:
        at, scope = self._at, self._scope
        known = {name: value for name, value in zip(function.parameters, args, strict=False) if name}
        if function.parameters and function.parameters[-1].startswith("..."):
            known.pop(last := function.parameters[-1], None)
            known[last[3:]] = args[len(function.parameters) - 1 :]
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
        elif word == "type":
            self._at += 1
            self._group(self._type_declaration)
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
        else:
            self._scope |= dict.fromkeys(names)

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

    def _type_declaration(self) -> None:
        """Keep the names of a struct's fields, which its literals may omit."""
        name = self._name()
        if self._peek() == "struct":
            self._at += 2
            fields: list[str] = []
            while not self._take("}"):
                fields += self._names()
                self._skip_statement("}")
                self._take(";")
            self._scope[f"type {name}"] = tuple(fields)
        else:
            self._type()

    def _loop(self) -> None:
        """Run a loop over a number or a list; a table written into a loop is stored under the loop's variable."""
        self._at += 1
        names = self._names()
        self._expect(":=")
        if not self._take("range"):
            pairs: Iterable[tuple[Value, Value]] = self._counted()
        elif self._peek() in ("[", "map"):
            self._scope.setdefault(names[-1], self._expression())
            raise NotReadError
        else:
            over = self._primary_of_header()
            pairs = zip(range(over), range(over), strict=True) if isinstance(over, int) else enumerate(over)
        self._expect("{")
        body = self._at
        for pair in pairs:
            self._at = body
            self._scope |= zip(names, pair, strict=False)
            self._statements(end="}")
        self._at = body - 1
        self._skip()

    def _counted(self) -> Iterable[tuple[int, int]]:
        """Read the rest of `i := 0; i < 5; i++`."""
        first = self._expression()
        self._expect(";")
        self._name()
        self._expect("<")
        end = self._primary_of_header()
        self._expect(";")
        self._name()
        self._expect("++")
        if not isinstance(first, int) or not isinstance(end, int):
            raise NotReadError
        return ((number, number) for number in range(first, end))

    def _primary_of_header(self) -> Value:
        """Read a number or a variable before a loop's body, whose bracket does not open a literal."""
        kind, word = self._tokens[self._at]
        found = self._scope.get(self._next()) if kind == "name" else int(word) if kind == "number" else None
        if kind == "number":
            self._at += 1
        if not isinstance(found, int | tuple) or self._peek() not in ("{", ";"):
            raise NotReadError
        return found


def read_go(path: Path, known: Mapping[str, Value] | None = None) -> GoFile:
    """Read a Go file; `known` maps names and constants of other packages (`corev1.ResourceCPU`) to values."""
    try:
        return GoFile(path.read_text(encoding="utf-8"), known or {})
    except (NotReadError, OSError, UnicodeDecodeError) as error:
        raise input_error(str(path), f"cannot be read as Go ({error!r})", "give a whole file of Go source") from error
