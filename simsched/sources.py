"""The hashed import closure of code, to notice changes of what it depends on.

It holds the files of all modules imported, directly or not, also inside functions, that belong to simsched or no
installed package; the versions of imported libraries; and shipped data folders. It misses computed names.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path
from typing import Any

from simsched.errors import input_error
from simsched.paths import data_folder
from simsched.plugins import bases_of

_FOLDER_ALIAS = "simsched_file_"


@dataclass(frozen=True)
class Closure:
    """The dependencies of code: hashes of modules and shipped data by name, and versions of libraries."""

    modules: Mapping[str, str] = field(default_factory=dict)
    libraries: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def digest(self) -> str:
        """Hash the closure, in 64 hexadecimal digits."""
        text = repr([sorted(part.items()) for part in (self.modules, self.libraries, self.data)])
        return hashlib.sha256(text.encode()).hexdigest()


def closure_of(roots: Sequence[str], *, own: Collection[str] = ("simsched",), without: Collection[str] = ()) -> Closure:
    """Follow the imports of modules by reading, not running, their files.

    Packages in `own` count by file even if installed; modules in `without`, and what only they import, do not count.
    """
    return _Walk({*own, "simsched"}, {*without}).follow(dict.fromkeys(roots))


def plugin_closure(plugin: type[Any], *, without: Collection[str] = ()) -> Closure:
    """Return the closure of a plugin's class and bases, with all modules of a folder of its own (loadable by name)."""
    kinds = [kind for kind in bases_of(plugin) if kind.__module__ != "builtins"]
    roots: dict[str, Path | None] = {kind.__module__: None for kind in kinds}
    roots |= {name: path for kind in kinds for name, path in _of_the_folder(kind)}
    own = {kind.__module__.partition(".")[0] for kind in kinds}
    return _Walk({*own, "simsched"}, {*without}).follow(roots)


def content_of(path: Path) -> str:
    """Hash a file, or a folder's files with their names but for its pages (`*.md`); `InputError` if unreadable."""
    digest = hashlib.sha256()
    try:
        if not path.is_dir():
            return hashlib.sha256(path.read_bytes()).hexdigest()
        for file in sorted(file for file in path.rglob("*") if file.is_file() and file.suffix != ".md"):
            digest.update(file.relative_to(path).as_posix().encode() + b"\0")
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    except OSError as error:
        raise input_error(path, f"cannot be read: {error.strerror}") from error
    return digest.hexdigest()


class _Walk:
    def __init__(self, own: Collection[str], without: Collection[str]) -> None:
        self._own = own
        self._seen = set(without)
        self._installed: dict[str, bool] = {}
        self._files: dict[str, Path | None] = {}

    def follow(self, roots: Mapping[str, Path | None]) -> Closure:
        """Follow the imports of modules, whose files may be given."""
        modules: dict[str, str] = {}
        libraries: dict[str, str] = {}
        data: set[str] = set()
        waiting = list(roots)
        while waiting:
            name = waiting.pop()
            if name in self._seen:
                continue
            self._seen.add(name)
            top = name.partition(".")[0]
            if not top or top in sys.stdlib_module_names:
                continue
            if self._is_library(top):
                libraries |= dict(_distributions_of(top))
                continue
            path = roots.get(name) or self._file(name)
            if path is None:
                waiting += self._behind_the_door(name)
            if path is None or path.suffix != ".py":
                continue
            at = path.stat()
            read = _read(name, path, at.st_mtime_ns, at.st_size)
            modules[path.name if top.startswith(_FOLDER_ALIAS) else name] = read.digest
            waiting += read.imports
            data.update(read.data)
        return Closure(modules, libraries, {name: content_of(data_folder(name)) for name in sorted(data)})

    def _file(self, name: str) -> Path | None:
        """Find a module's file without importing it; what is named in a file that is no package's is no module."""
        if name not in self._files:
            package = name.rpartition(".")[0]
            home = self._file(package) if package else None
            self._files[name] = _file_of(name) if home is None or home.name == "__init__.py" else None
        return self._files[name]

    def _behind_the_door(self, name: str) -> Iterator[str]:
        """Yield the module that a package exports a name from, according to the stub of its `__init__.py`."""
        package, _, offered = name.rpartition(".")
        door = self._file(package) if package else None
        if door is not None and door.with_suffix(".pyi").is_file():
            module = _offered(door.with_suffix(".pyi")).get(offered)
            if module is not None:
                yield f"{package}.{module}"

    def _is_library(self, top: str) -> bool:
        """Return whether a package counts by version: installed and not in `own`."""
        if top in self._own:
            return False
        if top not in self._installed:
            self._installed[top] = _is_installed(top)
        return self._installed[top]


@dataclass(frozen=True)
class _Module:
    """A module's hash, its imports, and the shipped data folders it names."""

    digest: str
    imports: tuple[str, ...]
    data: tuple[str, ...]


