"""Hashes of code, to notice that it changed: of simsched as a whole, and of what a plugin adds to it."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires, version
from importlib.util import find_spec
from modulefinder import ModuleFinder
from pathlib import Path
from typing import Any, cast

from simsched.errors import input_error
from simsched.paths import data_folder
from simsched.plugins import bases_of

_SIMSCHED = Path(__file__).resolve().parent
_INSTALLED = ("site-packages", "dist-packages")
_NOT_COUNTED = frozenset({"simsched", *sys.stdlib_module_names})


@dataclass(frozen=True)
class Code:
    """The code that a result depends on: hashes of files by module or folder, and versions of libraries."""

    modules: Mapping[str, str] = field(default_factory=dict)
    libraries: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def digest(self) -> str:
        """Hash the code, in 64 hexadecimal digits."""
        text = repr([sorted(part.items()) for part in (self.modules, self.libraries)])
        return hashlib.sha256(text.encode()).hexdigest()


@cache
def code() -> Code:
    """Return simsched's own modules, its shipped workloads, and the libraries that it declares."""
    libraries = {one.partition(">")[0] for one in requires("simsched") or () if "extra ==" not in one}
    modules = {"simsched": content_of(_SIMSCHED, "*.py"), "workloads": content_of(data_folder("workloads"))}
    return Code(modules, {name: version(name) for name in sorted(libraries)})


def plugin_code(plugin: type[Any]) -> Code:
    """Return what a plugin's class or function adds to simsched: its file, those that it imports, and libraries.

    Files count if they belong to the packages of the plugin and its bases, to the shipped policies, or to no installed
    package, and so do all files of a package that offers the plugin. Names that are computed are missed.
    """
    files, libraries = _found_for(cast("Hashable", plugin))
    return Code({name: content_of(path) for name, path in sorted(files.items())}, dict(libraries))


def content_of(path: Path, pattern: str = "*") -> str:
    """Hash a file, or a folder's files with their names but for its pages (`*.md`); `InputError` if unreadable."""
    digest = hashlib.sha256()
    try:
        if not path.is_dir():
            return hashlib.sha256(path.read_bytes()).hexdigest()
        for file in sorted(file for file in path.rglob(pattern) if file.is_file() and file.suffix != ".md"):
            digest.update(file.relative_to(path).as_posix().encode() + b"\0")
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    except OSError as error:
        raise input_error(path, f"cannot be read: {error.strerror}") from error
    return digest.hexdigest()


class _Finder(ModuleFinder):
    """Finds the modules that code imports in users' folders and in packages with a `home`, also in functions."""

    def __init__(self, homes: Mapping[str, str]) -> None:
        self._homes = homes
        folders = [one for one in sys.path if not _holds_installed(one or ".")]
        super().__init__(folders, excludes=["simsched", *sys.stdlib_module_names])

    def find_module(self, name: str, path: str | None, parent: Any = None) -> Any:
        home = self._homes.get(name) if parent is None else None
        return super().find_module(name, cast("Any", path if home is None else [home]), parent)


@cache
def _holds_installed(folder: str) -> bool:
    return Path(folder).name in _INSTALLED or any(Path(folder).glob("*.dist-info"))


@lru_cache(maxsize=256)
def _found_for(plugin: Any) -> tuple[dict[str, Path], tuple[tuple[str, str], ...]]:
    """Return a plugin's files by module, and name and version of the libraries that they import."""
    kinds = [kind for kind in bases_of(plugin) if kind.__module__.partition(".")[0] not in _NOT_COUNTED]
    tops = {"simsched_policies", *(kind.__module__.partition(".")[0] for kind in kinds if "." in kind.__module__)}
    finder = _Finder({top: home for top in tops if (home := _home_of(top))})
    files: dict[str, Path] = {}
    for kind in kinds:
        own = getattr(sys.modules[kind.__module__], "__file__", None)
        if own is None:
            continue
        files[Path(own).name if "simsched_file_" in kind.__module__ else kind.__module__] = Path(own)
        files |= _offered_with(kind)
        try:
            finder.run_script(own)
        except (SyntaxError, ValueError):  # it has changed since it was loaded
            continue
    places = {name: cast("Any", one).__file__ for name, one in finder.modules.items() if name != "__main__"}
    files |= {name: Path(place) for name, place in places.items() if place}
    outside = {name.partition(".")[0] for name in finder.badmodules} - finder.modules.keys() - {"simsched", ""}
    libraries = {one for top in outside - sys.stdlib_module_names for one in _distributions_of(top)}
    return files, tuple(sorted(libraries))


def _home_of(top: str) -> str | None:
    """Return the folder that holds a top-level package."""
    spec = find_spec(top)
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    return str(Path(places[0]).parent) if places else None


def _offered_with(kind: type[Any]) -> Iterator[tuple[str, Path]]:
    """Yield the modules of the package that offers a class, or of the folder without `__init__.py` that holds it."""
    name = kind.__module__.rpartition(".")[0]
    package = sys.modules.get(name)
    if package is not None and (package.__file__ is None or getattr(package, kind.__name__, None) is kind):
        folder = Path(package.__path__[0])
        for path in sorted(folder.rglob("*.py")):
            yield ".".join((name, *path.relative_to(folder).with_suffix("").parts)), path


@cache
def _distributions_of(top: str) -> tuple[tuple[str, str], ...]:
    """Return name and version of a top-level package's distribution, by its own name or any other."""
    try:
        return ((top, version(top)),)
    except PackageNotFoundError:
        return tuple((name, version(name)) for name in packages_distributions().get(top, ()))
