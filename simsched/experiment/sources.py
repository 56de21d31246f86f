"""Hashes of all code on which the rows of a cell depend, so that a change of it is noticed.

Rooms of simsched are hashed whole. Of a plugin, the files of its class, of all its bases, and of every helper module
that these import, directly or not, are hashed, wherever they lie; of libraries the versions count.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import sys
from collections.abc import Iterator
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

#: The rooms, and modules outside them, on which rows depend.
ROOMS = (
    "agent",
    "applications",
    "closed_loop",
    "engine",
    "jit.py",
    "keys.py",
    "model",
    "policy",
    "programs",
    "results/schema.py",
    "results/trials.py",
    "workload",
)
#: Libraries whose versions can change a number.
LIBRARIES = ("highspy", "numba", "numpy", "scipy")

_PACKAGE = Path(__file__).resolve().parent.parent
_FOLDER_ALIAS = "simsched_file_"


@cache
def code_hash() -> str:
    """Hash the rooms of simsched on which rows depend, in 64 hexadecimal digits; done once in a process."""
    digest = hashlib.sha256()
    for room in ROOMS:
        for path in [_PACKAGE / room] if room.endswith(".py") else sorted((_PACKAGE / room).rglob("*.py")):
            digest.update(path.relative_to(_PACKAGE).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


@cache
def library_versions() -> dict[str, str]:
    """Return the versions of the libraries that can change a number, by name; those that are not there are left out."""
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def plugin_sources(plugin: type[Any]) -> dict[str, str]:
    """Hash every file on which a policy or an agent depends, besides the rooms of simsched and libraries.

    Returns SHA-256 hashes by module; a file that was named by its path is called by its name.
    """
    found: dict[str, str] = {}
    own = {kind.__module__.partition(".")[0] for kind in plugin.__mro__} - {"builtins", "simsched"}
    waiting = [kind.__module__ for kind in reversed(plugin.__mro__)]
    folder = {name: path for kind in plugin.__mro__ for name, path in _of_the_folder(kind)}
    waiting += folder
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        path = folder.get(name) or _source_of(name, own)
        if path is None:
            continue
        at = path.stat()
        digest, imports = _read(name, path, at.st_mtime_ns, at.st_size)
        found[path.name if name.startswith(_FOLDER_ALIAS) else name] = digest
        waiting += imports
    return dict(sorted(found.items()))


@lru_cache(maxsize=1024)
def _read(module: str, path: Path, mtime_ns: int, size: int) -> tuple[str, tuple[str, ...]]:
    """Hash a file and list what it imports, once for each of its versions."""
    content = path.read_bytes()
    return hashlib.sha256(content).hexdigest(), tuple(_imports(content, module, path))


def _of_the_folder(kind: type[Any]) -> Iterator[tuple[str, Path]]:
    """List all modules of the folder in which a class lives, if it has one of its own: they may be loaded by name."""
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


def _imports(content: bytes, module: str, path: Path) -> Iterator[str]:
    """List what a module imports, inside functions too, as full names; of `from a import b` both `a` and `a.b`."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):
        return
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _with_parents(alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                steps = package.split(".")
                base = ".".join([*steps[: len(steps) - node.level + 1], *([base] if base else [])])
            yield from _with_parents(base)
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield all statements, inside others too; expressions, which are most of a tree, hold none."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            inside = getattr(node, part, None)
            if isinstance(inside, list):  # of a conditional expression it is an expression
                waiting += inside
        yield node


def _with_parents(name: str) -> Iterator[str]:
    parts = name.split(".")
    yield from (".".join(parts[:length]) for length in range(1, len(parts) + 1))


def _source_of(name: str, own: set[str]) -> Path | None:
    """Find the file of a module that counts: neither hashed with the rooms, nor of Python's own, nor of a library.

    `own` names the packages of the plugin itself, which count even where they are installed as libraries are.
    """
    top = name.partition(".")[0]
    if not top or top in sys.stdlib_module_names:
        return None
    path = _file_of(name)
    if path is None or path.suffix != ".py":
        return None
    if path.is_relative_to(_PACKAGE):
        inside = path.relative_to(_PACKAGE)
        return None if inside.as_posix() in ROOMS or inside.parts[0] in ROOMS or inside.parts[0] in _OTHER else path
    return path if top in own or not _is_installed(path, name.count(".")) else None


#: Parts of simsched that no rows depend on, even where a module that counts imports them.
_OTHER = ("__init__.py", "errors.py", "files.py", "paths.py", "plugins.py", "threads.py", "results", "documents")


def _is_installed(path: Path, dots: int) -> bool:
    """Return whether a module is of an installed distribution: the records of those stand beside their packages."""
    up = dots + (path.name == "__init__.py")
    return len(path.parents) > up and _holds_distributions(path.parents[up])


@cache
def _holds_distributions(folder: Path) -> bool:
    return folder.name in ("site-packages", "dist-packages") or any(folder.glob("*.dist-info"))


def _file_of(name: str) -> Path | None:
    """Find the file of a module without importing anything, so that what has been imported makes no difference."""
    top, *rest = name.split(".")
    loaded = sys.modules.get(name)
    if loaded is not None and top.startswith(_FOLDER_ALIAS):
        return Path(loaded.__file__).resolve() if loaded.__file__ else None
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError, AttributeError):
        return None
    if spec is None:
        return None
    if not rest:
        return Path(spec.origin).resolve() if spec.origin and Path(spec.origin).is_file() else None
    for folder in spec.submodule_search_locations or ():
        base = Path(folder, *rest)
        for path in (base / "__init__.py", base.with_name(f"{base.name}.py")):
            if path.is_file():
                return path.resolve()
    return None