@lru_cache(maxsize=2048)
def _read(module: str, path: Path, mtime_ns: int, size: int) -> _Module:
    """Parse a file, cached by version."""
    content = path.read_bytes()
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    try:
        statements = list(_statements(ast.parse(content)))
    except (SyntaxError, ValueError):
        statements = []
    imports = dict.fromkeys(name for one in statements for name in _imports(one, package))
    data = _data_named(content)
    return _Module(hashlib.sha256(content).hexdigest(), tuple(imports), data)


def _data_named(content: bytes) -> tuple[str, ...]:
    """List the shipped data folders a file names: `data_folder("workloads")`."""
    if b"data_folder(" not in content:
        return ()
    calls = (node for node in ast.walk(ast.parse(content)) if isinstance(node, ast.Call) and node.args)
    named = [call.args[0] for call in calls if isinstance(call.func, ast.Name) and call.func.id == "data_folder"]
    return tuple(one.value for one in named if isinstance(one, ast.Constant) and isinstance(one.value, str))


def _imports(statement: ast.AST, package: str) -> Iterator[str]:
    """Yield a statement's imports as full names; for `from a import b` both `a` and `a.b`."""
    if isinstance(statement, ast.Import):
        for alias in statement.names:
            yield from _with_parents(alias.name)
    elif isinstance(statement, ast.ImportFrom):
        base = statement.module or ""
        if statement.level:
            steps = package.split(".")
            base = ".".join([*steps[: len(steps) - statement.level + 1], *([base] if base else [])])
        yield from _with_parents(base)
        yield from (f"{base}.{alias.name}" for alias in statement.names)


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield all statements, nested ones too, except under `TYPE_CHECKING`; skips expressions, which hold none."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        for part in ("orelse", "finalbody", "handlers", "cases") if _for_types(node) else _PARTS:
            inside = getattr(node, part, None)
            if isinstance(inside, list):  # conditional expressions hold an expression here
                waiting += inside
        yield node


_PARTS = ("body", "orelse", "finalbody", "handlers", "cases")


def _for_types(node: ast.AST) -> bool:
    test = node.test if isinstance(node, ast.If) else None
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def _with_parents(name: str) -> Iterator[str]:
    parts = name.split(".")
    yield from (".".join(parts[:length]) for length in range(1, len(parts) + 1))


def _of_the_folder(kind: type[Any]) -> Iterator[tuple[str, Path]]:
    """Yield all modules of the folder of a class's own, if any."""
    dotted = kind.__module__
    home = None
    while "." in dotted:
        dotted = dotted.rpartition(".")[0]
        package = sys.modules.get(dotted)
        if package is not None and getattr(package, kind.__name__, None) is kind:
            home = package
    if home is None or home.__name__.startswith("simsched."):
        return
    folder = Path(home.__file__ or "").parent
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        yield ".".join((home.__name__, *(parts[:-1] if parts[-1] == "__init__" else parts))), path


def _is_installed(top: str) -> bool:
    """Return whether a top-level module belongs to a distribution, whose records lie beside it."""
    spec = _spec_of(top)
    if spec is None:
        return False
    places = spec.submodule_search_locations or ([] if spec.origin is None else [spec.origin])
    return any(_holds_distributions(Path(place).resolve().parent) for place in places)


@cache
def _holds_distributions(folder: Path) -> bool:
    return folder.name in ("site-packages", "dist-packages") or any(folder.glob("*.dist-info"))


@cache
def _distributions_of(top: str) -> tuple[tuple[str, str], ...]:
    """Return name and version of a top-level package's distribution, by its own name or any other."""
    try:
        return ((top, version(top)),)
    except PackageNotFoundError:
        return tuple((name, version(name)) for name in sorted(_providers(top)))


def _providers(top: str) -> set[str]:
    """Name the distributions with a top-level package, by a search of their records.

    `packages_distributions` makes a path of every installed file, which takes longer than all else in a check.
    """
    listed = re.compile(rf'^"?{re.escape(top)}(/[^\n]*)?\.py"?,', re.MULTILINE)
    found = set()
    for one in distributions():
        declared = (one.read_text("top_level.txt") or "").split()
        if top in declared or (not declared and listed.search(one.read_text("RECORD") or "")):
            found.add(one.name)
    return found


def _file_of(name: str) -> Path | None:
    """Find a module's file without importing it, independent of earlier imports."""
    top, *rest = name.split(".")
    loaded = sys.modules.get(name)
    if loaded is not None and top.startswith(_FOLDER_ALIAS):
        return Path(loaded.__file__).resolve() if loaded.__file__ else None
    spec = _spec_of(top)
    if spec is None:
        return None
    if not rest:
        return Path(spec.origin) if spec.origin and Path(spec.origin).is_file() else None
    for folder in spec.submodule_search_locations or ():
        base = Path(folder, *rest)
        for path in (base / "__init__.py", base.with_name(f"{base.name}.py")):
            if path.is_file():
                return path
    return None


@cache
def _offered(stub: Path) -> dict[str, str]:
    statements = ast.parse(stub.read_text(encoding="utf-8")).body
    imports = [one for one in statements if isinstance(one, ast.ImportFrom) and one.level == 1 and one.module]
    return {alias.name: str(one.module) for one in imports for alias in one.names}


def _spec_of(top: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(top)
    except (ImportError, ValueError, AttributeError):
        return None
